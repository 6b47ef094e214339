"""The open partitions of this shard.

They are opened when the shard starts. Afterwards each metadata change creates, purges or removes
partitions. A partition with damaged files is quarantined: requests for it fail, and the others are
served. A partition whose files cannot be opened or purged, such as on a full disk, is retried.

A metadata change is final when it comes here: it is logged, and other shards apply it too. So
following it never fails. What cannot be done now is retried until it is done, and until then
requests for that partition fail.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

import trio

from iggy_protocol import StatusCode
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.partitions.generation import NO_GENERATION
from iggy_ref_server.partitions.health import PartitionHealth
from iggy_ref_server.segments.errors import CorruptPartition
from iggy_ref_server.storage.interface import DiskFull, StorageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from iggy_ref_server.metadata.state import Metadata, PartitionRecord, TopicRecord
    from iggy_ref_server.partitions.lifecycle import UnsavedData
    from iggy_ref_server.partitions.partition import PartitionLog


LOGGER = logging.getLogger(__name__)

PARTITIONS_IN_PARALLEL = 32


class PartitionKey(NamedTuple):
    """The ids of a partition."""

    stream_id: int
    topic_id: int
    partition_id: int


class PartitionDirectory:
    """Partitions by key.

    Args:
        is_local: returns whether this shard owns a partition.
        open_partition: opens or creates the files of a generation of a partition of a topic, whose
            options never change for its partitions.
        remove_files: deletes the files of a partition.
        note_opened: records up to which generation all partitions of this shard are on the disk.
    """

    def __init__(
        self,
        is_local: Callable[[PartitionKey], bool],
        open_partition: Callable[[PartitionKey, TopicRecord, int], Awaitable[PartitionLog]],
        remove_files: Callable[[PartitionKey], Awaitable[None]],
        note_opened: Callable[[int], Awaitable[None]],
    ) -> None:
        self._is_local = is_local
        self._open_partition = open_partition
        self._remove_files = remove_files
        self._note_opened = note_opened
        self._noted_generation = self._opened_generation = NO_GENERATION
        self._is_warned_of_note = False
        self._partitions: dict[PartitionKey, PartitionLog] = {}
        self._closed_count = 0
        self._generations: dict[PartitionKey, int] = {}
        self._created_at_us: dict[PartitionKey, int] = {}
        self._damaged: dict[PartitionKey, str] = {}
        self._failed: dict[PartitionKey, Exception] = {}
        self._are_groups_current = True
        self._follow_lock = trio.Lock()
        self._metadata: Metadata | None = None
        self._groups: dict[tuple[int, int], dict[int, int]] = {}

    def __iter__(self) -> Iterator[tuple[PartitionKey, PartitionLog]]:
        return iter(list(self._partitions.items()))

    @property
    def damaged(self) -> dict[PartitionKey, str]:
        """The quarantined partitions, each with the reason."""
        return dict(self._damaged)

    @property
    def waiting_count(self) -> int:
        """How many partitions could not be opened yet, and are tried again."""
        return len(self._failed)

    @property
    def open_count(self) -> int:
        """How many partitions are open."""
        return len(self._partitions) - self._closed_count

    def holds(self, key: PartitionKey, generation: int, created_at_us: int) -> bool:
        """Return whether the partition that a call names is the one that is open here.

        A purge since the call was made keeps the partition; a deletion and a new partition with
        the same ids does not.
        """
        present = self._generations.get(key)
        if present is None or present == generation:
            return present is not None
        return generation < present and self._created_at_us[key] == created_at_us

    def get(self, key: PartitionKey) -> PartitionLog:
        """Return an open partition.

        Raises:
            ServerFault: there is none, it is quarantined, or it cannot be opened yet.
        """
        partition = self._partitions.get(key)
        if partition is None:
            reason = self._damaged.get(key)
            if reason is not None:
                raise ServerFault(
                    StatusCode.CANNOT_READ_PARTITIONS, f"{key} is quarantined: {reason}"
                )
            error = self._failed.get(key)
            if error is not None:
                raise ServerFault(_status_of(error), f"{key} is not open yet: {error}")
            raise ServerFault(StatusCode.PARTITION_NOT_FOUND, f"{key} is not here")
        return partition

    async def follow(self, metadata: Metadata) -> None:
        """Open, purge and remove partitions to match the metadata; ``retry`` does what fails."""
        async with self._follow_lock:
            self._metadata = metadata
            await self._follow(metadata)

    async def retry(self) -> None:
        """Retry what could not be done before; called once in a second."""
        async with self._follow_lock:
            is_done = not self._failed and self._are_groups_current
            if not is_done and self._metadata is not None:
                await self._follow(self._metadata)
            await self._note()

    async def _note(self) -> None:
        """Record a new opened generation; called now and then, because it costs a sync."""
        if self._opened_generation <= self._noted_generation:
            return
        try:
            await self._note_opened(self._opened_generation)
        except StorageError as error:
            if not self._is_warned_of_note:
                LOGGER.warning(
                    "the record of opened partitions cannot be written and is retried: %s", error
                )
            self._is_warned_of_note = True
        else:
            self._noted_generation = self._opened_generation
            self._is_warned_of_note = False

    async def _follow(self, metadata: Metadata) -> None:
        local_records = dict(self._local_records(metadata))
        self._created_at_us = {
            key: record.created_at_us for key, (_, record) in local_records.items()
        }
        async with trio.open_nursery() as nursery:
            semaphore = trio.Semaphore(PARTITIONS_IN_PARALLEL)
            for key in [key for key in self._generations if key not in local_records]:
                nursery.start_soon(self._limited, semaphore, self._drop, key)
            for key, (topic, record) in local_records.items():
                generation = record.generation
                if self._generations.get(key) != generation or key in self._failed:
                    self._generations[key] = generation
                    nursery.start_soon(
                        self._limited, semaphore, self._open_or_purge, key, topic, generation
                    )
        if not self._failed:
            self._opened_generation = metadata.newest_generation
        await self._follow_groups(metadata)

    async def _follow_groups(self, metadata: Metadata) -> None:
        """Remove the offsets of groups that were deleted, or created again with the same id."""
        self._are_groups_current = True
        for stream in metadata.streams:
            for topic in stream.topics:
                groups = {group.id: group.generation for group in topic.groups}
                known = self._groups.get((stream.id, topic.id))
                if known == groups:
                    continue
                kept = {
                    group_id
                    for group_id, generation in groups.items()
                    if known is None or known.get(group_id) == generation
                }
                kept_everywhere = [
                    await self._retain_groups(key, partition, kept)
                    for key, partition in self
                    if key[:2] == (stream.id, topic.id)
                ]
                if all(kept_everywhere):
                    self._groups[stream.id, topic.id] = groups
                else:
                    self._are_groups_current = False

    async def _retain_groups(
        self, key: PartitionKey, partition: PartitionLog, kept: set[int]
    ) -> bool:
        """Remove the offsets of all other groups; return False if that has to be retried."""
        try:
            await partition.delete_other_groups(kept)
        except Exception as error:
            LOGGER.warning(
                "partition %s: offsets of deleted groups are not removed yet: %s", tuple(key), error
            )
            return False
        return True

    def _local_records(
        self, metadata: Metadata
    ) -> Iterator[tuple[PartitionKey, tuple[TopicRecord, PartitionRecord]]]:
        for stream in metadata.streams:
            for topic in stream.topics:
                for record in topic.partitions:
                    key = PartitionKey(stream.id, topic.id, record.id)
                    if self._is_local(key):
                        yield key, (topic, record)

    async def _limited(
        self,
        semaphore: trio.Semaphore,
        work: Callable[..., Awaitable[None]],
        *arguments: object,
    ) -> None:
        async with semaphore:
            await work(*arguments)

    async def _open_or_purge(self, key: PartitionKey, topic: TopicRecord, generation: int) -> None:
        """Create, open or purge a partition."""
        partition = self._partitions.get(key)
        try:
            if partition is None:
                self._damaged.pop(key, None)
                self._partitions[key] = await self._open_partition(key, topic, generation)
            else:
                await partition.purge(generation=generation)
        except CorruptPartition as damage:
            self._failed.pop(key, None)
            self._damaged[key] = str(damage)
            LOGGER.error("partition %s is quarantined: %s", tuple(key), damage)
        except Exception as error:
            if partition is not None and partition.health is not PartitionHealth.READ_ONLY:
                # The purge may be half done. Opening it again finds files of an old generation
                # and removes them.
                await self._close(key)
            if key not in self._failed:
                LOGGER.error("partition %s cannot be opened and is retried: %s", tuple(key), error)
            self._failed[key] = error
        else:
            if self._failed.pop(key, None) is not None:
                LOGGER.warning("partition %s is open now", tuple(key))

    async def _drop(self, key: PartitionKey) -> None:
        del self._generations[key]
        self._damaged.pop(key, None)
        self._failed.pop(key, None)
        await self._close(key)
        try:
            await self._remove_files(key)
        except Exception as error:
            LOGGER.warning(
                "the files of a deleted partition are not removed; the next start removes them: %s",
                error,
            )

    async def _close(self, key: PartitionKey) -> None:
        """Close a partition that was deleted or whose purge failed."""
        partition = self._partitions.pop(key, None)
        if partition is not None:
            try:
                await partition.aclose()
            except Exception as error:
                LOGGER.warning("partition %s cannot be closed cleanly: %s", tuple(key), error)

    async def aclose(self) -> dict[PartitionKey, UnsavedData]:
        """Save and close all partitions; log and return the messages that could not be saved."""
        unsaved: dict[PartitionKey, UnsavedData] = {}

        semaphore = trio.Semaphore(PARTITIONS_IN_PARALLEL)

        async def close(key: PartitionKey, partition: PartitionLog) -> None:
            missing = await partition.aclose()
            self._closed_count += 1
            if missing is not None:
                unsaved[key] = missing

        await self._note()
        async with trio.open_nursery() as nursery:
            for key, partition in self:
                nursery.start_soon(self._limited, semaphore, close, key, partition)
        self._partitions.clear()
        self._closed_count = 0
        for key, missing in sorted(unsaved.items()):
            for line in missing.lines:
                LOGGER.error("stream %d, topic %d, partition %d: %s", *key, line)
        return unsaved


def _status_of(error: Exception) -> StatusCode:
    if isinstance(error, DiskFull):
        return StatusCode.CANNOT_WRITE_TO_FILE
    return StatusCode.CANNOT_READ_PARTITIONS

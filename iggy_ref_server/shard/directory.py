"""The partitions that live on this shard.

Opens them when the shard starts and follows the metadata afterwards: what was created is made,
what was deleted is removed, what was purged starts anew. A partition whose files are damaged
beyond repair is put aside, and the others are served; one whose files the disk refuses is tried
again from time to time.

What it is told to follow has happened already: it is in the log, and other shards follow it too. So
following never fails. Whatever cannot be done at once, for whatever reason, is tried again until
it is done, and until then requests for that partition are refused.

Owns the table of open partitions. Which shard owns what is the placement's affair.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

import trio

from iggy_protocol import StatusCode
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.partitions import CorruptPartition, Partition
from iggy_ref_server.partitions.health import PartitionHealth
from iggy_ref_server.partitions.opened import NOTHING_KNOWN
from iggy_ref_server.storage.interface import DiskFull, StorageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from iggy_ref_server.metadata.records import PartitionRecord
    from iggy_ref_server.metadata.state import Metadata
    from iggy_ref_server.partitions import Unsaved

__all__ = ["PartitionDirectory", "PartitionKey"]

LOGGER = logging.getLogger(__name__)

AT_ONCE_MAX = 32


class PartitionKey(NamedTuple):
    """Where a partition stands."""

    stream_id: int
    topic_id: int
    partition_id: int


class PartitionDirectory:
    """Partitions by key.

    Args:
        is_mine: tells whether a partition lives on this shard.
        open_partition: opens or creates the files of one.
        remove_files: deletes what is left of one, or of a whole topic or stream.
        note_opened: notes up to which generation all partitions of this shard are on the disk.
    """

    def __init__(
        self,
        is_mine: Callable[[PartitionKey], bool],
        open_partition: Callable[[PartitionKey, int], Awaitable[Partition]],
        remove_files: Callable[[PartitionKey], Awaitable[None]],
        note_opened: Callable[[int], Awaitable[None]],
    ) -> None:
        self._is_mine = is_mine
        self._open_partition = open_partition
        self._remove_files = remove_files
        self._note_opened = note_opened
        self._noted_generation = self._opened_generation = NOTHING_KNOWN
        self._is_warned_of_note = False
        self._partitions: dict[PartitionKey, Partition] = {}
        self._incarnations: dict[PartitionKey, int] = {}
        self._created_at_us: dict[PartitionKey, int] = {}
        self._damaged: dict[PartitionKey, str] = {}
        self._refused: dict[PartitionKey, Exception] = {}
        self._are_groups_followed = True
        self._following = trio.Lock()
        self._metadata: Metadata | None = None
        self._groups: dict[tuple[int, int], dict[int, int]] = {}

    def __iter__(self) -> Iterator[tuple[PartitionKey, Partition]]:
        return iter(list(self._partitions.items()))

    @property
    def damaged(self) -> dict[PartitionKey, str]:
        """The partitions that were put aside, and why."""
        return dict(self._damaged)

    def holds(self, key: PartitionKey, incarnation: int, created_at_us: int) -> bool:
        """Tell whether the partition that somebody means is the one that is here.

        One that was emptied since he looked is still the same; one that was deleted and made anew
        under the same id is not.
        """
        present = self._incarnations.get(key)
        if present is None or present == incarnation:
            return present is not None
        return incarnation < present and self._created_at_us[key] == created_at_us

    def get(self, key: PartitionKey) -> Partition:
        """Return an open partition.

        Raises:
            ServerFault: there is none, or it was put aside.
        """
        partition = self._partitions.get(key)
        if partition is None:
            reason = self._damaged.get(key)
            if reason is not None:
                raise ServerFault(StatusCode.CANNOT_READ_PARTITIONS, f"{key} is damaged: {reason}")
            error = self._refused.get(key)
            if error is not None:
                raise ServerFault(_status_of(error), f"{key} is not open yet: {error}")
            raise ServerFault(StatusCode.PARTITION_NOT_FOUND, f"{key} is not here")
        return partition

    async def follow(self, metadata: Metadata) -> None:
        """Make the partitions of this shard what the metadata say, as far as that can be done now.

        The rest is done by ``retry``.
        """
        async with self._following:
            self._metadata = metadata
            await self._follow(metadata)

    async def retry(self) -> None:
        """Try again to do what could not be done at once."""
        async with self._following:
            is_done = not self._refused and self._are_groups_followed
            if not is_done and self._metadata is not None:
                await self._follow(self._metadata)
            await self._note()

    async def _note(self) -> None:
        """Note what has been opened, if there is anything new; it costs a sync, so not at once."""
        if self._opened_generation <= self._noted_generation:
            return
        try:
            await self._note_opened(self._opened_generation)
        except StorageError as error:
            if not self._is_warned_of_note:
                LOGGER.warning("what was opened is noted later; a start knows less: %s", error)
            self._is_warned_of_note = True
        else:
            self._noted_generation = self._opened_generation
            self._is_warned_of_note = False

    async def _follow(self, metadata: Metadata) -> None:
        wanted = dict(self._wanted(metadata))
        self._created_at_us = {key: record.created_at_us for key, record in wanted.items()}
        async with trio.open_nursery() as nursery:
            limiter = trio.Semaphore(AT_ONCE_MAX)
            for key in [key for key in self._incarnations if key not in wanted]:
                nursery.start_soon(self._with, limiter, self._drop, key)
            for key, record in wanted.items():
                incarnation = record.incarnation
                if self._incarnations.get(key) != incarnation or key in self._refused:
                    self._incarnations[key] = incarnation
                    nursery.start_soon(self._with, limiter, self._renew, key, incarnation)
        if not self._refused:
            self._opened_generation = metadata.newest_generation
        await self._follow_groups(metadata)

    async def _follow_groups(self, metadata: Metadata) -> None:
        """Forget the offsets of groups that are gone, or were made anew under the same id."""
        self._are_groups_followed = True
        for stream in metadata.streams:
            for topic in stream.topics:
                groups = {group.id: group.incarnation for group in topic.groups}
                known = self._groups.get((stream.id, topic.id))
                if known == groups:
                    continue
                kept = {
                    group_id
                    for group_id, incarnation in groups.items()
                    if known is None or known.get(group_id) == incarnation
                }
                kept_everywhere = [
                    await self._keep_groups(key, partition, kept)
                    for key, partition in self
                    if key[:2] == (stream.id, topic.id)
                ]
                if all(kept_everywhere):
                    self._groups[stream.id, topic.id] = groups
                else:
                    self._are_groups_followed = False

    async def _keep_groups(self, key: PartitionKey, partition: Partition, kept: set[int]) -> bool:
        """Keep the offsets of these groups only; False if those of others are still there."""
        try:
            await partition.keep_groups(kept)
        except Exception as error:
            LOGGER.warning("offsets of deleted groups are still in %s: %s", tuple(key), error)
            # What cannot even be read gives nobody an offset, and a start looks at it anew.
            return partition.health is PartitionHealth.QUARANTINED
        return True

    def _wanted(self, metadata: Metadata) -> Iterator[tuple[PartitionKey, PartitionRecord]]:
        for stream in metadata.streams:
            for topic in stream.topics:
                for record in topic.partitions:
                    key = PartitionKey(stream.id, topic.id, record.id)
                    if self._is_mine(key):
                        yield key, record

    async def _with(
        self,
        limiter: trio.Semaphore,
        work: Callable[..., Awaitable[None]],
        *arguments: object,
    ) -> None:
        async with limiter:
            await work(*arguments)

    async def _renew(self, key: PartitionKey, incarnation: int) -> None:
        """Create, open or purge one partition."""
        partition = self._partitions.get(key)
        try:
            if partition is None:
                self._damaged.pop(key, None)
                self._partitions[key] = await self._open_partition(key, incarnation)
            else:
                await partition.purge(incarnation=incarnation)
        except CorruptPartition as damage:
            self._refused.pop(key, None)
            self._damaged[key] = str(damage)
            LOGGER.error("partition %s is put aside: %s", tuple(key), damage)
        except Exception as error:
            if partition is not None and partition.health is not PartitionHealth.READ_ONLY:
                # Nobody knows how far the purge has come. Opened anew, its files are of a life
                # that is over.
                await self._close(key)
            if key not in self._refused:
                LOGGER.error("partition %s is not ready, and tried again: %s", tuple(key), error)
            self._refused[key] = error
        else:
            if self._refused.pop(key, None) is not None:
                LOGGER.warning("partition %s is ready now", tuple(key))

    async def _drop(self, key: PartitionKey) -> None:
        del self._incarnations[key]
        self._damaged.pop(key, None)
        self._refused.pop(key, None)
        await self._close(key)
        try:
            await self._remove_files(key)
        except Exception as error:
            LOGGER.warning(
                "files of a deleted partition are still there; the next start removes them: %s",
                error,
            )

    async def _close(self, key: PartitionKey) -> None:
        """Let go of a partition whose messages nobody wants any more."""
        partition = self._partitions.pop(key, None)
        if partition is not None:
            try:
                await partition.aclose()
            except Exception as error:
                LOGGER.warning("partition %s was not closed in order: %s", tuple(key), error)

    async def aclose(self) -> dict[PartitionKey, Unsaved]:
        """Save and close all partitions; return, and log, what could not be saved."""
        unsaved: dict[PartitionKey, Unsaved] = {}

        limiter = trio.Semaphore(AT_ONCE_MAX)

        async def close(key: PartitionKey, partition: Partition) -> None:
            missing = await partition.aclose()
            if missing is not None:
                unsaved[key] = missing

        await self._note()
        async with trio.open_nursery() as nursery:
            for key, partition in self._partitions.items():
                nursery.start_soon(self._with, limiter, close, key, partition)
        self._partitions.clear()
        for key, missing in sorted(unsaved.items()):
            for line in missing.lines:
                LOGGER.error("stream %d, topic %d, partition %d: %s", *key, line)
        return unsaved


def _status_of(error: Exception) -> StatusCode:
    if isinstance(error, DiskFull):
        return StatusCode.CANNOT_WRITE_TO_FILE
    return StatusCode.CANNOT_READ_PARTITIONS

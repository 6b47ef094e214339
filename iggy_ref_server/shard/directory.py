"""The partitions that live on this shard.

Opens them when the shard starts and follows the metadata afterwards: what was created is made,
what was deleted is removed, what was purged starts anew. A partition whose files are damaged
beyond repair is put aside, and the others are served; one whose files the disk refuses is tried
again from time to time.

Owns the table of open partitions. Which shard owns what is the placement's affair.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

import trio

from iggy_protocol import StatusCode
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.partitions import CorruptPartition, Partition
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
    """

    def __init__(
        self,
        is_mine: Callable[[PartitionKey], bool],
        open_partition: Callable[[PartitionKey, int], Awaitable[Partition]],
        remove_files: Callable[[PartitionKey], Awaitable[None]],
    ) -> None:
        self._is_mine = is_mine
        self._open_partition = open_partition
        self._remove_files = remove_files
        self._partitions: dict[PartitionKey, Partition] = {}
        self._incarnations: dict[PartitionKey, int] = {}
        self._created_at_us: dict[PartitionKey, int] = {}
        self._damaged: dict[PartitionKey, str] = {}
        self._refused: dict[PartitionKey, StorageError] = {}
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
        """Make the partitions of this shard what the metadata say.

        Raises:
            ServerFault: a partition could not be purged.
        """
        async with self._following:
            self._metadata = metadata
            await self._follow(metadata)

    async def retry(self) -> None:
        """Try again to open the partitions whose files the disk refused."""
        async with self._following:
            if self._refused and self._metadata is not None:
                await self._follow(self._metadata)

    async def _follow(self, metadata: Metadata) -> None:
        wanted = dict(self._wanted(metadata))
        self._created_at_us = {key: record.created_at_us for key, record in wanted.items()}
        faults: list[ServerFault] = []
        async with trio.open_nursery() as nursery:
            limiter = trio.Semaphore(AT_ONCE_MAX)
            for key in [key for key in self._incarnations if key not in wanted]:
                nursery.start_soon(self._with, limiter, self._drop, key)
            for key, record in wanted.items():
                incarnation = record.incarnation
                if self._incarnations.get(key) != incarnation or key in self._refused:
                    self._incarnations[key] = incarnation
                    nursery.start_soon(self._with, limiter, self._renew, key, incarnation, faults)
        await self._follow_groups(metadata)
        if faults:
            raise ServerFault(faults[0].status, faults[0].message)

    async def _follow_groups(self, metadata: Metadata) -> None:
        """Forget the offsets of groups that are gone, or were made anew under the same id."""
        for stream in metadata.streams:
            for topic in stream.topics:
                groups = {group.id: group.incarnation for group in topic.groups}
                known = self._groups.get((stream.id, topic.id))
                if known == groups:
                    continue
                self._groups[stream.id, topic.id] = groups
                kept = {
                    group_id
                    for group_id, incarnation in groups.items()
                    if known is None or known.get(group_id) == incarnation
                }
                for key, partition in self:
                    if key[:2] == (stream.id, topic.id):
                        await self._keep_groups(key, partition, kept)

    async def _keep_groups(self, key: PartitionKey, partition: Partition, kept: set[int]) -> None:
        try:
            await partition.keep_groups(kept)
        except ServerFault as fault:
            LOGGER.warning("offsets of deleted groups are still in %s: %s", tuple(key), fault)

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

    async def _renew(self, key: PartitionKey, incarnation: int, faults: list[ServerFault]) -> None:
        """Create, open or purge one partition."""
        partition = self._partitions.get(key)
        if partition is not None:
            try:
                await partition.purge(incarnation=incarnation)
            except ServerFault as fault:
                faults.append(fault)
            return
        self._damaged.pop(key, None)
        try:
            self._partitions[key] = await self._open_partition(key, incarnation)
        except CorruptPartition as damage:
            self._refused.pop(key, None)
            self._damaged[key] = str(damage)
            LOGGER.error("partition %s is put aside: %s", tuple(key), damage)
        except StorageError as error:
            if key not in self._refused:
                LOGGER.error("partition %s is opened later: %s", tuple(key), error)
            self._refused[key] = error
        else:
            if self._refused.pop(key, None) is not None:
                LOGGER.warning("partition %s is open now", tuple(key))

    async def _drop(self, key: PartitionKey) -> None:
        del self._incarnations[key]
        self._damaged.pop(key, None)
        self._refused.pop(key, None)
        partition = self._partitions.pop(key, None)
        if partition is not None:
            await partition.aclose()
        try:
            await self._remove_files(key)
        except StorageError as error:
            # They carry the number of a life that is over, so nobody will ever see them.
            LOGGER.warning("files of a deleted partition are still there: %s", error)

    async def aclose(self) -> dict[PartitionKey, Unsaved]:
        """Save and close all partitions; return, and log, what could not be saved."""
        unsaved: dict[PartitionKey, Unsaved] = {}

        async def close(key: PartitionKey, partition: Partition) -> None:
            missing = await partition.aclose()
            if missing is not None:
                unsaved[key] = missing

        async with trio.open_nursery() as nursery:
            for key, partition in self._partitions.items():
                nursery.start_soon(close, key, partition)
        self._partitions.clear()
        for key, missing in sorted(unsaved.items()):
            for line in missing.lines:
                LOGGER.error("stream %d, topic %d, partition %d: %s", *key, line)
        return unsaved


def _status_of(error: StorageError) -> StatusCode:
    if isinstance(error, DiskFull):
        return StatusCode.CANNOT_WRITE_TO_FILE
    return StatusCode.CANNOT_READ_PARTITIONS

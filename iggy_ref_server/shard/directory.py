"""The partitions that live on this shard.

Opens them when the shard starts and follows the metadata afterwards: what was created is made,
what was deleted is removed, what was purged starts anew. A partition whose files are damaged
beyond repair is put aside, and the others are served.

Owns the table of open partitions. Which shard owns what is the placement's affair.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

import trio

from iggy_protocol import StatusCode
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.partitions import CorruptPartition, Partition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from iggy_ref_server.metadata.state import Metadata

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
        self._damaged: dict[PartitionKey, str] = {}
        self._groups: dict[tuple[int, int], dict[int, int]] = {}

    def __iter__(self) -> Iterator[tuple[PartitionKey, Partition]]:
        return iter(list(self._partitions.items()))

    @property
    def damaged(self) -> dict[PartitionKey, str]:
        """The partitions that were put aside, and why."""
        return dict(self._damaged)

    def incarnation(self, key: PartitionKey) -> int | None:
        """Return which life of a partition is here."""
        return self._incarnations.get(key)

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
            raise ServerFault(StatusCode.PARTITION_NOT_FOUND, f"{key} is not here")
        return partition

    async def follow(self, metadata: Metadata) -> None:
        """Make the partitions of this shard what the metadata say."""
        wanted = dict(self._wanted(metadata))
        async with trio.open_nursery() as nursery:
            limiter = trio.Semaphore(AT_ONCE_MAX)
            for key in [key for key in self._incarnations if key not in wanted]:
                nursery.start_soon(self._with, limiter, self._drop, key)
            for key, incarnation in wanted.items():
                if self._incarnations.get(key) != incarnation:
                    self._incarnations[key] = incarnation
                    nursery.start_soon(self._with, limiter, self._renew, key, incarnation)
        await self._follow_groups(metadata)

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

    def _wanted(self, metadata: Metadata) -> Iterator[tuple[PartitionKey, int]]:
        for stream in metadata.streams:
            for topic in stream.topics:
                for record in topic.partitions:
                    key = PartitionKey(stream.id, topic.id, record.id)
                    if self._is_mine(key):
                        yield key, record.incarnation

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
        if partition is not None:
            await partition.purge(incarnation=incarnation)
            return
        try:
            self._partitions[key] = await self._open_partition(key, incarnation)
            self._damaged.pop(key, None)
        except CorruptPartition as damage:
            self._damaged[key] = str(damage)
            LOGGER.error("partition %s is put aside: %s", tuple(key), damage)

    async def _drop(self, key: PartitionKey) -> None:
        del self._incarnations[key]
        self._damaged.pop(key, None)
        partition = self._partitions.pop(key, None)
        if partition is not None:
            await partition.aclose()
        await self._remove_files(key)

    async def aclose(self) -> None:
        """Flush and close all partitions."""
        async with trio.open_nursery() as nursery:
            for partition in self._partitions.values():
                nursery.start_soon(partition.aclose)
        self._partitions.clear()

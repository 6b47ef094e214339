"""Deletes old segments when free disk space falls below a limit; off by default.

The oldest sealed segment of the shard is deleted, whatever its topic, until enough space is free:
first segments that every consumer and group has read, then unread ones. Each deletion is logged
with its offsets. Another shard may still have segments that were read, so a shard with only unread
segments waits a few checks. Each shard decides alone, so all shards together may delete one segment
each too many.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from iggy_ref_server.faults import ServerFault
from iggy_ref_server.partitions import Partition
from iggy_ref_server.segments.segment import Segment
from iggy_ref_server.shard.directory import PartitionKey

if TYPE_CHECKING:
    from iggy_ref_server.shard.directory import PartitionDirectory
    from iggy_ref_server.storage.interface import Storage

__all__ = ["FreeSpace"]

LOGGER = logging.getLogger(__name__)

# One check deletes no more than this, so that other periodic tasks can run.
REMOVALS_MAX = 64
# Unread segments are deleted after so many checks in a row without more free space.
PATIENCE_LOOKS = 3


class _Choice(NamedTuple):
    """A segment that may be deleted."""

    key: PartitionKey
    partition: Partition
    segment: Segment
    is_unread: bool


class FreeSpace:
    """Keeps some space free.

    Args:
        storage: the disk.
        directory: the partitions of the shard.
        bytes_min: how many bytes to keep free; 0 is off.
    """

    def __init__(self, storage: Storage, directory: PartitionDirectory, bytes_min: int) -> None:
        self._storage = storage
        self._directory = directory
        self._bytes_min = bytes_min
        self._is_low = False
        self._is_stuck = False
        self._looks_count = 0
        self._last_free_bytes = 0

    @property
    def is_wanted(self) -> bool:
        """Whether a limit is configured."""
        return self._bytes_min > 0

    async def look(self) -> None:
        """Delete segments if too little space is free.

        Raises:
            StorageError: the free space cannot be read.
        """
        free_bytes, _ = await self._storage.free_bytes()
        if free_bytes >= self._bytes_min:
            if self._is_low:
                LOGGER.warning("enough disk space is free again: %d bytes", free_bytes)
            self._is_low = self._is_stuck = False
            self._looks_count = 0
            return
        self._is_low = True
        self._looks_count = 0 if free_bytes > self._last_free_bytes else self._looks_count + 1
        self._last_free_bytes = free_bytes
        # The file system may free the blocks later, so the bytes are counted here.
        for _ in range(REMOVALS_MAX):
            if free_bytes >= self._bytes_min:
                return
            removed_bytes = await self._remove_one(free_bytes)
            if not removed_bytes:
                return
            free_bytes += removed_bytes

    async def _remove_one(self, free_bytes: int) -> int:
        """Delete the oldest segment that may be deleted; return its size, or 0."""
        choice = self._choose(is_unread=False)
        if choice is None:
            if self._looks_count < PATIENCE_LOOKS:
                return 0
            choice = self._choose(is_unread=True)
        if choice is None:
            if not self._is_stuck:
                LOGGER.error(
                    "only %d of %d bytes are free, and no segment can be deleted; delete or purge "
                    "topics, or add disk space",
                    free_bytes,
                    self._bytes_min,
                )
            self._is_stuck = True
            return 0
        segment = choice.segment
        try:
            if not await choice.partition.removal.reclaim(segment):
                return 0
        except ServerFault as fault:
            LOGGER.error("a segment cannot be deleted to free disk space: %s", fault)
            return 0
        LOGGER.warning(
            "only %d of %d bytes are free: stream %d, topic %d, partition %d: deleted the messages "
            "%d to %d (%d bytes)%s",
            free_bytes,
            self._bytes_min,
            *choice.key,
            segment.start_offset,
            segment.next_offset - 1,
            segment.size_bytes,
            ", which some consumer or group had NOT read" if choice.is_unread else "",
        )
        return segment.size_bytes

    def _choose(self, *, is_unread: bool) -> _Choice | None:
        found = [
            _Choice(key, partition, segment, is_unread)
            for key, partition in self._directory
            if (segment := partition.removal.reclaimable(is_unread_allowed=is_unread)) is not None
        ]
        return min(found, key=lambda choice: choice.segment.last_timestamp_us, default=None)

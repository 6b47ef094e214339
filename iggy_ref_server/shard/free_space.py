"""What to do when the disk is almost full: old messages go so that new ones can be stored.

The oldest sealed segment of the shard goes, whatever its topic, again and again until enough is
free; first those that every consumer and group has read, then, if there are none, those that
somebody has not read. Every one is told in the log with its offsets. It is off by default.
Another shard may have what this one lacks, so a shard that has only unread segments waits whether
somebody else makes space.

Owns the choice among the partitions of a shard. Each shard looks for itself, so together they may
remove one segment each more than they had to.
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

# One look removes no more than this, so that other chores have their turn.
REMOVALS_MAX = 64
# So many looks in a row nobody made space before unread messages go.
PATIENCE_LOOKS = 3


class _Choice(NamedTuple):
    """A segment that could go."""

    key: PartitionKey
    partition: Partition
    segment: Segment
    is_unread: bool


class FreeSpace:
    """Keeps some space free.

    Args:
        storage: knows how much there is.
        directory: the partitions of the shard.
        bytes_min: how much shall be free; 0 for no such thing.
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
        """Whether there is anything to do."""
        return self._bytes_min > 0

    async def look(self) -> None:
        """Make space if there is too little.

        Raises:
            StorageError: it is unknown how much there is.
        """
        free_bytes, _ = await self._storage.free_bytes()
        if free_bytes >= self._bytes_min:
            if self._is_low:
                LOGGER.warning("enough space is free again: %d bytes", free_bytes)
            self._is_low = self._is_stuck = False
            self._looks_count = 0
            return
        self._is_low = True
        self._looks_count = 0 if free_bytes > self._last_free_bytes else self._looks_count + 1
        self._last_free_bytes = free_bytes
        # What was removed may be free a little later, so it is counted here.
        for _ in range(REMOVALS_MAX):
            if free_bytes >= self._bytes_min:
                return
            removed_bytes = await self._remove_one(free_bytes)
            if not removed_bytes:
                return
            free_bytes += removed_bytes

    async def _remove_one(self, free_bytes: int) -> int:
        """Remove the oldest segment that may go; return its size, 0 when nothing went."""
        choice = self._choose(is_unread=False)
        if choice is None:
            if self._looks_count < PATIENCE_LOOKS:
                return 0
            choice = self._choose(is_unread=True)
        if choice is None:
            if not self._is_stuck:
                LOGGER.error(
                    "only %d of %d bytes are free and no segment is left that could be deleted; "
                    "delete or purge topics, or add space",
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
            LOGGER.error("a segment cannot be deleted to make space: %s", fault)
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
            ", which a consumer or group had NOT read" if choice.is_unread else "",
        )
        return segment.size_bytes

    def _choose(self, *, is_unread: bool) -> _Choice | None:
        found = [
            _Choice(key, partition, segment, is_unread)
            for key, partition in self._directory
            if (segment := partition.removal.reclaimable(is_unread_allowed=is_unread)) is not None
        ]
        return min(found, key=lambda choice: choice.segment.last_timestamp_us, default=None)

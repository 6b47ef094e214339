"""Writes index files behind their logs: at once under ``FSYNC``, otherwise in steps.

Entries that are in the file may leave memory. If a write fails, the entries stay in memory and are
written later; nothing is lost, because an index can be rebuilt from its log.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from iggy_ref_server.partitions.settings import AckLevel, IndexCache
from iggy_ref_server.storage.interface import StorageError

if TYPE_CHECKING:
    from iggy_ref_server.partitions.segment_list import SegmentList
    from iggy_ref_server.partitions.settings import PartitionSettings
    from iggy_ref_server.segments.segment import OpenSegments, Segment

__all__ = ["ActiveProblems", "IndexWriter"]

LOGGER = logging.getLogger(__name__)

# Index entries of the open segment that stay in memory: 4 MiB, the newest quarter million.
CACHED_ENTRIES_MAX = 1 << 18

INDEX_WRITE_DELAYED = "an index is not written, its entries stay in memory until a later write"


class ActiveProblems:
    """Logs a repeated problem once: a full disk is logged once, not for each write."""

    __slots__ = ("_present",)

    def __init__(self) -> None:
        self._present: set[str] = set()

    def begin(self, problem: str, error: StorageError) -> None:
        """Log a trouble, unless it is there already."""
        if problem not in self._present:
            self._present.add(problem)
            LOGGER.warning("%s: %s", problem, error)

    def end(self, problem: str) -> bool:
        """Note that a trouble is over; tell whether there was one."""
        if problem not in self._present:
            return False
        self._present.remove(problem)
        return True


class IndexWriter:
    """Writes the index entries of a partition's segments.

    Args:
        files: opens the files of sealed segments.
        settings: of the partition.
        segment_list: the segments.
        problems: told of a disk that takes no entries.
    """

    def __init__(
        self,
        files: OpenSegments,
        settings: PartitionSettings,
        segment_list: SegmentList,
        problems: ActiveProblems,
    ) -> None:
        self._files = files
        self._settings = settings
        self._segment_list = segment_list
        self._problems = problems
        self._is_always_due = settings.ack is AckLevel.FSYNC

    def save_nowait(self, segment: Segment) -> bool:
        """Write the entries if they lag too far behind; tell whether that is settled."""
        lag = segment.written_count - segment.index.written_count
        lag_bytes = segment.written_bytes - segment.indexed_bytes
        is_far = lag >= self._settings.messages_required_to_save
        is_due = is_far or lag_bytes >= self._settings.bytes_required_to_save or self._is_always_due
        if not (lag and is_due):
            return True
        try:
            if not segment.index.save_nowait(segment.written_count):
                return False
        except StorageError as error:
            self.fail(error)
            return True
        self.note(segment)
        return True

    async def save(self, segment: Segment) -> None:
        """Write all entries.

        Raises:
            StorageError: some are in memory only.
        """
        await segment.index.save(segment.written_count)
        self.note(segment)

    async def save_or_warn(self, segment: Segment) -> None:
        """Write all entries, or log that they are in memory only."""
        try:
            await self._files.open(segment)
            await self.save(segment)
        except StorageError as error:
            self.fail(error)

    def fail(self, error: StorageError) -> None:
        """Log that entries are in memory only."""
        self._problems.begin(INDEX_WRITE_DELAYED, error)

    def note(self, segment: Segment) -> None:
        """Let go of entries in memory that are in the file now."""
        segment.indexed_bytes = segment.written_bytes
        self._problems.end(INDEX_WRITE_DELAYED)
        cache = self._settings.index_cache
        if cache is not IndexCache.ALL:
            is_kept = cache is IndexCache.OPEN_SEGMENT and segment is self._segment_list.last
            segment.index.forget(keep=CACHED_ENTRIES_MAX if is_kept else 0)

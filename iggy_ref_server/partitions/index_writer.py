"""Writes index files behind their logs: at once under ``FSYNC``, otherwise in steps.

Entries that are in the file may leave memory. If a write fails, the entries stay in memory and are
written later; nothing is lost, because an index can be rebuilt from its log.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from iggy_ref_server.partitions.settings import AckLevel, IndexCache, PartitionSettings
from iggy_ref_server.partitions.steps import NOT_READY, Need, Steps
from iggy_ref_server.storage.interface import DoneCallback, StorageError

if TYPE_CHECKING:
    from iggy_ref_server.partitions.segment_list import SegmentList
    from iggy_ref_server.segments.segment import OpenSegments, Segment


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


class SaveIndex(Need):
    """All entries of a segment's written messages have to reach the index file."""

    __slots__ = ("_files", "_segment")

    is_shielded = True

    def __init__(self, files: OpenSegments, segment: Segment) -> None:
        self._files = files
        self._segment = segment

    def try_now(self) -> Any:
        """Write into the page cache, if the file is open."""
        is_saved = self._segment.index.save_nowait(self._segment.written_count)
        return None if is_saved else NOT_READY

    def begin(self, done: DoneCallback) -> bool:
        """Begin to write, if the file is open."""
        return self._segment.index.begin_save(self._segment.written_count, done)

    async def perform(self) -> None:
        """Open the file, which others may have closed meanwhile, and write."""
        await self._files.open(self._segment)
        await self._segment.index.save(self._segment.written_count)


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

    def is_due(self, segment: Segment) -> bool:
        """Tell whether the entries in the file lag too far behind."""
        lag = segment.written_count - segment.index.written_count
        return lag > 0 and (
            self._is_always_due
            or lag >= self._settings.messages_required_to_save
            or segment.written_bytes - segment.indexed_bytes
            >= self._settings.bytes_required_to_save
        )

    def save(self, segment: Segment) -> Steps[None]:
        """Write all entries; the lock of the files is held.

        Raises:
            StorageError: some are in memory only.
        """
        yield SaveIndex(self._files, segment)
        self._forget_saved(segment)

    def save_or_warn(self, segment: Segment) -> Steps[None]:
        """Write all entries, or log that they are in memory only."""
        try:
            yield from self.save(segment)
        except StorageError as error:
            self._problems.begin(INDEX_WRITE_DELAYED, error)

    def _forget_saved(self, segment: Segment) -> None:
        """Let go of entries in memory that are in the file now."""
        segment.indexed_bytes = segment.written_bytes
        self._problems.end(INDEX_WRITE_DELAYED)
        cache = self._settings.index_cache
        if cache is not IndexCache.ALL:
            is_kept = cache is IndexCache.OPEN_SEGMENT and segment is self._segment_list.last
            segment.index.forget(keep=CACHED_ENTRIES_MAX if is_kept else 0)

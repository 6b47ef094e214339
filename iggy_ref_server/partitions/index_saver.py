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
    from iggy_ref_server.partitions.chain import SegmentChain
    from iggy_ref_server.partitions.settings import PartitionSettings
    from iggy_ref_server.segments.open_files import OpenFiles
    from iggy_ref_server.segments.segment import Segment

__all__ = ["IndexSaver", "Troubles"]

_logger = logging.getLogger(__name__)

# Index entries of the open segment that stay in memory: 4 MiB, the newest quarter million.
WINDOW_ENTRIES = 1 << 18

NOT_INDEXED = "an index is not written, its entries stay in memory until a later write"


class Troubles:
    """Logs a repeated problem once: a full disk is logged once, not for each write."""

    __slots__ = ("_present",)

    def __init__(self) -> None:
        self._present: set[str] = set()

    def begin(self, trouble: str, error: StorageError) -> None:
        """Log a trouble, unless it is there already."""
        if trouble not in self._present:
            self._present.add(trouble)
            _logger.warning("%s: %s", trouble, error)

    def end(self, trouble: str) -> bool:
        """Note that a trouble is over; tell whether there was one."""
        if trouble not in self._present:
            return False
        self._present.remove(trouble)
        return True


class IndexSaver:
    """Writes the index entries of a partition's segments.

    Args:
        files: opens the files of sealed segments.
        settings: of the partition.
        chain: the segments.
        troubles: told of a disk that takes no entries.
    """

    def __init__(
        self,
        files: OpenFiles,
        settings: PartitionSettings,
        chain: SegmentChain,
        troubles: Troubles,
    ) -> None:
        self._files = files
        self._settings = settings
        self._chain = chain
        self._troubles = troubles
        self._is_always_due = settings.ack is AckLevel.FSYNC

    def save_now(self, segment: Segment) -> bool:
        """Write the entries if they lag too far behind; tell whether that is settled."""
        lag = segment.written_count - segment.index.written_count
        lag_bytes = segment.written_bytes - segment.indexed_bytes
        is_far = lag >= self._settings.messages_required_to_save
        is_due = is_far or lag_bytes >= self._settings.bytes_required_to_save or self._is_always_due
        if not (lag and is_due):
            return True
        try:
            if not segment.index.save_now(segment.written_count):
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
        self._troubles.begin(NOT_INDEXED, error)

    def note(self, segment: Segment) -> None:
        """Let go of entries in memory that are in the file now."""
        segment.indexed_bytes = segment.written_bytes
        self._troubles.end(NOT_INDEXED)
        cache = self._settings.index_cache
        if cache is not IndexCache.ALL:
            is_kept = cache is IndexCache.OPEN_SEGMENT and segment is self._chain.last
            segment.index.forget(keep=WINDOW_ENTRIES if is_kept else 0)

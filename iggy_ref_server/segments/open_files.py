"""Which segments of a partition are open: the active one and the most recently used others.

A shard may have thousands of partitions with thousands of segments, and a process has a limited
number of descriptors. All files of a partition, those of the active segment included, are closed
when other partitions need descriptors (``OpenBudget``). A closed file stays readable for a reply
that still refers to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_ref_server.segments.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Hashable

    from iggy_ref_server.storage.interface import Storage

__all__ = ["SEALED_OPEN_MAX", "OpenFiles"]

# Consumers of one partition read at few places at a time.
SEALED_OPEN_MAX = 8
# A log and its index.
DESCRIPTORS_EACH = 2


class OpenFiles:
    """The open segments of one partition.

    Args:
        storage: where they lie.
    """

    __slots__ = ("_budget", "_sealed", "_storage")

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._budget = storage.open_files
        self._sealed: dict[Segment, None] = {}  # least recently used first

    async def open(self, segment: Segment) -> None:
        """Open the files of a segment, if they are not; nothing is awaited behind that.

        Raises:
            StorageError: they cannot be opened; with ENOENT when the segment was removed.
        """
        while not segment.is_open:  # others may close one file while the other is being opened
            async with self._budget.opening:
                await segment.open(self._storage)
        self.keep(segment)

    def keep(self, segment: Segment) -> None:
        """Count a segment that was opened."""
        if segment.is_open:
            self._budget.keep(self, segment, DESCRIPTORS_EACH)
            self._limit_sealed(segment)

    def note(self, segment: Segment) -> None:
        """Count a segment as used last."""
        segment.is_used = True
        if segment.is_sealed and segment.is_open:
            self._limit_sealed(segment)

    def _limit_sealed(self, segment: Segment) -> None:
        if not segment.is_sealed:
            return
        self._sealed.pop(segment, None)
        self._sealed[segment] = None
        while len(self._sealed) > SEALED_OPEN_MAX:
            self.close(next(iter(self._sealed)))

    def close(self, *segments: Segment) -> None:
        """Let go of files; index entries that are not written stay in memory."""
        for segment in segments:
            self._budget.forget(self, segment)
            self.let_go(segment)

    # ---- what the budget asks

    def is_idle(self, item: Hashable) -> bool:
        """Tell whether a segment was neither written nor read since the last time."""
        assert isinstance(item, Segment)
        is_idle = not item.is_used and item.noted_bytes == item.written_bytes
        item.is_used, item.noted_bytes = False, item.written_bytes
        return is_idle

    def let_go(self, item: Hashable) -> None:
        """Keep a segment open no longer."""
        assert isinstance(item, Segment)
        self._sealed.pop(item, None)
        item.close()

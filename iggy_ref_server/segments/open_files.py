"""Which sealed segments are open: a few, those that were used last.

A partition may have thousands of segments, and a process only so many descriptors. The segment
that is written to is always open and not counted here.

Owns the choice. A file that is let go of here stays open while somebody else holds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iggy_ref_server.segments.segment import Segment
    from iggy_ref_server.storage.interface import Storage

__all__ = ["SEALED_OPEN_MAX", "OpenFiles"]

# Consumers of one partition read at few places at a time.
SEALED_OPEN_MAX = 8


class OpenFiles:
    """The open sealed segments of one partition.

    Args:
        storage: where they lie.
    """

    __slots__ = ("_storage", "_used")

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._used: dict[Segment, None] = {}  # least recently used first

    async def open(self, segment: Segment) -> None:
        """Open the files of a segment, if they are not.

        Raises:
            StorageError: they cannot be opened; with ENOENT when the segment was removed.
        """
        while not segment.is_open:  # others may close one file while the other is being opened
            await segment.open(self._storage)
        self.note(segment)

    def note(self, segment: Segment) -> None:
        """Count a segment as used last, if it is sealed and open."""
        if not (segment.is_sealed and segment.is_open):
            return
        self._used.pop(segment, None)
        self._used[segment] = None
        while len(self._used) > SEALED_OPEN_MAX:
            self.close(next(iter(self._used)))

    def close(self, segment: Segment) -> None:
        """Let go of a segment's files, unless its index is still to be written."""
        self._used.pop(segment, None)
        if segment.index.written_count == segment.index.count:
            segment.close()

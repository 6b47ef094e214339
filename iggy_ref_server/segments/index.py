"""The index of a segment: 16 bytes for each message, part of it in memory.

     0               4              8               16
    +---------------+--------------+---------------+
    | offset - start| end position | timestamp, us |
    | u32           | u32          | u64           |
    +---------------+--------------+---------------+

Entry *k* belongs to message *k* of the segment, so a lookup by offset is arithmetic. The newest
entries are in memory, from ``base`` on; older ones are in the file. Entries that are only in memory
are written later. The log is the truth: an index can always be rebuilt from it.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from iggy_ref_server.segments.errors import IndexDamaged

if TYPE_CHECKING:
    from iggy_protocol import Buffer
    from iggy_ref_server.storage.interface import DoneCallback, File, StorageError


ENTRY = Struct("<IIQ")
ENTRY_BYTES = ENTRY.size

# A message without payload and headers. A power loss may leave zeros where entries were.
MESSAGE_BYTES_MIN = 64

# One page of the file: neighbours are asked for next, by a search as by the next poll.
BLOCK_ENTRIES = 4096 // ENTRY_BYTES


class IndexEntry(NamedTuple):
    """One message of a segment.

    Attributes:
        relative_offset: its offset, counted from the start of the segment.
        end_position: byte of the log at which it ends.
        timestamp_us: when the server took it.
    """

    relative_offset: int
    end_position: int
    timestamp_us: int


class SegmentIndex:
    """The entries of one segment.

    Args:
        start_offset: which segment it is, for errors.
        count: how many entries the file holds already.

    Attributes:
        file: where the entries are kept; None while it is not open.
        count: entries in all.
        written_count: entries in the file.
    """

    __slots__ = (
        "_base",
        "_block",
        "_block_first",
        "_start_offset",
        "_window",
        "count",
        "file",
        "written_count",
    )

    def __init__(self, start_offset: int, count: int = 0) -> None:
        self.file: File | None = None
        self.count = count
        self.written_count = count
        self._start_offset = start_offset
        self._base = count
        self._window = bytearray()
        self._block = b""
        self._block_first = 0

    @property
    def memory_bytes(self) -> int:
        """How much of it is held in memory."""
        return len(self._window)

    def extend(self, entries: Buffer) -> None:
        """Add entries at the end, in memory."""
        self._window += entries
        self.count = self._base + len(self._window) // ENTRY_BYTES

    def entry_nowait(self, ordinal: int) -> IndexEntry | None:
        """Look up an entry without waiting; None when a disk would have to be asked.

        Raises:
            IndexDamaged: the file holds something else at this place.
        """
        if ordinal >= self._base:
            return self._unpack(self._window, ordinal, self._base)
        if not self._has_block(ordinal):
            if self.file is None:
                return None
            first, size = self._block_around(ordinal)
            block = self.file.read_nowait(size, first * ENTRY_BYTES)
            if block is None:
                return None
            self._block, self._block_first = block, first
        return self._unpack(self._block, ordinal, self._block_first)

    async def entry(self, ordinal: int) -> IndexEntry:
        """Look up an entry, from the disk if need be; the file is open.

        Raises:
            IndexDamaged: the file holds something else at this place, or ends before it.
            StorageError: the file cannot be read.
        """
        if ordinal < self._base and not self._has_block(ordinal):
            assert self.file is not None, "the index is not open"
            first, size = self._block_around(ordinal)
            block = await self.file.read(size, first * ENTRY_BYTES)
            self._block, self._block_first = block, first
            return self._unpack(block, ordinal, first)
        entry = self.entry_nowait(ordinal)
        assert entry is not None
        return entry

    def save_nowait(self, until: int) -> bool:
        """Write the entries before an ordinal without waiting; False when ``save`` must be awaited.

        Raises:
            StorageError: the write failed; the entries stay in memory.
        """
        if until <= self.written_count:
            return True
        if self.file is None:
            return False
        start, end = self._place(self.written_count), self._place(until)
        # The view must be gone before anything is added, even when the write fails.
        with memoryview(self._window) as window, window[start:end] as entries:
            is_written = self.file.write_nowait([entries], self.written_count * ENTRY_BYTES)
        if is_written:
            self.written_count = until
        return is_written

    def begin_save(self, until: int, done: DoneCallback) -> bool:
        """Begin to write the entries before an ordinal to the file, if that can be begun.

        Args:
            until: behind the last entry to write.
            done: called at the end, with None or with what went wrong.

        Raises:
            StorageError: the write failed at once; the entries stay in memory.
        """
        if self.file is None:
            return False
        entries = bytes(self._window[self._place(self.written_count) : self._place(until)])

        def ended(error: StorageError | None) -> None:
            if error is None:
                self.written_count = max(self.written_count, until)
            done(error)

        return self.file.begin_write([entries], self.written_count * ENTRY_BYTES, ended)

    async def save(self, until: int) -> None:
        """Write the entries before an ordinal to the file, which is open.

        Raises:
            StorageError: the write failed; the entries stay in memory.
        """
        if until <= self.written_count:
            return
        assert self.file is not None, "the index is not open"
        entries = bytes(self._window[self._place(self.written_count) : self._place(until)])
        await self.file.write([entries], self.written_count * ENTRY_BYTES)
        self.written_count = until

    def forget(self, *, keep: int) -> None:
        """Drop the oldest entries in memory that are in the file too.

        Args:
            keep: how many entries to hold in memory all the same.
        """
        excess = min(self.written_count, self.count - keep) - self._base
        if excess > 0:
            del self._window[: excess * ENTRY_BYTES]
            self._base += excess

    async def load(self) -> None:
        """Take all entries into memory; the file is open.

        Raises:
            StorageError: the file cannot be read.
        """
        if not self._base:
            return
        assert self.file is not None, "the index is not open"
        missing = self._base
        entries = await self.file.read(missing * ENTRY_BYTES, 0)
        if self._base == missing and len(entries) == missing * ENTRY_BYTES:
            self._window[:0] = entries
            self._base = 0

    def reset(self) -> None:
        """Drop what was read from the file, after it was rebuilt."""
        self._block = b""
        self.forget(keep=0)

    def _unpack(self, entries: Buffer, ordinal: int, first: int) -> IndexEntry:
        """Read an entry from a run of them, and check that it is the one looked for."""
        at = (ordinal - first) * ENTRY_BYTES
        if at + ENTRY_BYTES > len(entries):
            raise IndexDamaged(self._start_offset, f"entry {ordinal} is missing")
        entry = IndexEntry._make(ENTRY.unpack_from(entries, at))
        least = (ordinal + 1) * MESSAGE_BYTES_MIN
        if entry.relative_offset != ordinal or entry.end_position < least:
            raise IndexDamaged(self._start_offset, f"entry {ordinal} is not plausible: {entry}")
        return entry

    def _has_block(self, ordinal: int) -> bool:
        at = (ordinal - self._block_first) * ENTRY_BYTES
        return 0 <= at <= len(self._block) - ENTRY_BYTES

    def _block_around(self, ordinal: int) -> tuple[int, int]:
        """Choose what to read: a page, but nothing that a failed write may have left behind."""
        first = ordinal - ordinal % BLOCK_ENTRIES
        return first, min(BLOCK_ENTRIES, self.written_count - first) * ENTRY_BYTES

    def _place(self, ordinal: int) -> int:
        assert ordinal >= self._base
        return (ordinal - self._base) * ENTRY_BYTES

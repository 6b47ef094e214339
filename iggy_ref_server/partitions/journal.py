"""The journal: a queue of writes whose messages are stamped but not in their file yet.

Each write goes to one segment, at one position, in one piece. The last write is open: batches join
it until the writer takes it or it is large enough. Under acknowledgement from memory its messages
are published, and polls read them from here until the write is done.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from iggy_protocol import Buffer, allocate
from iggy_ref_server.completion import Completion

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iggy_ref_server.segments.segment import Segment


# A commit group: batches that are written and acknowledged together.


class CommitGroup(Completion):
    """Everything that is written together, and acknowledged together.

    Attributes:
        is_done: whether it is decided.
        fault: why nothing of it is stored, once it is done; None when all is well.
    """

    __slots__ = ()


def _committed_group() -> CommitGroup:
    group = CommitGroup()
    group.finish()
    return group


ALREADY_COMMITTED = _committed_group()
"""A group that is committed from the start: a batch without new messages gets it."""


# Batches that are kept in memory are copied into blocks of this size: few buffers for one write,
# and none that a poll could keep from growing.
BLOCK_BYTES = 256 << 10


class PendingWrite:
    """Messages that will be written together.

    Attributes:
        segment: where to.
        position: byte of the log at which they start.
        messages_count: how many they are.
        size_bytes: their bytes.
        buffers: the bytes themselves.
        entries: index entries of messages that are not published.
        timestamp_us: time of the last batch.
        ids: ids to remember when it is done.
        group: who is told; None when they were told already, because the messages are published.
        next_segment: what to begin when it is done.
        is_closed: whether nothing more may join.
    """

    __slots__ = (
        "_block",
        "_block_used",
        "buffers",
        "entries",
        "group",
        "ids",
        "is_closed",
        "messages_count",
        "next_segment",
        "position",
        "segment",
        "size_bytes",
        "timestamp_us",
    )

    def __init__(self, segment: Segment, position: int, group: CommitGroup | None) -> None:
        self.segment = segment
        self.position = position
        self.messages_count = 0
        self.size_bytes = 0
        self.buffers: list[memoryview] = []
        self.entries = bytearray()
        self.timestamp_us = 0
        self.ids: list[int] = []
        self.group = group
        self.next_segment: Segment | None = None
        self.is_closed = False
        self._block = memoryview(b"")
        self._block_used = 0

    @property
    def is_published(self) -> bool:
        """Whether polls see the messages already."""
        return self.group is None

    def append_copy(self, messages: Buffer, size: int) -> memoryview:
        """Copy a batch to the end of the write; return the copy."""
        if self._block_used + size > len(self._block):
            self._block, self._block_used = memoryview(allocate(max(size, BLOCK_BYTES))), 0
            self.buffers.append(self._block[:0])
        start = self._block_used
        self._block_used += size
        self.buffers[-1] = self._block[: self._block_used]
        copy = self._block[start : self._block_used]
        copy[:] = messages
        return copy

    def release(self) -> None:
        """Release the bytes; they may be part of a connection's receive buffer."""
        if not self.is_published:
            for buffer in self.buffers:
                buffer.release()
        self.buffers = []
        self._block = memoryview(b"")

    def slices(self, start: int, end: int) -> Iterator[memoryview]:
        """Find the bytes between two positions of the log."""
        at = self.position
        for buffer in self.buffers:
            first, last = max(start - at, 0), min(end - at, len(buffer))
            if first < last:
                yield buffer[first:last].toreadonly()
            at += len(buffer)


class Journal:
    """The queue of one partition.

    Attributes:
        size_bytes: bytes of all writes in it.
    """

    __slots__ = ("_writes", "size_bytes")

    def __init__(self) -> None:
        self._writes: deque[PendingWrite] = deque()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._writes)

    @property
    def first(self) -> PendingWrite | None:
        """The write that is next."""
        return self._writes[0] if self._writes else None

    @property
    def last(self) -> PendingWrite | None:
        """The write that was begun last."""
        return self._writes[-1] if self._writes else None

    @property
    def newest_group(self) -> CommitGroup | None:
        """The last group, which succeeds only if all before it do; None if there is none."""
        return self._writes[-1].group if self._writes else None

    def begin(self, segment: Segment, position: int, *, is_published: bool) -> PendingWrite:
        """Open a new write at the end of the queue."""
        self.close_last()
        write = PendingWrite(segment, position, None if is_published else CommitGroup())
        self._writes.append(write)
        return write

    def close_last(self) -> None:
        """Let nothing more join the last write."""
        if self._writes:
            self._writes[-1].is_closed = True

    def grow(self, write: PendingWrite, count: int, size_bytes: int, timestamp_us: int) -> None:
        """Note that a batch has joined the open write."""
        write.messages_count += count
        write.size_bytes += size_bytes
        write.timestamp_us = timestamp_us
        self.size_bytes += size_bytes

    def pop_first(self) -> PendingWrite:
        """Take out the write that is done."""
        write = self._writes.popleft()
        self.size_bytes -= write.size_bytes
        return write

    def take_unpublished(self) -> list[PendingWrite]:
        """Take out all writes whose messages are not published, which are the last ones."""
        taken: list[PendingWrite] = []
        while self._writes and not self._writes[-1].is_published:
            write = self._writes.pop()
            self.size_bytes -= write.size_bytes
            taken.append(write)
        return taken[::-1]

    def clear(self) -> None:
        """Drop what is published and not written, when it is not wanted any more."""
        while self._writes:
            self.pop_first().release()

    def slices(self, segment: Segment, start: int, end: int) -> Iterator[memoryview]:
        """Find the published bytes between two positions of a segment that is not written."""
        for write in self._writes:
            if write.segment is segment:
                yield from write.slices(start, end)

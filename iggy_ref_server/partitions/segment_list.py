"""The list of a partition's segments, with totals.

The list is a tuple that is replaced and never changed, so a poll that waits keeps the list it
started with. Messages become visible here, so this is where those who wait for messages are woken.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING

from iggy_ref_server.partitions.waiters import MessageWaiters

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from iggy_protocol import Buffer
    from iggy_ref_server.segments.segment import Segment


_start_offset = attrgetter("start_offset")


class SegmentList:
    """All segments, oldest first; there is always at least one.

    Args:
        segments: what there is.

    Attributes:
        segments: the row.
        messages_count: published messages of all of them.
        size_bytes: their bytes.
        last_offset: the highest published offset, also of a message that is gone; None when there
            never was one.
        waiters: who is woken by the next messages.
    """

    __slots__ = ("last_offset", "messages_count", "segments", "size_bytes", "waiters")

    def __init__(self, segments: Iterable[Segment]) -> None:
        self.segments: tuple[Segment, ...] = tuple(segments)
        assert self.segments
        self.messages_count = sum(segment.messages_count for segment in self.segments)
        self.size_bytes = sum(segment.size_bytes for segment in self.segments)
        filled = [segment for segment in self.segments if segment.messages_count]
        end = filled[-1].next_offset if filled else self.segments[0].start_offset
        self.last_offset = end - 1 if end else None
        self.waiters = MessageWaiters()

    @property
    def last(self) -> Segment:
        """The segment that is written to."""
        return self.segments[-1]

    @property
    def oldest_offset(self) -> int:
        """Where the oldest segment starts."""
        return self.segments[0].start_offset

    @property
    def next_offset(self) -> int:
        """The offset of the next message that becomes visible."""
        return self.segments[-1].next_offset

    def append(self, segment: Segment) -> None:
        """Add a segment at the end, unless it is there."""
        if segment.start_offset > self.segments[-1].start_offset:
            assert segment.start_offset == self.segments[-1].next_offset
            self.segments = (*self.segments, segment)
        assert segment in self.segments

    def publish(self, entries: Buffer, count: int, size_bytes: int, timestamp_us: int) -> None:
        """Show more messages of the last segment to polls."""
        segment = self.segments[-1]
        segment.publish(entries, count, size_bytes, timestamp_us)
        self.messages_count += count
        self.size_bytes += size_bytes
        self.last_offset = last_offset = segment.next_offset - 1
        if last_offset >= self.waiters.lowest_offset:
            self.waiters.wake(last_offset)

    def remove_first(self) -> Segment:
        """Take the oldest segment out."""
        segment, *rest = self.segments
        assert rest
        self.segments = tuple(rest)
        self.messages_count -= segment.messages_count
        self.size_bytes -= segment.size_bytes
        return segment

    def restore_first(self, segment: Segment) -> None:
        """Put back what was taken out."""
        self.segments = (segment, *self.segments)
        self.messages_count += segment.messages_count
        self.size_bytes += segment.size_bytes

    def restart(self, segment: Segment) -> tuple[Segment, ...]:
        """Begin anew with one empty segment; return the old ones."""
        old, self.segments = self.segments, (segment,)
        self.messages_count = self.size_bytes = 0
        self.last_offset = None
        return old


def find_segment(segments: Sequence[Segment], offset: int) -> int:
    """Return the place of the segment that holds an offset, or would; 0 for older ones."""
    return max(bisect_right(segments, offset, key=_start_offset) - 1, 0)

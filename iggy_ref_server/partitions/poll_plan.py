"""Plans a poll: where it begins, how far it goes, and which bytes of which segments that is.

A plan is a generator. It yields the index entries it needs and is sent them, from memory or from
the disk. The plan itself opens no file.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from iggy_protocol import Buffer, PollingKind, PollingStrategy, record
from iggy_ref_server.partitions.offsets import OffsetKey
from iggy_ref_server.partitions.segment_list import SegmentList, find_segment
from iggy_ref_server.segments.errors import IndexDamaged
from iggy_ref_server.segments.index import IndexEntry
from iggy_ref_server.segments.segment import Segment
from iggy_ref_server.storage.interface import FileSlice

# The parameters and the result of a poll.


UNLIMITED_BYTES: Final = 2**64


@record
class PollParams:
    """What a poll asks for.

    Attributes:
        strategy: where to begin.
        count: the most messages.
        consumer: whose stored offset counts, for the strategy ``NEXT``.
        size_max_bytes: the most bytes; one message is delivered however large it is.
        memory_max_bytes: the most bytes that may be read into memory for it, as sealed messages
            have to be; pieces of files that are handed on as such cost none.
    """

    strategy: PollingStrategy
    count: int
    consumer: OffsetKey | None
    size_max_bytes: int
    memory_max_bytes: int = UNLIMITED_BYTES

    @property
    def limited_to_memory(self) -> PollParams:
        """The same where all that is delivered has to be read into memory."""
        if self.size_max_bytes <= self.memory_max_bytes:
            return self
        return replace(self, size_max_bytes=self.memory_max_bytes)


class PollResult(NamedTuple):
    """What a poll brings.

    Attributes:
        current_offset: the highest offset of the partition, 0 while it is empty.
        messages_count: how many messages the parts hold.
        size_bytes: their bytes.
        parts: whole messages back to back: bytes in memory and slices of files.
        last_offset: offset of the last message in the parts, None when there is none.
        next_offset: what the next message of the partition gets.
    """

    current_offset: int
    messages_count: int
    size_bytes: int
    parts: tuple[Buffer | FileSlice, ...]
    last_offset: int | None
    next_offset: int


# A message without payload and headers.
MESSAGE_BYTES_MIN = 64


class ReadIndex(NamedTuple):
    """An index entry that a plan has to see."""

    segment: Segment
    ordinal: int


class LogSpan(NamedTuple):
    """Whole messages of one segment.

    Attributes:
        segment: where they are.
        start: byte of the log at which the first one begins.
        end: byte at which the last one ends.
        first_offset: offset of the first one.
        messages_count: how many they are.
    """

    segment: Segment
    start: int
    end: int
    first_offset: int
    messages_count: int


PollPlan = Generator[ReadIndex, IndexEntry, tuple[LogSpan, ...]]
SearchPlan = Generator[ReadIndex, IndexEntry, int]


def plan_poll(
    segment_list: SegmentList, request: PollParams, stored_offset: int | None
) -> PollPlan:
    """Plan a poll of what is published at this moment.

    Args:
        segment_list: the partition's segments.
        request: what is asked for.
        stored_offset: what is stored for the request's consumer.

    Returns:
        The spans to deliver, in order; none when there is nothing.

    Raises:
        IndexDamaged: an index contradicts itself.
    """
    last_offset = segment_list.last_offset
    if last_offset is None or not request.count:
        return ()
    segments = segment_list.segments
    kind = request.strategy.kind
    if kind is PollingKind.TIMESTAMP:
        start = yield from plan_time_search(segments, request.strategy.value)
    else:
        start = first_offset(request, segments[0].start_offset, last_offset, stored_offset)
    if start > last_offset:
        return ()
    return (yield from plan_spans(segments, start, request.count, request.size_max_bytes))


def first_offset(
    request: PollParams, oldest_offset: int, last_offset: int, stored_offset: int | None
) -> int:
    """Resolve every strategy but the one by time; what is gone is skipped."""
    kind = request.strategy.kind
    start = oldest_offset
    if kind is PollingKind.OFFSET:
        start = request.strategy.value
    elif kind is PollingKind.LAST:
        start = last_offset - min(request.count, last_offset + 1) + 1
    elif kind is PollingKind.NEXT and stored_offset is not None:
        start = stored_offset + 1
    return max(start, oldest_offset)


def plan_time_search(segments: Sequence[Segment], timestamp_us: int) -> SearchPlan:
    """Find the offset of the first message that is not older than a time.

    A batch shares one timestamp, so it is the lower bound that is searched.
    """
    for segment in segments:
        if segment.messages_count and segment.last_timestamp_us >= timestamp_us:
            break
    else:
        return segments[-1].next_offset
    if segment.first_timestamp_us >= timestamp_us:
        return segment.start_offset
    low, high = 0, segment.messages_count - 1
    while low < high:
        middle = (low + high) // 2
        entry = yield ReadIndex(segment, middle)
        if entry.timestamp_us >= timestamp_us:
            high = middle
        else:
            low = middle + 1
    return segment.start_offset + low


def plan_spans(segments: Sequence[Segment], start: int, count: int, budget: int) -> PollPlan:
    """Collect messages from an offset on, across segments."""
    spans: list[LogSpan] = []
    for segment in segments[find_segment(segments, start) :]:
        # Between segments offsets may be missing: those a crash has cost, see `reservation`.
        skip = max(start - segment.start_offset, 0)
        available = segment.messages_count - skip
        if available <= 0:
            continue
        span = yield from plan_span(segment, skip, min(count, available))
        size = span.end - span.start
        if size > budget:
            span = yield from cut_span(span, budget, at_least=0 if spans else 1)
        if span.messages_count:
            spans.append(span)
        count -= span.messages_count
        budget -= size
        if count <= 0 or budget <= 0:
            break
    return tuple(spans)


def plan_span(segment: Segment, skip: int, count: int) -> Generator[ReadIndex, IndexEntry, LogSpan]:
    """Find the bytes of some messages of one segment."""
    start, end = 0, segment.size_bytes
    if skip + count < segment.messages_count:
        end = (yield ReadIndex(segment, skip + count - 1)).end_position
    if skip:
        start = (yield ReadIndex(segment, skip - 1)).end_position
    if end - start < count * MESSAGE_BYTES_MIN:
        reason = f"{count} messages do not fit between bytes {start} and {end}"
        raise IndexDamaged(segment.start_offset, reason)
    return LogSpan(segment, start, end, segment.start_offset + skip, count)


def cut_span(
    span: LogSpan, budget: int, *, at_least: int
) -> Generator[ReadIndex, IndexEntry, LogSpan]:
    """Find how many messages of a span fit."""
    skip = span.first_offset - span.segment.start_offset
    low, high = 0, min(span.messages_count - 1, max(budget, 0) // MESSAGE_BYTES_MIN)
    end = span.start
    while low < high:
        middle = (low + high + 1) // 2
        entry = yield ReadIndex(span.segment, skip + middle - 1)
        if entry.end_position - span.start <= budget:
            low, end = middle, entry.end_position
        else:
            high = middle - 1
    if low < at_least:
        low = at_least
        end = (yield ReadIndex(span.segment, skip)).end_position
    return span._replace(messages_count=low, end=end)

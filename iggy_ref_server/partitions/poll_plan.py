"""Plans a poll: where it begins, how far it goes, and which bytes of which segments that is.

A plan is a generator. It yields the index entries it needs and is sent them. One driver finds them
in memory, another waits for the disk; the rules exist once. The plan itself opens no file.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from iggy_protocol import PollingKind
from iggy_ref_server.partitions.chain import find_segment
from iggy_ref_server.segments.damage import IndexDamaged
from iggy_ref_server.segments.index import IndexEntry
from iggy_ref_server.segments.segment import Segment

if TYPE_CHECKING:
    from iggy_ref_server.partitions.chain import SegmentChain
    from iggy_ref_server.partitions.polls import PollRequest

__all__ = ["Span", "Wanted", "plan_poll", "plan_search"]

# A message without payload and headers.
MESSAGE_BYTES_MIN = 64


class Wanted(NamedTuple):
    """An index entry that a plan has to see."""

    segment: Segment
    ordinal: int


class Span(NamedTuple):
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


Plan = Generator[Wanted, IndexEntry, tuple[Span, ...]]
Search = Generator[Wanted, IndexEntry, int]


def plan_poll(chain: SegmentChain, request: PollRequest, stored_offset: int | None) -> Plan:
    """Plan a poll of what is published at this moment.

    Args:
        chain: the partition's segments.
        request: what is asked for.
        stored_offset: what is stored for the request's consumer.

    Returns:
        The spans to deliver, in order; none when there is nothing.

    Raises:
        IndexDamaged: an index contradicts itself.
    """
    last_offset = chain.last_offset
    if last_offset is None or not request.count:
        return ()
    segments = chain.segments
    kind = request.strategy.kind
    if kind is PollingKind.TIMESTAMP:
        start = yield from plan_search(segments, request.strategy.value)
    else:
        start = first_offset(request, segments[0].start_offset, last_offset, stored_offset)
    if start > last_offset:
        return ()
    return (yield from plan_spans(segments, start, request.count, request.size_max_bytes))


def first_offset(
    request: PollRequest, oldest_offset: int, last_offset: int, stored_offset: int | None
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


def plan_search(segments: Sequence[Segment], timestamp_us: int) -> Search:
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
        entry = yield Wanted(segment, middle)
        if entry.timestamp_us >= timestamp_us:
            high = middle
        else:
            low = middle + 1
    return segment.start_offset + low


def plan_spans(segments: Sequence[Segment], start: int, count: int, budget: int) -> Plan:
    """Collect messages from an offset on, across segments."""
    spans: list[Span] = []
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


def plan_span(segment: Segment, skip: int, count: int) -> Generator[Wanted, IndexEntry, Span]:
    """Find the bytes of some messages of one segment."""
    start, end = 0, segment.size_bytes
    if skip + count < segment.messages_count:
        end = (yield Wanted(segment, skip + count - 1)).end_position
    if skip:
        start = (yield Wanted(segment, skip - 1)).end_position
    if end - start < count * MESSAGE_BYTES_MIN:
        reason = f"{count} messages do not fit between bytes {start} and {end}"
        raise IndexDamaged(segment.start_offset, reason)
    return Span(segment, start, end, segment.start_offset + skip, count)


def cut_span(span: Span, budget: int, *, at_least: int) -> Generator[Wanted, IndexEntry, Span]:
    """Find how many messages of a span fit."""
    skip = span.first_offset - span.segment.start_offset
    low, high = 0, min(span.messages_count - 1, max(budget, 0) // MESSAGE_BYTES_MIN)
    end = span.start
    while low < high:
        middle = (low + high + 1) // 2
        entry = yield Wanted(span.segment, skip + middle - 1)
        if entry.end_position - span.start <= budget:
            low, end = middle, entry.end_position
        else:
            high = middle - 1
    if low < at_least:
        low = at_least
        end = (yield Wanted(span.segment, skip)).end_position
    return span._replace(messages_count=low, end=end)

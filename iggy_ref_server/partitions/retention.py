"""Retention: which of the oldest sealed segments may be removed.

A segment is kept while a consumer or group has a stored offset before the segment's last message.
Segments are removed from the oldest on only, so that no hole appears.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from iggy_ref_server.segments.segment import Segment

__all__ = ["is_aged", "plan_expiry", "plan_reclaim", "plan_removal"]


def plan_removal(
    segments: Sequence[Segment], barrier: int | None, *, count: int
) -> tuple[Segment, ...]:
    """Choose the oldest segments.

    Args:
        segments: all of a partition's, oldest first; the last one is never chosen.
        barrier: the smallest stored offset of any consumer or group, None when there is none.
        count: the most to choose.
    """
    removable = takewhile(lambda segment: is_removable(segment, barrier), segments[:-1])
    return tuple(segment for segment, _ in zip(removable, range(count), strict=False))


def plan_expiry(
    segments: Sequence[Segment], barrier: int | None, *, expiry_us: int, now_us: int
) -> tuple[Segment, ...]:
    """Choose the segments whose last message is too old.

    Args:
        segments: all of a partition's, oldest first; the last one is never chosen.
        barrier: the smallest stored offset of any consumer or group, None when there is none.
        expiry_us: how old a message may be.
        now_us: the time.
    """

    def expired() -> Iterator[Segment]:
        for segment in segments[:-1]:
            # A segment of unknown age does not expire, unless there is nothing in it.
            last_us = segment.last_timestamp_us
            if segment.messages_count and (not last_us or last_us + expiry_us > now_us):
                return
            if not is_removable(segment, barrier):
                return
            yield segment

    return tuple(expired())


def plan_reclaim(
    segments: Sequence[Segment], barrier: int | None, *, is_unread_allowed: bool
) -> Segment | None:
    """Choose what goes when the disk is almost full: the oldest segment, if it may go.

    Args:
        segments: all of a partition's, oldest first; the last one is never chosen.
        barrier: the smallest stored offset of any consumer or group, None when there is none.
        is_unread_allowed: whether a segment may go that a consumer has not read.
    """
    oldest, *newer = segments
    may_go = newer and oldest.is_sealed and oldest.messages_count
    return oldest if may_go and (is_unread_allowed or is_removable(oldest, barrier)) else None


def is_aged(segment: Segment, *, max_age_us: int, now_us: int) -> bool:
    """Tell whether the segment that is written to is old enough to be followed by a new one."""
    return bool(segment.messages_count) and segment.first_timestamp_us + max_age_us <= now_us


def is_removable(segment: Segment, barrier: int | None) -> bool:
    """Tell whether a segment is complete and read by everyone who reads."""
    return segment.is_sealed and (barrier is None or segment.next_offset - 1 <= barrier)

"""Streams: the outermost containers."""

from __future__ import annotations

from dataclasses import dataclass

from iggy_protocol.model.topic import Topic

__all__ = ["Stream", "StreamDetails"]


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream and its totals."""

    id: int
    created_at_us: int
    topics_count: int
    size_bytes: int
    messages_count: int
    name: str


@dataclass(frozen=True, slots=True)
class StreamDetails(Stream):
    """A stream with its topics, by ascending id."""

    topics: tuple[Topic, ...] = ()

"""Streams, topics, partitions and consumer groups."""

from __future__ import annotations

from iggy_protocol.model.topic import Topic
from iggy_protocol.records import record

__all__ = ["Stream", "StreamDetails"]


@record
class Stream:
    """A stream and its totals."""

    id: int
    created_at_us: int
    topics_count: int
    size_bytes: int
    messages_count: int
    name: str


@record
class StreamDetails(Stream):
    """A stream with its topics, by ascending id."""

    topics: tuple[Topic, ...] = ()

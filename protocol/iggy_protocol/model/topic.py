"""Topics and their partitions."""

from __future__ import annotations

from enum import IntEnum

from iggy_protocol.records import record

__all__ = ["CompressionAlgorithm", "Partition", "Topic", "TopicDetails"]


class CompressionAlgorithm(IntEnum):
    """A label that clients may agree on; servers do not compress."""

    NONE = 1
    GZIP = 2


@record
class Topic:
    """A topic, its settings and its totals."""

    id: int
    created_at_us: int
    partitions_count: int
    message_expiry_us: int
    compression: CompressionAlgorithm
    max_topic_size_bytes: int
    replication_factor: int
    size_bytes: int
    messages_count: int
    name: str


@record
class Partition:
    """One append-only log of a topic."""

    id: int
    created_at_us: int
    segments_count: int
    current_offset: int
    size_bytes: int
    messages_count: int


@record
class TopicDetails(Topic):
    """A topic with its partitions, which are numbered from 0 without gaps."""

    partitions: tuple[Partition, ...] = ()

"""Topics and their partitions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

__all__ = ["CompressionAlgorithm", "Partition", "Topic", "TopicDetails"]


class CompressionAlgorithm(IntEnum):
    """A label that clients may agree on; servers do not compress."""

    NONE = 1
    GZIP = 2


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Partition:
    """One append-only log of a topic."""

    id: int
    created_at_us: int
    segments_count: int
    current_offset: int
    size_bytes: int
    messages_count: int


@dataclass(frozen=True, slots=True)
class TopicDetails(Topic):
    """A topic with its partitions, which are numbered from 0 without gaps."""

    partitions: tuple[Partition, ...] = ()

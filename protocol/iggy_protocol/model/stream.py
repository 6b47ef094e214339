"""Streams, topics, partitions and consumer groups."""

from __future__ import annotations

from enum import IntEnum

from iggy_protocol.options import NO_OPTIONS, Options
from iggy_protocol.records import optional_field, record

# Topics and their partitions.


class CompressionAlgorithm(IntEnum):
    """A label that clients may agree on; servers do not compress."""

    NONE = 1
    GZIP = 2


@record
class Topic:
    """A topic, its settings and its totals.

    Attributes:
        options: what a client has set; servers before 0.9 have none.
        derived_options: what the server chose.
    """

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
    options: Options = optional_field(default=NO_OPTIONS, kw_only=True)
    derived_options: Options = optional_field(default=NO_OPTIONS, kw_only=True)


@record
class PartitionContext:
    """The state of a partition that a request from 0.10 on refers to.

    Attributes:
        incarnation: changes when the offsets of the partition start over; 0 is none.
        owner_generation: changes when another member of a group owns the partition; 0 without one.
        metadata_position: the change of metadata that the server must have applied.
    """

    incarnation: int = 0
    owner_generation: int = 0
    metadata_position: int = 0


@record
class Partition:
    """One append-only log of a topic.

    Attributes:
        context: what requests from 0.10 on refer to.
        replicas: the nodes that hold the partition; servers before 0.10 do not tell.
        in_sync_replicas: those of them that have all acknowledged messages.
    """

    id: int
    created_at_us: int
    segments_count: int
    current_offset: int
    size_bytes: int
    messages_count: int
    context: PartitionContext = optional_field(default=PartitionContext(), kw_only=True)
    replicas: tuple[int, ...] = optional_field(default=(), kw_only=True)
    in_sync_replicas: tuple[int, ...] = optional_field(default=(), kw_only=True)


@record
class TopicDetails(Topic):
    """A topic with its partitions, which are numbered from 0 without gaps."""

    partitions: tuple[Partition, ...] = ()


@record
class Stream:
    """A stream and its totals.

    Attributes:
        options: what a client has set; servers before 0.9 have none.
        derived_options: what the server chose; servers before 0.10 do not tell.
    """

    id: int
    created_at_us: int
    topics_count: int
    size_bytes: int
    messages_count: int
    name: str
    options: Options = optional_field(default=NO_OPTIONS, kw_only=True)
    derived_options: Options = optional_field(default=NO_OPTIONS, kw_only=True)


@record
class StreamDetails(Stream):
    """A stream with its topics, by ascending id."""

    topics: tuple[Topic, ...] = ()


# Consumer groups, their members and stored offsets.


@record
class ConsumerGroup:
    """A group of a topic and its totals."""

    id: int
    partitions_count: int
    members_count: int
    name: str


@record
class ConsumerGroupMember:
    """A member and the partitions it reads; its id is a number within the group, not a client."""

    id: int
    partitions: tuple[int, ...] = ()


@record
class ConsumerGroupDetails(ConsumerGroup):
    """A group with its members."""

    members: tuple[ConsumerGroupMember, ...] = ()


@record
class ConsumerOffset:
    """How far a consumer or group has come in a partition, and how far the partition goes."""

    partition_id: int
    current_offset: int
    stored_offset: int


@record
class ConsumerGroupAssignment:
    """The partitions that a group assigns to the member that asks.

    Attributes:
        generation: changes with every change of the group's assignments.
    """

    generation: int
    partitions: tuple[int, ...] = ()


class OffsetAck(IntEnum):
    """Which nodes must have a stored offset before the server answers; from 0.9 on."""

    LOCAL = 0
    QUORUM = 1

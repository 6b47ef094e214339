"""Topics, their partitions and segments.

The order differs: requests have the compression before the expiry, replies the expiry before the
compression.
"""

from __future__ import annotations

from iggy_protocol.codes import CommandCode
from iggy_protocol.fields import RecordStruct, StrictGreedyRange
from iggy_protocol.model.identifier import Identifier
from iggy_protocol.model.stream import CompressionAlgorithm, Partition, Topic, TopicDetails
from iggy_protocol.primitives import (
    IDENTIFIER,
    NAME,
    SERVER_DEFAULT,
    U8,
    U32,
    U64,
    counted,
    discriminant,
)
from iggy_protocol.records import record
from iggy_protocol.registry import (
    EMPTY,
    Command,
    command,
    reply_of_many,
    reply_of_one,
    reply_of_optional,
)

COMPRESSION = discriminant(CompressionAlgorithm)

TOPIC_FIELDS = (
    "id" / U32,
    "created_at_us" / U64,
    "partitions_count" / U32,
    "message_expiry_us" / U64,
    "compression" / COMPRESSION,
    "max_topic_size_bytes" / U64,
    "replication_factor" / U8,
    "size_bytes" / U64,
    "messages_count" / U64,
    "name" / NAME,
)
TOPIC = RecordStruct(Topic, *TOPIC_FIELDS)

PARTITION = RecordStruct(
    Partition,
    "id" / U32,
    "created_at_us" / U64,
    "segments_count" / U32,
    "current_offset" / U64,
    "size_bytes" / U64,
    "messages_count" / U64,
)

TOPIC_DETAILS = counted(
    RecordStruct(TopicDetails, *TOPIC_FIELDS, "partitions" / StrictGreedyRange(PARTITION)),
    count="partitions_count",
    elements="partitions",
)


@command(
    CommandCode.GET_TOPIC,
    "stream" / IDENTIFIER,
    "topic" / IDENTIFIER,
    reply=reply_of_optional(TOPIC_DETAILS, "TopicDetails"),
)
@record
class GetTopic(Command[TopicDetails | None]):
    """Ask for one topic and its partitions."""

    stream: Identifier
    topic: Identifier


@command(CommandCode.GET_TOPICS, "stream" / IDENTIFIER, reply=reply_of_many(TOPIC, "topics"))
@record
class GetTopics(Command[tuple[Topic, ...]]):
    """Ask for all topics of a stream, by ascending id."""

    stream: Identifier


@command(
    CommandCode.CREATE_TOPIC,
    "stream" / IDENTIFIER,
    "partitions_count" / U32,
    "compression" / COMPRESSION,
    "message_expiry_us" / U64,
    "max_topic_size_bytes" / U64,
    "replication_factor" / U8,
    "name" / NAME,
    reply=reply_of_one(TOPIC_DETAILS, "TopicDetails"),
)
@record
class CreateTopic(Command[TopicDetails]):
    """Create a topic; the reply shows the settings after server defaults were applied."""

    stream: Identifier
    name: str
    partitions_count: int
    compression: CompressionAlgorithm = CompressionAlgorithm.NONE
    message_expiry_us: int = SERVER_DEFAULT
    max_topic_size_bytes: int = SERVER_DEFAULT
    replication_factor: int = SERVER_DEFAULT


@command(
    CommandCode.UPDATE_TOPIC,
    "stream" / IDENTIFIER,
    "topic" / IDENTIFIER,
    "compression" / COMPRESSION,
    "message_expiry_us" / U64,
    "max_topic_size_bytes" / U64,
    "replication_factor" / U8,
    "name" / NAME,
    reply=EMPTY,
)
@record
class UpdateTopic(Command[None]):
    """Overwrite the name and every setting of a topic."""

    stream: Identifier
    topic: Identifier
    name: str
    compression: CompressionAlgorithm = CompressionAlgorithm.NONE
    message_expiry_us: int = SERVER_DEFAULT
    max_topic_size_bytes: int = SERVER_DEFAULT
    replication_factor: int = SERVER_DEFAULT


@command(CommandCode.DELETE_TOPIC, "stream" / IDENTIFIER, "topic" / IDENTIFIER, reply=EMPTY)
@record
class DeleteTopic(Command[None]):
    """Delete a topic with everything in it."""

    stream: Identifier
    topic: Identifier


@command(CommandCode.PURGE_TOPIC, "stream" / IDENTIFIER, "topic" / IDENTIFIER, reply=EMPTY)
@record
class PurgeTopic(Command[None]):
    """Delete all messages and stored offsets of a topic."""

    stream: Identifier
    topic: Identifier


# Partitions: added and removed at the end of a topic.


PARTITIONS_FIELDS = ("stream" / IDENTIFIER, "topic" / IDENTIFIER, "partitions_count" / U32)


@command(CommandCode.CREATE_PARTITIONS, *PARTITIONS_FIELDS, reply=EMPTY)
@record
class CreatePartitions(Command[None]):
    """Add partitions behind the last one."""

    stream: Identifier
    topic: Identifier
    partitions_count: int


@command(CommandCode.DELETE_PARTITIONS, *PARTITIONS_FIELDS, reply=EMPTY)
@record
class DeletePartitions(Command[None]):
    """Delete the last partitions with everything in them."""

    stream: Identifier
    topic: Identifier
    partitions_count: int


# Segments: deleting the oldest messages.


@command(
    CommandCode.DELETE_SEGMENTS,
    "stream" / IDENTIFIER,
    "topic" / IDENTIFIER,
    "partition_id" / U32,
    "segments_count" / U32,
    reply=EMPTY,
)
@record
class DeleteSegments(Command[None]):
    """Delete up to so many of the oldest sealed segments that no consumer needs any more."""

    stream: Identifier
    topic: Identifier
    partition_id: int
    segments_count: int

"""Topics, their partitions and segments.

The order differs: classic requests have the compression before the expiry, replies the expiry
before the compression. From 0.9 on requests have both as options, from 0.10 on replies, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol.codes import CommandCode
from iggy_protocol.dialect import V0_11, V0_12_0, V0_12_2, ByDialect
from iggy_protocol.fields import (
    Absent,
    CountPrefixedArray,
    RecordStruct,
    StrictGreedyRange,
    Untold,
)
from iggy_protocol.layout import Layout
from iggy_protocol.model.identifier import Identifier
from iggy_protocol.model.stream import (
    CompressionAlgorithm,
    Partition,
    PartitionContext,
    Topic,
    TopicDetails,
)
from iggy_protocol.option_layouts import (
    NO_RESET,
    REPORTED_OPTIONS,
    OptionRecord,
    Setting,
    option_patch,
    reported_with_options,
    with_options,
)
from iggy_protocol.options import NO_OPTIONS, Options, OptionScope, option_spec
from iggy_protocol.primitives import (
    IDENTIFIER,
    NAME,
    SERVER_DEFAULT,
    U8,
    U32,
    U64,
    counted,
    discriminant,
    required,
)
from iggy_protocol.records import optional_field, record
from iggy_protocol.registry import (
    EMPTY,
    Codec,
    Command,
    RecordCodec,
    command,
    reply_of_many,
    reply_of_one,
    reply_of_optional,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from iggy_protocol.fields import Field


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

REPLICATION_FACTOR_UNTOLD = 1
"""The replication factor of topics in dialects whose replies do not tell it."""

TOPIC_FIELDS_V0_11 = (
    *(one for one in TOPIC_FIELDS if one.name != "replication_factor"),
    "replication_factor" / Untold(REPLICATION_FACTOR_UNTOLD),
    *REPORTED_OPTIONS,
)
TOPIC_V0_11 = RecordStruct(Topic, *TOPIC_FIELDS_V0_11)


def _setting(field: str, key: str, absent: object = None, reset: object = NO_RESET) -> Setting:
    return Setting(field, option_spec(OptionScope.TOPIC, key), absent, reset)


def _compression(absent: CompressionAlgorithm | None = None) -> Setting:
    return Setting(
        "compression",
        option_spec(OptionScope.TOPIC, "compression_algorithm"),
        absent,
        read=lambda text: CompressionAlgorithm[text.upper()],
        write=lambda compression: CompressionAlgorithm(compression).name.lower(),
    )


SETTINGS = (
    _compression(CompressionAlgorithm.NONE),
    _setting("message_expiry_us", "message_expiry", SERVER_DEFAULT),
    _setting("max_topic_size_bytes", "max_topic_size", SERVER_DEFAULT),
)
"""The fields of a topic that are options from 0.9 on; a missing one is the server's default."""

TOPIC_FIELDS_V0_12 = (
    "id" / U32,
    "created_at_us" / U64,
    "partitions_count" / U32,
    "size_bytes" / U64,
    "messages_count" / U64,
    "name" / NAME,
    *REPORTED_OPTIONS,
)


def _topic_v0_12_0(type_: type[Topic], *fields: Field) -> OptionRecord:
    return reported_with_options(
        type_,
        *TOPIC_FIELDS_V0_12,
        *fields,
        settings=SETTINGS,
        untold={"replication_factor": REPLICATION_FACTOR_UNTOLD},
    )


def _topic_v0_12_2(type_: type[Topic], *fields: Field) -> OptionRecord:
    factor = _setting("replication_factor", "replication_factor", REPLICATION_FACTOR_UNTOLD)
    return reported_with_options(type_, *TOPIC_FIELDS_V0_12, *fields, settings=(*SETTINGS, factor))


TOPIC_V0_12_0 = _topic_v0_12_0(Topic)
TOPIC_V0_12_2 = _topic_v0_12_2(Topic)

PARTITION_FIELDS = (
    "id" / U32,
    "created_at_us" / U64,
    "segments_count" / U32,
    "current_offset" / U64,
    "size_bytes" / U64,
    "messages_count" / U64,
)
PARTITION = RecordStruct(Partition, *PARTITION_FIELDS)

PARTITION_CONTEXT = RecordStruct(
    PartitionContext, "incarnation" / U64, "owner_generation" / U64, "metadata_position" / U64
)
PARTITION_FIELDS_V0_12_0 = (*PARTITION_FIELDS, "context" / PARTITION_CONTEXT)
PARTITION_V0_12_0 = RecordStruct(Partition, *PARTITION_FIELDS_V0_12_0)

REPLICA_IDS = CountPrefixedArray(U8, count_size=1)
PARTITION_V0_12_2 = RecordStruct(
    Partition,
    *PARTITION_FIELDS_V0_12_0,
    "replicas" / REPLICA_IDS,
    "in_sync_replicas" / REPLICA_IDS,
)


def _details(record: Field) -> Field:
    return counted(record, count="partitions_count", elements="partitions")


TOPIC_DETAILS = _details(
    RecordStruct(TopicDetails, *TOPIC_FIELDS, "partitions" / StrictGreedyRange(PARTITION))
)
TOPIC_DETAILS_V0_11 = _details(
    RecordStruct(TopicDetails, *TOPIC_FIELDS_V0_11, "partitions" / StrictGreedyRange(PARTITION))
)
TOPIC_DETAILS_V0_12_0 = _details(
    _topic_v0_12_0(TopicDetails, "partitions" / StrictGreedyRange(PARTITION_V0_12_0))
)
TOPIC_DETAILS_V0_12_2 = _details(
    _topic_v0_12_2(TopicDetails, "partitions" / StrictGreedyRange(PARTITION_V0_12_2))
)


def _reply_of_details(declare: Callable[[Field, str], Codec]) -> ByDialect[Codec]:
    later = {
        V0_11: TOPIC_DETAILS_V0_11,
        V0_12_0: TOPIC_DETAILS_V0_12_0,
        V0_12_2: TOPIC_DETAILS_V0_12_2,
    }
    return ByDialect(
        declare(TOPIC_DETAILS, "TopicDetails"),
        {dialect: declare(record, "TopicDetails") for dialect, record in later.items()},
    )


def _reply_of_counted(record: Field) -> Codec:
    return RecordCodec(Layout("topics", CountPrefixedArray(record, count_size=4)))


@command(
    CommandCode.GET_TOPIC,
    "stream" / IDENTIFIER,
    "topic" / IDENTIFIER,
    reply=_reply_of_details(reply_of_optional),
)
@record
class GetTopic(Command[TopicDetails | None]):
    """Ask for one topic and its partitions."""

    stream: Identifier
    topic: Identifier


@command(
    CommandCode.GET_TOPICS,
    "stream" / IDENTIFIER,
    reply=ByDialect(
        reply_of_many(TOPIC, "topics"),
        {
            V0_11: _reply_of_counted(TOPIC_V0_11),
            V0_12_0: _reply_of_counted(TOPIC_V0_12_0),
            V0_12_2: _reply_of_counted(TOPIC_V0_12_2),
        },
    ),
)
@record
class GetTopics(Command[tuple[Topic, ...]]):
    """Ask for all topics of a stream, by ascending id."""

    stream: Identifier


CREATED_FIELDS = ("stream" / IDENTIFIER, "partitions_count" / U32, "name" / NAME)


@command(
    CommandCode.CREATE_TOPIC,
    "stream" / IDENTIFIER,
    "partitions_count" / U32,
    "compression" / COMPRESSION,
    "message_expiry_us" / U64,
    "max_topic_size_bytes" / U64,
    "replication_factor" / U8,
    "name" / NAME,
    "options" / Absent(NO_OPTIONS),
    reply=_reply_of_details(reply_of_one),
    changes={
        V0_11: with_options(
            *CREATED_FIELDS,
            settings=SETTINGS,
            # A factor of one is what such a topic has.
            unsaid={"replication_factor": (SERVER_DEFAULT, REPLICATION_FACTOR_UNTOLD)},
        ),
        V0_12_2: with_options(
            *CREATED_FIELDS,
            settings=(
                *SETTINGS,
                _setting("replication_factor", "replication_factor", SERVER_DEFAULT),
            ),
        ),
    },
)
@record
class CreateTopic(Command[TopicDetails]):
    """Create a topic; the reply shows the settings after server defaults were applied.

    Attributes:
        replication_factor: a label before 0.10, where official servers keep one copy.
        options: what has no field of its own; from 0.9 on.
    """

    stream: Identifier
    name: str
    partitions_count: int
    compression: CompressionAlgorithm = CompressionAlgorithm.NONE
    message_expiry_us: int = SERVER_DEFAULT
    max_topic_size_bytes: int = SERVER_DEFAULT
    replication_factor: int = SERVER_DEFAULT
    options: Options = optional_field(default=NO_OPTIONS, kw_only=True)


# No update of the new dialects has the factor as a field; as an option it is not updatable.
FACTOR_UNSAID = {"replication_factor": (None, SERVER_DEFAULT, REPLICATION_FACTOR_UNTOLD)}


@command(
    CommandCode.UPDATE_TOPIC,
    "stream" / IDENTIFIER,
    "topic" / IDENTIFIER,
    "compression" / required(COMPRESSION),
    "message_expiry_us" / required(U64),
    "max_topic_size_bytes" / required(U64),
    "replication_factor" / required(U8),
    "name" / required(NAME),
    "options" / Absent(NO_OPTIONS),
    "reset" / Absent(frozenset[str]()),
    reply=EMPTY,
    changes={
        V0_11: with_options(
            "stream" / IDENTIFIER,
            "topic" / IDENTIFIER,
            "name" / required(NAME),
            settings=(
                _compression(),
                _setting("message_expiry_us", "message_expiry"),
                _setting("max_topic_size_bytes", "max_topic_size"),
            ),
            unsaid=FACTOR_UNSAID | {"reset": (frozenset(),)},
        ),
        V0_12_0: option_patch(
            OptionScope.TOPIC,
            "stream" / IDENTIFIER,
            "topic" / IDENTIFIER,
            settings=(
                _setting("name", "name"),
                _compression(),
                _setting("message_expiry_us", "message_expiry", reset=SERVER_DEFAULT),
                _setting("max_topic_size_bytes", "max_topic_size", reset=SERVER_DEFAULT),
            ),
            unsaid=FACTOR_UNSAID,
        ),
    },
)
@record
class UpdateTopic(Command[None]):
    """Overwrite the name and the settings of a topic.

    From 0.9 on ``None`` leaves a setting as it is, and from 0.10 on also the name. Until then
    everything is overwritten.

    Attributes:
        options: what has no field of its own; from 0.9 on.
        reset: the keys of further options that go back to the server's default; from 0.10 on.
    """

    stream: Identifier
    topic: Identifier
    name: str | None
    compression: CompressionAlgorithm | None = CompressionAlgorithm.NONE
    message_expiry_us: int | None = SERVER_DEFAULT
    max_topic_size_bytes: int | None = SERVER_DEFAULT
    replication_factor: int | None = SERVER_DEFAULT
    options: Options = optional_field(default=NO_OPTIONS, kw_only=True)
    reset: frozenset[str] = optional_field(default=frozenset(), kw_only=True)


@command(CommandCode.DELETE_TOPIC, "stream" / IDENTIFIER, "topic" / IDENTIFIER, reply=EMPTY)
@record
class DeleteTopic(Command[None]):
    """Delete a topic with everything in it."""

    stream: Identifier
    topic: Identifier


@command(
    CommandCode.PURGE_TOPIC,
    "stream" / IDENTIFIER,
    "topic" / IDENTIFIER,
    reply=EMPTY,
    changes={V0_12_0: None},
)
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

"""Consumer groups and stored consumer offsets."""

from __future__ import annotations

from iggy_protocol.codes import CommandCode
from iggy_protocol.dialect import V0_11, V0_12_0
from iggy_protocol.fields import Absent, CountPrefixedArray, RecordStruct, StrictGreedyRange
from iggy_protocol.model.identifier import ConsumerIdentity, Identifier
from iggy_protocol.model.stream import (
    ConsumerGroup,
    ConsumerGroupAssignment,
    ConsumerGroupDetails,
    ConsumerGroupMember,
    ConsumerOffset,
    OffsetAck,
)
from iggy_protocol.primitives import (
    CONSUMER,
    CONSUMER_V0_12,
    IDENTIFIER,
    NAME,
    OPTIONAL_PARTITION,
    U32,
    U64,
    counted,
    discriminant,
)
from iggy_protocol.records import optional_field, record
from iggy_protocol.registry import (
    EMPTY,
    Command,
    command,
    reply_of_many,
    reply_of_one,
    reply_of_optional,
)

GROUP_FIELDS = (
    "id" / U32,
    "partitions_count" / U32,
    "members_count" / U32,
    "name" / NAME,
)
GROUP = RecordStruct(ConsumerGroup, *GROUP_FIELDS)

MEMBER = RecordStruct(
    ConsumerGroupMember, "id" / U32, "partitions" / CountPrefixedArray(U32, count_size=4)
)

GROUP_DETAILS = counted(
    RecordStruct(ConsumerGroupDetails, *GROUP_FIELDS, "members" / StrictGreedyRange(MEMBER)),
    count="members_count",
    elements="members",
)

TOPIC_KEY_FIELDS = ("stream" / IDENTIFIER, "topic" / IDENTIFIER)
GROUP_KEY_FIELDS = (*TOPIC_KEY_FIELDS, "group" / IDENTIFIER)


@command(
    CommandCode.GET_CONSUMER_GROUP,
    *GROUP_KEY_FIELDS,
    reply=reply_of_optional(GROUP_DETAILS, "ConsumerGroupDetails"),
)
@record
class GetConsumerGroup(Command[ConsumerGroupDetails | None]):
    """Ask for one group and its members."""

    stream: Identifier
    topic: Identifier
    group: Identifier


@command(
    CommandCode.GET_CONSUMER_GROUPS,
    *TOPIC_KEY_FIELDS,
    reply=reply_of_many(GROUP, "consumer groups"),
)
@record
class GetConsumerGroups(Command[tuple[ConsumerGroup, ...]]):
    """Ask for all groups of a topic."""

    stream: Identifier
    topic: Identifier


@command(
    CommandCode.CREATE_CONSUMER_GROUP,
    *TOPIC_KEY_FIELDS,
    "name" / NAME,
    reply=reply_of_one(GROUP, "ConsumerGroup"),
)
@record
class CreateConsumerGroup(Command[ConsumerGroup]):
    """Create a group; joining it is another command."""

    stream: Identifier
    topic: Identifier
    name: str


@command(CommandCode.DELETE_CONSUMER_GROUP, *GROUP_KEY_FIELDS, reply=EMPTY)
@record
class DeleteConsumerGroup(Command[None]):
    """Delete a group with its stored offsets."""

    stream: Identifier
    topic: Identifier
    group: Identifier


@command(CommandCode.JOIN_CONSUMER_GROUP, *GROUP_KEY_FIELDS, reply=EMPTY)
@record
class JoinConsumerGroup(Command[None]):
    """Make this connection a member; joining twice changes nothing."""

    stream: Identifier
    topic: Identifier
    group: Identifier


@command(CommandCode.LEAVE_CONSUMER_GROUP, *GROUP_KEY_FIELDS, reply=EMPTY)
@record
class LeaveConsumerGroup(Command[None]):
    """Give up the membership of this connection."""

    stream: Identifier
    topic: Identifier
    group: Identifier


ASSIGNMENT = RecordStruct(
    ConsumerGroupAssignment,
    "generation" / U64,
    "partitions" / CountPrefixedArray(U32, count_size=4),
)


@command(
    CommandCode.SYNC_CONSUMER_GROUP,
    *GROUP_KEY_FIELDS,
    reply=reply_of_optional(ASSIGNMENT, "ConsumerGroupAssignment"),
    since=V0_11,
)
@record
class SyncConsumerGroup(Command[ConsumerGroupAssignment | None]):
    """Ask for the partitions of this member; the reply is ``None`` for one that is no member."""

    stream: Identifier
    topic: Identifier
    group: Identifier


# Stored offsets of consumers and groups.


OFFSET_PLACE_FIELDS = (
    "stream" / IDENTIFIER,
    "topic" / IDENTIFIER,
    "partition_id" / OPTIONAL_PARTITION,
)
OFFSET_KEY_FIELDS = ("consumer" / CONSUMER, *OFFSET_PLACE_FIELDS)
OFFSET_KEY_FIELDS_V0_12 = ("consumer" / CONSUMER_V0_12, *OFFSET_PLACE_FIELDS)

ACK_LEVEL = discriminant(OffsetAck)

CONSUMER_OFFSET = RecordStruct(
    ConsumerOffset, "partition_id" / U32, "current_offset" / U64, "stored_offset" / U64
)


@command(
    CommandCode.GET_CONSUMER_OFFSET,
    *OFFSET_KEY_FIELDS,
    reply=reply_of_optional(CONSUMER_OFFSET, "ConsumerOffset"),
    changes={V0_12_0: OFFSET_KEY_FIELDS_V0_12},
)
@record
class GetConsumerOffset(Command[ConsumerOffset | None]):
    """Ask for a stored offset; without a partition, for that of partition 0."""

    consumer: ConsumerIdentity
    stream: Identifier
    topic: Identifier
    partition_id: int | None = None


@command(
    CommandCode.STORE_CONSUMER_OFFSET,
    *OFFSET_KEY_FIELDS,
    "offset" / U64,
    "ack" / Absent(OffsetAck.QUORUM),
    reply=EMPTY,
    changes={
        V0_11: (*OFFSET_KEY_FIELDS, "offset" / U64, "ack" / ACK_LEVEL),
        V0_12_0: (*OFFSET_KEY_FIELDS_V0_12, "offset" / U64, "ack" / ACK_LEVEL),
    },
)
@record
class StoreConsumerOffset(Command[None]):
    """Store the last offset that was processed; the next poll goes on behind it."""

    consumer: ConsumerIdentity
    stream: Identifier
    topic: Identifier
    offset: int
    partition_id: int | None = None
    ack: OffsetAck = optional_field(default=OffsetAck.QUORUM, kw_only=True)


@command(
    CommandCode.DELETE_CONSUMER_OFFSET,
    *OFFSET_KEY_FIELDS,
    "ack" / Absent(OffsetAck.QUORUM),
    reply=EMPTY,
    changes={
        V0_11: (*OFFSET_KEY_FIELDS, "ack" / ACK_LEVEL),
        V0_12_0: (*OFFSET_KEY_FIELDS_V0_12, "ack" / ACK_LEVEL),
    },
)
@record
class DeleteConsumerOffset(Command[None]):
    """Forget a stored offset."""

    consumer: ConsumerIdentity
    stream: Identifier
    topic: Identifier
    partition_id: int | None = None
    ack: OffsetAck = optional_field(default=OffsetAck.QUORUM, kw_only=True)

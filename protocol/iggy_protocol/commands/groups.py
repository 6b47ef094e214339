"""Consumer groups and stored consumer offsets."""

from __future__ import annotations

from iggy_protocol.codes import CommandCode
from iggy_protocol.fields import Counted, Record, ToTheEnd
from iggy_protocol.model.consumer_group import (
    ConsumerGroup,
    ConsumerGroupDetails,
    ConsumerGroupMember,
)
from iggy_protocol.model.identifier import Identifier
from iggy_protocol.primitives import IDENTIFIER, NAME, U32, counted
from iggy_protocol.records import record
from iggy_protocol.registry import EMPTY, Command, command, many, maybe, one

__all__ = [
    "CreateConsumerGroup",
    "DeleteConsumerGroup",
    "GetConsumerGroup",
    "GetConsumerGroups",
    "JoinConsumerGroup",
    "LeaveConsumerGroup",
]

GROUP_FIELDS = (
    "id" / U32,
    "partitions_count" / U32,
    "members_count" / U32,
    "name" / NAME,
)
GROUP = Record(ConsumerGroup, *GROUP_FIELDS)

MEMBER = Record(ConsumerGroupMember, "id" / U32, "partitions" / Counted(U32, count_size=4))

GROUP_DETAILS = counted(
    Record(ConsumerGroupDetails, *GROUP_FIELDS, "members" / ToTheEnd(MEMBER)),
    count="members_count",
    elements="members",
)

TOPIC_PLACE = ("stream" / IDENTIFIER, "topic" / IDENTIFIER)
GROUP_PLACE = (*TOPIC_PLACE, "group" / IDENTIFIER)


@command(
    CommandCode.GET_CONSUMER_GROUP,
    *GROUP_PLACE,
    reply=maybe(GROUP_DETAILS, "ConsumerGroupDetails"),
)
@record
class GetConsumerGroup(Command[ConsumerGroupDetails | None]):
    """Ask for one group and its members."""

    stream: Identifier
    topic: Identifier
    group: Identifier


@command(CommandCode.GET_CONSUMER_GROUPS, *TOPIC_PLACE, reply=many(GROUP, "consumer groups"))
@record
class GetConsumerGroups(Command[tuple[ConsumerGroup, ...]]):
    """Ask for all groups of a topic."""

    stream: Identifier
    topic: Identifier


@command(
    CommandCode.CREATE_CONSUMER_GROUP,
    *TOPIC_PLACE,
    "name" / NAME,
    reply=one(GROUP, "ConsumerGroup"),
)
@record
class CreateConsumerGroup(Command[ConsumerGroup]):
    """Create a group; joining it is another command."""

    stream: Identifier
    topic: Identifier
    name: str


@command(CommandCode.DELETE_CONSUMER_GROUP, *GROUP_PLACE, reply=EMPTY)
@record
class DeleteConsumerGroup(Command[None]):
    """Delete a group with its stored offsets."""

    stream: Identifier
    topic: Identifier
    group: Identifier


@command(CommandCode.JOIN_CONSUMER_GROUP, *GROUP_PLACE, reply=EMPTY)
@record
class JoinConsumerGroup(Command[None]):
    """Make this connection a member; joining twice changes nothing."""

    stream: Identifier
    topic: Identifier
    group: Identifier


@command(CommandCode.LEAVE_CONSUMER_GROUP, *GROUP_PLACE, reply=EMPTY)
@record
class LeaveConsumerGroup(Command[None]):
    """Give up the membership of this connection."""

    stream: Identifier
    topic: Identifier
    group: Identifier

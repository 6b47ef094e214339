"""Consumer groups: created and deleted as metadata, joined and left in memory. All on shard 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol import (
    CreateConsumerGroup,
    DeleteConsumerGroup,
    GetConsumerGroup,
    GetConsumerGroups,
    JoinConsumerGroup,
    LeaveConsumerGroup,
)
from iggy_ref_server.groups.registry import GroupKey
from iggy_ref_server.handlers.messages import stale_if_evicted
from iggy_ref_server.handlers.table import Place, handles
from iggy_ref_server.metadata import plan_groups
from iggy_ref_server.metadata.views import no_members, view_group_details, view_groups

if TYPE_CHECKING:
    from collections.abc import Callable

    from iggy_protocol import ConsumerGroup, ConsumerGroupDetails, ConsumerGroupMember
    from iggy_ref_server.handlers.office import Office
    from iggy_ref_server.session import Session


def _members(office: Office) -> Callable[[int, int, int], tuple[ConsumerGroupMember, ...]]:
    def members(stream_id: int, topic_id: int, group_id: int) -> tuple[ConsumerGroupMember, ...]:
        return office.registry.require(GroupKey(stream_id, topic_id, group_id)).details()

    return members


@handles(GetConsumerGroups, place=Place.METADATA)
async def get_consumer_groups(
    office: Office, session: Session, command: GetConsumerGroups
) -> tuple[ConsumerGroup, ...]:
    """List the groups of a topic."""
    topic = office.metadata().find_topic(command.stream, command.topic)
    if topic is None:
        return ()
    office.authorize(session, command.CODE, topic.stream_id, topic.id)
    return view_groups(topic, _members(office))


@handles(GetConsumerGroup, place=Place.METADATA)
async def get_consumer_group(
    office: Office, session: Session, command: GetConsumerGroup
) -> ConsumerGroupDetails | None:
    """Show one group with its members."""
    topic = office.metadata().find_topic(command.stream, command.topic)
    group = None if topic is None else topic.find_group(command.group)
    if topic is None or group is None:
        return None
    office.authorize(session, command.CODE, topic.stream_id, topic.id)
    return view_group_details(topic, group, _members(office))


@handles(CreateConsumerGroup, place=Place.METADATA)
async def create_consumer_group(
    office: Office, session: Session, command: CreateConsumerGroup
) -> ConsumerGroupDetails:
    """Create a group without members."""
    topic = office.metadata().require_topic(command.stream, command.topic)
    office.authorize(session, command.CODE, topic.stream_id, topic.id)
    context = office.plan_context(session)
    change = await office.change(
        lambda metadata: plan_groups.plan_create_group(metadata, command, context)
    )
    topic = office.metadata().require_topic(change.stream_id, change.topic_id)
    return view_group_details(topic, topic.require_group(change.id), no_members)


@handles(DeleteConsumerGroup, place=Place.METADATA)
async def delete_consumer_group(
    office: Office, session: Session, command: DeleteConsumerGroup
) -> None:
    """Delete a group with its offsets."""
    topic = office.metadata().require_topic(command.stream, command.topic)
    topic.require_group(command.group)
    office.authorize(session, command.CODE, topic.stream_id, topic.id)
    context = office.plan_context(session)
    await office.change(lambda metadata: plan_groups.plan_delete_group(metadata, command, context))


@handles(JoinConsumerGroup, place=Place.METADATA)
async def join_consumer_group(office: Office, session: Session, command: JoinConsumerGroup) -> None:
    """Make the client a member."""
    topic = office.metadata().require_topic(command.stream, command.topic)
    group = topic.require_group(command.group)
    office.authorize(session, command.CODE, topic.stream_id, topic.id)
    stale_if_evicted(session)
    key = GroupKey(topic.stream_id, topic.id, group.id)
    office.registry.join(key, session.client_id, office.clock.now_us())


@handles(LeaveConsumerGroup, place=Place.METADATA)
async def leave_consumer_group(
    office: Office, session: Session, command: LeaveConsumerGroup
) -> None:
    """End the client's membership."""
    topic = office.metadata().require_topic(command.stream, command.topic)
    group = topic.require_group(command.group)
    office.authorize(session, command.CODE, topic.stream_id, topic.id)
    stale_if_evicted(session)
    office.registry.leave(GroupKey(topic.stream_id, topic.id, group.id), session.client_id)

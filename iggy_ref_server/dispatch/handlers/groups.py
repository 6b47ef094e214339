"""Consumer groups: created and deleted as metadata, joined and left in memory. All on shard 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_ref_server.dispatch.handlers.messages import require_not_evicted
from iggy_ref_server.groups.group import GroupKey
from iggy_ref_server.metadata import plan_streams
from iggy_ref_server.metadata.views import no_members, view_group_details, view_groups

if TYPE_CHECKING:
    from collections.abc import Callable

    from iggy_protocol import (
        ConsumerGroup,
        ConsumerGroupAssignment,
        ConsumerGroupDetails,
        ConsumerGroupMember,
        CreateConsumerGroup,
        DeleteConsumerGroup,
        GetConsumerGroup,
        GetConsumerGroups,
        JoinConsumerGroup,
        LeaveConsumerGroup,
        SyncConsumerGroup,
    )
    from iggy_ref_server.dispatch.context import HandlerContext
    from iggy_ref_server.session import ClientSession


def _members(context: HandlerContext) -> Callable[[int, int, int], tuple[ConsumerGroupMember, ...]]:
    def members(stream_id: int, topic_id: int, group_id: int) -> tuple[ConsumerGroupMember, ...]:
        return context.registry.require(GroupKey(stream_id, topic_id, group_id)).details()

    return members


async def get_consumer_groups(
    context: HandlerContext, session: ClientSession, command: GetConsumerGroups
) -> tuple[ConsumerGroup, ...]:
    """List the groups of a topic."""
    topic = context.metadata().find_topic(command.stream, command.topic)
    if topic is None:
        return ()
    context.authorize(session, command.CODE, topic.stream_id, topic.id)
    return view_groups(topic, _members(context))


async def get_consumer_group(
    context: HandlerContext, session: ClientSession, command: GetConsumerGroup
) -> ConsumerGroupDetails | None:
    """Show one group with its members."""
    topic = context.metadata().find_topic(command.stream, command.topic)
    group = None if topic is None else topic.find_group(command.group)
    if topic is None or group is None:
        return None
    context.authorize(session, command.CODE, topic.stream_id, topic.id)
    return view_group_details(topic, group, _members(context))


async def create_consumer_group(
    context: HandlerContext, session: ClientSession, command: CreateConsumerGroup
) -> ConsumerGroupDetails:
    """Create a group without members."""
    topic = context.metadata().require_topic(command.stream, command.topic)
    context.authorize(session, command.CODE, topic.stream_id, topic.id)
    plan_context = context.plan_context(session)
    change = await context.change(
        lambda metadata: plan_streams.plan_create_group(metadata, command, plan_context),
        actor=session.user_id,
    )
    topic = context.metadata().require_topic(change.stream_id, change.topic_id)
    return view_group_details(topic, topic.require_group(change.id), no_members)


async def delete_consumer_group(
    context: HandlerContext, session: ClientSession, command: DeleteConsumerGroup
) -> None:
    """Delete a group with its offsets."""
    topic = context.metadata().require_topic(command.stream, command.topic)
    topic.require_group(command.group)
    context.authorize(session, command.CODE, topic.stream_id, topic.id)
    plan_context = context.plan_context(session)
    await context.change(
        lambda metadata: plan_streams.plan_delete_group(metadata, command, plan_context),
        actor=session.user_id,
    )


async def join_consumer_group(
    context: HandlerContext, session: ClientSession, command: JoinConsumerGroup
) -> None:
    """Make the client a member: its connection, or its session if that outlives connections."""
    topic = context.metadata().require_topic(command.stream, command.topic)
    group = topic.require_group(command.group)
    context.authorize(session, command.CODE, topic.stream_id, topic.id)
    require_not_evicted(session)
    key = GroupKey(topic.stream_id, topic.id, group.id)
    context.registry.join(key, session.member_id, context.clock.now_us())


async def leave_consumer_group(
    context: HandlerContext, session: ClientSession, command: LeaveConsumerGroup
) -> None:
    """End the client's membership."""
    topic = context.metadata().require_topic(command.stream, command.topic)
    group = topic.require_group(command.group)
    context.authorize(session, command.CODE, topic.stream_id, topic.id)
    require_not_evicted(session)
    context.registry.leave(GroupKey(topic.stream_id, topic.id, group.id), session.member_id)


async def sync_consumer_group(
    context: HandlerContext, session: ClientSession, command: SyncConsumerGroup
) -> ConsumerGroupAssignment | None:
    """Tell a member which partitions it reads; None if the client is no member."""
    topic = context.metadata().find_topic(command.stream, command.topic)
    group = None if topic is None else topic.find_group(command.group)
    if topic is None or group is None:
        return None
    context.authorize(session, command.CODE, topic.stream_id, topic.id)
    require_not_evicted(session)
    key = GroupKey(topic.stream_id, topic.id, group.id)
    return context.registry.sync(key, session.member_id)

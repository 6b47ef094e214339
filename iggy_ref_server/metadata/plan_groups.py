"""Plans for consumer groups: a command and the present state give a change, or a fault.

Pure. Who is a member of a group is not written down, so joining and leaving need no plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol import StatusCode
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.metadata.changes import GroupCreated, GroupDeleted

if TYPE_CHECKING:
    from iggy_protocol import CreateConsumerGroup, DeleteConsumerGroup
    from iggy_ref_server.metadata.plan_context import PlanContext
    from iggy_ref_server.metadata.state import Metadata

__all__ = ["plan_create_group", "plan_delete_group"]


def plan_create_group(
    metadata: Metadata, command: CreateConsumerGroup, context: PlanContext
) -> GroupCreated:
    """Plan a new consumer group under the next free id of its topic."""
    topic = metadata.require_topic(command.stream, command.topic)
    if command.name in topic.groups.id_by_name:
        raise ServerFault(
            StatusCode.CONSUMER_GROUP_NAME_ALREADY_EXISTS,
            f"topic {topic.id} of stream {topic.stream_id} has a consumer group"
            f" named {command.name!r} already",
        )
    return GroupCreated(
        stream_id=topic.stream_id,
        topic_id=topic.id,
        id=topic.groups.next_id,
        name=command.name,
        incarnation=metadata.next_incarnation(context.now_us),
    )


def plan_delete_group(
    metadata: Metadata, command: DeleteConsumerGroup, context: PlanContext
) -> GroupDeleted:
    """Plan the end of a consumer group."""
    topic = metadata.require_topic(command.stream, command.topic)
    group = topic.require_group(command.group)
    return GroupDeleted(stream_id=topic.stream_id, topic_id=topic.id, id=group.id)

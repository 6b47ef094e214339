"""Partitions: more of them at the end of a topic, or fewer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol import CreatePartitions, DeletePartitions
from iggy_ref_server.handlers.space import require_space
from iggy_ref_server.handlers.table import Place, handles
from iggy_ref_server.metadata import plan_topics

if TYPE_CHECKING:
    from iggy_ref_server.handlers.office import Office
    from iggy_ref_server.session import Session


@handles(CreatePartitions, place=Place.METADATA)
async def create_partitions(office: Office, session: Session, command: CreatePartitions) -> None:
    """Add partitions behind the last one."""
    topic = office.metadata().require_topic(command.stream, command.topic)
    office.authorize(session, command.CODE, topic.stream_id, topic.id)
    await require_space(office, command.partitions_count)
    context = office.plan_context(session)
    await office.change(
        lambda metadata: plan_topics.plan_create_partitions(metadata, command, context)
    )


@handles(DeletePartitions, place=Place.METADATA)
async def delete_partitions(office: Office, session: Session, command: DeletePartitions) -> None:
    """Delete the last partitions with their messages."""
    topic = office.metadata().require_topic(command.stream, command.topic)
    office.authorize(session, command.CODE, topic.stream_id, topic.id)
    context = office.plan_context(session)
    await office.change(
        lambda metadata: plan_topics.plan_delete_partitions(metadata, command, context)
    )

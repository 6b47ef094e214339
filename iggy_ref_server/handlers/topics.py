"""Topics of a stream, divided into partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol import (
    CreateTopic,
    DeleteTopic,
    GetTopic,
    GetTopics,
    PurgeTopic,
    UpdateTopic,
)
from iggy_ref_server.handlers.space import require_space
from iggy_ref_server.handlers.table import Place, handles
from iggy_ref_server.metadata import plan_topics
from iggy_ref_server.metadata.views import no_statistics, view_topic_details, view_topics

if TYPE_CHECKING:
    from iggy_protocol import Topic, TopicDetails
    from iggy_ref_server.handlers.office import Office
    from iggy_ref_server.session import Session


@handles(GetTopics)
async def get_topics(office: Office, session: Session, command: GetTopics) -> tuple[Topic, ...]:
    """List the topics of a stream."""
    stream = office.metadata().find_stream(command.stream)
    if stream is None:
        return ()
    office.authorize(session, command.CODE, stream.id)
    return view_topics(stream, (await office.census.figures()).of)


@handles(GetTopic)
async def get_topic(office: Office, session: Session, command: GetTopic) -> TopicDetails | None:
    """Show one topic with its partitions."""
    topic = office.metadata().find_topic(command.stream, command.topic)
    if topic is None:
        return None
    office.authorize(session, command.CODE, topic.stream_id, topic.id)
    return view_topic_details(topic, (await office.census.figures()).of)


@handles(CreateTopic, place=Place.METADATA)
async def create_topic(office: Office, session: Session, command: CreateTopic) -> TopicDetails:
    """Create a topic with its first partitions."""
    stream = office.metadata().require_stream(command.stream)
    office.authorize(session, command.CODE, stream.id)
    await require_space(office, command.partitions_count)
    context = office.plan_context(session)
    change = await office.change(
        lambda metadata: plan_topics.plan_create_topic(metadata, command, context)
    )
    created = office.metadata().require_topic(change.stream_id, change.id)
    return view_topic_details(created, no_statistics)


@handles(UpdateTopic, place=Place.METADATA)
async def update_topic(office: Office, session: Session, command: UpdateTopic) -> None:
    """Change the name and the settings of a topic."""
    topic = office.metadata().require_topic(command.stream, command.topic)
    office.authorize(session, command.CODE, topic.stream_id, topic.id)
    context = office.plan_context(session)
    await office.change(lambda metadata: plan_topics.plan_update_topic(metadata, command, context))


@handles(DeleteTopic, place=Place.METADATA)
async def delete_topic(office: Office, session: Session, command: DeleteTopic) -> None:
    """Delete a topic with all it holds."""
    topic = office.metadata().require_topic(command.stream, command.topic)
    office.authorize(session, command.CODE, topic.stream_id, topic.id)
    context = office.plan_context(session)
    await office.change(lambda metadata: plan_topics.plan_delete_topic(metadata, command, context))


@handles(PurgeTopic, place=Place.METADATA)
async def purge_topic(office: Office, session: Session, command: PurgeTopic) -> None:
    """Empty all partitions of a topic."""
    topic = office.metadata().require_topic(command.stream, command.topic)
    office.authorize(session, command.CODE, topic.stream_id, topic.id)
    context = office.plan_context(session)
    await office.change(lambda metadata: plan_topics.plan_purge_topic(metadata, command, context))

"""Streams, topics, partitions and segments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol import (
    CreatePartitions,
    CreateStream,
    CreateTopic,
    DeletePartitions,
    DeleteSegments,
    DeleteStream,
    DeleteTopic,
    GetStream,
    GetStreams,
    GetTopic,
    GetTopics,
    PurgeStream,
    PurgeTopic,
    StatusCode,
    Stream,
    StreamDetails,
    Topic,
    TopicDetails,
    UpdateStream,
    UpdateTopic,
)
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.metadata import plan_streams
from iggy_ref_server.metadata.views import (
    no_statistics,
    view_stream_details,
    view_streams,
    view_topic_details,
    view_topics,
)
from iggy_ref_server.storage.interface import StorageError

if TYPE_CHECKING:
    from iggy_ref_server.dispatch.context import HandlerContext
    from iggy_ref_server.session import ClientSession


# The check of free disk space before partitions are created.


# An empty partition: four directories and a file of a few bytes, a block each.
PARTITION_BYTES = 5 * 4096


async def require_disk_space(context: HandlerContext, partitions_count: int) -> None:
    """Refuse partitions that the disk cannot hold even while they are empty.

    Raises:
        ServerFault: there is too little space.
    """
    try:
        free_bytes, _ = await context.host.storage.free_bytes()
    except StorageError:  # unknown: creation is retried until it succeeds
        return
    wanted_bytes = partitions_count * PARTITION_BYTES
    if free_bytes < wanted_bytes:
        raise ServerFault(
            StatusCode.CANNOT_WRITE_TO_FILE,
            f"{partitions_count} empty partitions need {wanted_bytes} bytes, and {free_bytes} are"
            " free on the disk",
        )


async def get_streams(
    context: HandlerContext, session: ClientSession, command: GetStreams
) -> tuple[Stream, ...]:
    """List all streams."""
    context.authorize(session, command.CODE)
    statistics = await context.cluster_view.statistics()
    return view_streams(context.metadata(), statistics.of, context.viewer(session))


async def get_stream(
    context: HandlerContext, session: ClientSession, command: GetStream
) -> StreamDetails | None:
    """Show one stream with its topics."""
    stream = context.metadata().find_stream(command.stream)
    if stream is None:
        return None
    context.authorize(session, command.CODE, stream.id)
    statistics = await context.cluster_view.statistics()
    return view_stream_details(stream, statistics.of, context.viewer(session))


async def create_stream(
    context: HandlerContext, session: ClientSession, command: CreateStream
) -> StreamDetails:
    """Create a stream."""
    context.authorize(session, command.CODE)
    plan_context = context.plan_context(session)
    change = await context.change(
        lambda metadata: plan_streams.plan_create_stream(metadata, command, plan_context),
        actor=session.user_id,
    )
    created = context.metadata().require_stream(change.id)
    return view_stream_details(created, no_statistics, context.viewer(session))


async def update_stream(
    context: HandlerContext, session: ClientSession, command: UpdateStream
) -> None:
    """Rename a stream."""
    stream = context.metadata().require_stream(command.stream)
    context.authorize(session, command.CODE, stream.id)
    plan_context = context.plan_context(session)
    await context.change(
        lambda metadata: plan_streams.plan_update_stream(metadata, command, plan_context),
        actor=session.user_id,
    )


async def delete_stream(
    context: HandlerContext, session: ClientSession, command: DeleteStream
) -> None:
    """Delete a stream with all it holds."""
    stream = context.metadata().require_stream(command.stream)
    context.authorize(session, command.CODE, stream.id)
    plan_context = context.plan_context(session)
    await context.change(
        lambda metadata: plan_streams.plan_delete_stream(metadata, command, plan_context),
        actor=session.user_id,
    )


async def purge_stream(
    context: HandlerContext, session: ClientSession, command: PurgeStream
) -> None:
    """Empty all topics of a stream."""
    stream = context.metadata().require_stream(command.stream)
    context.authorize(session, command.CODE, stream.id)
    plan_context = context.plan_context(session)
    await context.change(
        lambda metadata: plan_streams.plan_purge_stream(metadata, command, plan_context),
        actor=session.user_id,
    )


# Topics of a stream, divided into partitions.


async def get_topics(
    context: HandlerContext, session: ClientSession, command: GetTopics
) -> tuple[Topic, ...]:
    """List the topics of a stream."""
    stream = context.metadata().find_stream(command.stream)
    if stream is None:
        return ()
    context.authorize(session, command.CODE, stream.id)
    statistics = await context.cluster_view.statistics()
    return view_topics(stream, statistics.of, context.viewer(session))


async def get_topic(
    context: HandlerContext, session: ClientSession, command: GetTopic
) -> TopicDetails | None:
    """Show one topic with its partitions."""
    topic = context.metadata().find_topic(command.stream, command.topic)
    if topic is None:
        return None
    context.authorize(session, command.CODE, topic.stream_id, topic.id)
    statistics = await context.cluster_view.statistics()
    return view_topic_details(topic, statistics.of, context.viewer(session))


async def create_topic(
    context: HandlerContext, session: ClientSession, command: CreateTopic
) -> TopicDetails:
    """Create a topic with its first partitions."""
    stream = context.metadata().require_stream(command.stream)
    context.authorize(session, command.CODE, stream.id)
    await require_disk_space(context, command.partitions_count)
    plan_context = context.plan_context(session)
    change = await context.change(
        lambda metadata: plan_streams.plan_create_topic(metadata, command, plan_context),
        actor=session.user_id,
    )
    created = context.metadata().require_topic(change.stream_id, change.id)
    return view_topic_details(created, no_statistics, context.viewer(session))


async def update_topic(
    context: HandlerContext, session: ClientSession, command: UpdateTopic
) -> None:
    """Change the name and the settings of a topic."""
    topic = context.metadata().require_topic(command.stream, command.topic)
    context.authorize(session, command.CODE, topic.stream_id, topic.id)
    plan_context = context.plan_context(session)
    await context.change(
        lambda metadata: plan_streams.plan_update_topic(metadata, command, plan_context),
        actor=session.user_id,
    )


async def delete_topic(
    context: HandlerContext, session: ClientSession, command: DeleteTopic
) -> None:
    """Delete a topic with all it holds."""
    topic = context.metadata().require_topic(command.stream, command.topic)
    context.authorize(session, command.CODE, topic.stream_id, topic.id)
    plan_context = context.plan_context(session)
    await context.change(
        lambda metadata: plan_streams.plan_delete_topic(metadata, command, plan_context),
        actor=session.user_id,
    )


async def purge_topic(context: HandlerContext, session: ClientSession, command: PurgeTopic) -> None:
    """Empty all partitions of a topic."""
    topic = context.metadata().require_topic(command.stream, command.topic)
    context.authorize(session, command.CODE, topic.stream_id, topic.id)
    plan_context = context.plan_context(session)
    await context.change(
        lambda metadata: plan_streams.plan_purge_topic(metadata, command, plan_context),
        actor=session.user_id,
    )


# Partitions: more of them at the end of a topic, or fewer.


async def create_partitions(
    context: HandlerContext, session: ClientSession, command: CreatePartitions
) -> None:
    """Add partitions behind the last one."""
    topic = context.metadata().require_topic(command.stream, command.topic)
    context.authorize(session, command.CODE, topic.stream_id, topic.id)
    await require_disk_space(context, command.partitions_count)
    plan_context = context.plan_context(session)
    await context.change(
        lambda metadata: plan_streams.plan_create_partitions(metadata, command, plan_context),
        actor=session.user_id,
    )


async def delete_partitions(
    context: HandlerContext, session: ClientSession, command: DeletePartitions
) -> None:
    """Delete the last partitions with their messages."""
    topic = context.metadata().require_topic(command.stream, command.topic)
    context.authorize(session, command.CODE, topic.stream_id, topic.id)
    plan_context = context.plan_context(session)
    await context.change(
        lambda metadata: plan_streams.plan_delete_partitions(metadata, command, plan_context),
        actor=session.user_id,
    )


# Segments: the files of a partition, of which the oldest can be deleted.


async def delete_segments(
    context: HandlerContext, session: ClientSession, command: DeleteSegments
) -> None:
    """Delete the oldest closed segments that no consumer still needs."""
    topic = context.metadata().require_topic(command.stream, command.topic)
    topic.require_partition(command.partition_id)
    context.authorize(session, command.CODE, topic.stream_id, topic.id)
    await context.partition_client(topic, command.partition_id).delete_segments(
        command.segments_count
    )

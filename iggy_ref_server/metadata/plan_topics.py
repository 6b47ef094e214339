"""Plans for topics and their partitions: a command and the state give a change, or a fault.

Owns the resolving of server defaults, once and for all, on creation and on update alike. Pure.
Fields of commands have passed ``iggy_protocol.validate`` and the user's permissions are checked
elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from iggy_protocol import SERVER_DEFAULT, StatusCode
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.metadata.changes import (
    PartitionsAdded,
    PartitionsRemoved,
    TopicCreated,
    TopicDeleted,
    TopicPurged,
    TopicUpdated,
)
from iggy_ref_server.metadata.plan_context import PARTITIONS_PER_TOPIC_MAX, TOPICS_PER_STREAM_MAX

if TYPE_CHECKING:
    from iggy_protocol import (
        CreatePartitions,
        CreateTopic,
        DeletePartitions,
        DeleteTopic,
        PurgeTopic,
        UpdateTopic,
    )
    from iggy_ref_server.metadata.plan_context import MetadataSettings, PlanContext
    from iggy_ref_server.metadata.records import StreamRecord
    from iggy_ref_server.metadata.state import Metadata

__all__ = [
    "TopicLimits",
    "plan_create_partitions",
    "plan_create_topic",
    "plan_delete_partitions",
    "plan_delete_topic",
    "plan_purge_topic",
    "plan_update_topic",
    "resolve_limits",
]

REPLICATION_FACTOR_DEFAULT = 1


class TopicLimits(NamedTuple):
    """The settings of a topic that may be left to the server, resolved."""

    message_expiry_us: int
    max_size_bytes: int
    replication_factor: int


def resolve_limits(command: CreateTopic | UpdateTopic, settings: MetadataSettings) -> TopicLimits:
    """Put the server's defaults in place of what a command leaves open."""
    expiry_us, size_bytes = command.message_expiry_us, command.max_topic_size_bytes
    return TopicLimits(
        settings.message_expiry_us if expiry_us == SERVER_DEFAULT else expiry_us,
        settings.max_topic_size_bytes if size_bytes == SERVER_DEFAULT else size_bytes,
        command.replication_factor or REPLICATION_FACTOR_DEFAULT,
    )


def _limits(command: CreateTopic | UpdateTopic, settings: MetadataSettings) -> TopicLimits:
    size_bytes = command.max_topic_size_bytes
    if size_bytes != SERVER_DEFAULT and size_bytes < settings.segment_size_bytes:
        raise ServerFault(
            StatusCode.INVALID_TOPIC_SIZE,
            f"a topic size limit of {size_bytes} bytes is smaller than"
            f" one segment of {settings.segment_size_bytes} bytes",
        )
    return resolve_limits(command, settings)


def _taken(name: str, stream: StreamRecord) -> ServerFault:
    return ServerFault(
        StatusCode.TOPIC_NAME_ALREADY_EXISTS,
        f"stream {stream.id} has a topic named {name!r} already",
    )


def plan_create_topic(
    metadata: Metadata, command: CreateTopic, context: PlanContext
) -> TopicCreated:
    """Plan a new topic with its first partitions under the next free id of its stream."""
    stream = metadata.require_stream(command.stream)
    limits = _limits(command, context.settings)
    if command.name in stream.topics.id_by_name:
        raise _taken(command.name, stream)
    if len(stream.topics) >= TOPICS_PER_STREAM_MAX:
        raise ServerFault(
            StatusCode.CANNOT_CREATE_TOPIC,
            f"a stream holds at most {TOPICS_PER_STREAM_MAX} topics",
        )
    return TopicCreated(
        stream_id=stream.id,
        id=stream.topics.next_id,
        name=command.name,
        created_at_us=context.now_us,
        partitions_count=command.partitions_count,
        incarnation=metadata.next_incarnation(context.now_us),
        message_expiry_us=limits.message_expiry_us,
        compression=command.compression,
        max_size_bytes=limits.max_size_bytes,
        replication_factor=limits.replication_factor,
    )


def plan_update_topic(
    metadata: Metadata, command: UpdateTopic, context: PlanContext
) -> TopicUpdated:
    """Plan another name, its present one will do, and other settings for a topic."""
    stream = metadata.require_stream(command.stream)
    topic = stream.require_topic(command.topic)
    limits = _limits(command, context.settings)
    if stream.topics.id_by_name.get(command.name, topic.id) != topic.id:
        raise _taken(command.name, stream)
    return TopicUpdated(
        stream_id=stream.id,
        id=topic.id,
        name=command.name,
        message_expiry_us=limits.message_expiry_us,
        compression=command.compression,
        max_size_bytes=limits.max_size_bytes,
        replication_factor=limits.replication_factor,
    )


def plan_delete_topic(
    metadata: Metadata, command: DeleteTopic, context: PlanContext
) -> TopicDeleted:
    """Plan the end of a topic."""
    topic = metadata.require_topic(command.stream, command.topic)
    return TopicDeleted(stream_id=topic.stream_id, id=topic.id)


def plan_purge_topic(metadata: Metadata, command: PurgeTopic, context: PlanContext) -> TopicPurged:
    """Plan to empty a topic: all its partitions start again as another incarnation."""
    topic = metadata.require_topic(command.stream, command.topic)
    return TopicPurged(
        stream_id=topic.stream_id,
        id=topic.id,
        incarnation=metadata.next_incarnation(context.now_us),
    )


def plan_create_partitions(
    metadata: Metadata, command: CreatePartitions, context: PlanContext
) -> PartitionsAdded:
    """Plan more partitions behind the last one."""
    topic = metadata.require_topic(command.stream, command.topic)
    first_id = len(topic.partitions)
    if first_id + command.partitions_count > PARTITIONS_PER_TOPIC_MAX:
        raise ServerFault(
            StatusCode.TOO_MANY_PARTITIONS,
            f"a topic holds at most {PARTITIONS_PER_TOPIC_MAX} partitions",
        )
    return PartitionsAdded(
        stream_id=topic.stream_id,
        topic_id=topic.id,
        first_id=first_id,
        count=command.partitions_count,
        created_at_us=context.now_us,
        incarnation=metadata.next_incarnation(context.now_us),
    )


def plan_delete_partitions(
    metadata: Metadata, command: DeletePartitions, context: PlanContext
) -> PartitionsRemoved:
    """Plan the end of the last partitions."""
    topic = metadata.require_topic(command.stream, command.topic)
    kept_count = len(topic.partitions) - command.partitions_count
    if kept_count < 0:
        raise ServerFault(
            StatusCode.INVALID_PARTITIONS_COUNT,
            f"topic {topic.id} of stream {topic.stream_id} has {len(topic.partitions)} partitions,"
            f" not {command.partitions_count}",
        )
    return PartitionsRemoved(stream_id=topic.stream_id, topic_id=topic.id, kept_count=kept_count)

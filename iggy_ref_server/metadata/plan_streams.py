"""Plans for streams: a command and the present state give a change, or a fault.

Pure. Fields of commands have passed ``iggy_protocol.validate`` and the user's permissions are
checked elsewhere.
"""

from __future__ import annotations

from typing import NamedTuple

from iggy_protocol import (
    SERVER_DEFAULT,
    CreateConsumerGroup,
    CreatePartitions,
    CreateStream,
    CreateTopic,
    DeleteConsumerGroup,
    DeletePartitions,
    DeleteStream,
    DeleteTopic,
    Options,
    PurgeStream,
    PurgeTopic,
    StatusCode,
    UpdateStream,
    UpdateTopic,
)
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.metadata.changes import (
    GroupCreated,
    GroupDeleted,
    PartitionsAdded,
    PartitionsRemoved,
    StreamCreated,
    StreamDeleted,
    StreamPurged,
    StreamRenamed,
    TopicCreated,
    TopicDeleted,
    TopicPurged,
    TopicUpdated,
)
from iggy_ref_server.metadata.options import (
    check_preallocation,
    created_stream_options,
    created_topic_options,
    has_fixed_partitions,
    segment_size_of,
    store_options,
    updated_derived,
)
from iggy_ref_server.metadata.state import (
    PARTITIONS_PER_TOPIC_MAX,
    STREAMS_MAX,
    TOPICS_PER_STREAM_MAX,
    Metadata,
    MetadataSettings,
    PlanContext,
    StreamRecord,
    TopicRecord,
)


def _stream_name_taken(name: str) -> ServerFault:
    return ServerFault(
        StatusCode.STREAM_NAME_ALREADY_EXISTS, f"a stream named {name!r} exists already"
    )


def plan_create_stream(
    metadata: Metadata, command: CreateStream, context: PlanContext
) -> StreamCreated:
    """Plan a new stream under the next free id."""
    if command.name in metadata.streams.id_by_name:
        raise _stream_name_taken(command.name)
    if len(metadata.streams) >= STREAMS_MAX:
        raise ServerFault(
            StatusCode.CANNOT_CREATE_STREAM, f"a server holds at most {STREAMS_MAX} streams"
        )
    return StreamCreated(
        id=metadata.streams.next_id,
        name=command.name,
        created_at_us=context.now_us,
        options=store_options(created_stream_options(command.options, context.dialect)),
    )


def plan_update_stream(
    metadata: Metadata, command: UpdateStream, context: PlanContext
) -> StreamRenamed:
    """Plan another name for a stream; its present name will do."""
    stream = metadata.require_stream(command.stream)
    name = stream.name if command.name is None else command.name
    if metadata.streams.id_by_name.get(name, stream.id) != stream.id:
        raise _stream_name_taken(name)
    return StreamRenamed(id=stream.id, name=name)


def plan_delete_stream(
    metadata: Metadata, command: DeleteStream, context: PlanContext
) -> StreamDeleted:
    """Plan the end of a stream."""
    return StreamDeleted(id=metadata.require_stream(command.stream).id)


def plan_purge_stream(
    metadata: Metadata, command: PurgeStream, context: PlanContext
) -> StreamPurged:
    """Plan to empty a stream: all its partitions start again as another incarnation."""
    stream = metadata.require_stream(command.stream)
    return StreamPurged(id=stream.id, generation=metadata.next_generation(context.now_us))


# Plans for topics and their partitions: a command and the state give a change, or a fault.
#
# Owns the resolving of server defaults, once and for all, on creation and on update alike. Pure.
# Fields of commands have passed ``iggy_protocol.validate`` and the user's permissions are checked
# elsewhere.


REPLICATION_FACTOR_DEFAULT = 1


class TopicLimits(NamedTuple):
    """The settings of a topic that may be left to the server, resolved."""

    message_expiry_us: int
    max_size_bytes: int
    replication_factor: int


def resolve_limits(
    command: CreateTopic | UpdateTopic,
    settings: MetadataSettings,
    present: TopicRecord | None = None,
) -> TopicLimits:
    """Put the server's defaults in place of what a command leaves open.

    Args:
        command: what a client asks for.
        settings: the defaults.
        present: the topic that is updated, whose settings stay where the command has None.
    """
    expiry_us, size_bytes = command.message_expiry_us, command.max_topic_size_bytes
    factor = command.replication_factor
    if present is not None:
        expiry_us = present.message_expiry_us if expiry_us is None else expiry_us
        size_bytes = present.max_size_bytes if size_bytes is None else size_bytes
        factor = present.replication_factor if factor is None else factor
    assert expiry_us is not None
    assert size_bytes is not None
    return TopicLimits(
        settings.message_expiry_us if expiry_us == SERVER_DEFAULT else expiry_us,
        settings.max_topic_size_bytes if size_bytes == SERVER_DEFAULT else size_bytes,
        factor or REPLICATION_FACTOR_DEFAULT,
    )


def _checked_limits(
    command: CreateTopic | UpdateTopic,
    options: Options,
    settings: MetadataSettings,
    present: TopicRecord | None = None,
) -> TopicLimits:
    size_bytes = command.max_topic_size_bytes or SERVER_DEFAULT
    segment_size_bytes = segment_size_of(options, settings)
    if size_bytes != SERVER_DEFAULT and size_bytes < segment_size_bytes:
        raise ServerFault(
            StatusCode.INVALID_TOPIC_SIZE,
            f"a topic size limit of {size_bytes} bytes is smaller than"
            f" one segment of {segment_size_bytes} bytes",
        )
    return resolve_limits(command, settings, present)


def _topic_name_taken(name: str, stream: StreamRecord) -> ServerFault:
    return ServerFault(
        StatusCode.TOPIC_NAME_ALREADY_EXISTS,
        f"stream {stream.id} has a topic named {name!r} already",
    )


def plan_create_topic(
    metadata: Metadata, command: CreateTopic, context: PlanContext
) -> TopicCreated:
    """Plan a new topic with its first partitions under the next free id of its stream."""
    stream = metadata.require_stream(command.stream)
    options, derived = created_topic_options(command, context.dialect)
    check_preallocation(options, command.partitions_count, context.settings)
    limits = _checked_limits(command, options, context.settings)
    if command.name in stream.topics.id_by_name:
        raise _topic_name_taken(command.name, stream)
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
        generation=metadata.next_generation(context.now_us),
        message_expiry_us=limits.message_expiry_us,
        compression=command.compression,
        max_size_bytes=limits.max_size_bytes,
        replication_factor=limits.replication_factor,
        options=store_options(options),
        derived=tuple(sorted(derived)),
    )


def plan_update_topic(
    metadata: Metadata, command: UpdateTopic, context: PlanContext
) -> TopicUpdated:
    """Plan another name, its present one will do, and other settings; None leaves one as it is."""
    stream = metadata.require_stream(command.stream)
    topic = stream.require_topic(command.topic)
    limits = _checked_limits(command, topic.options, context.settings, topic)
    name = topic.name if command.name is None else command.name
    if stream.topics.id_by_name.get(name, topic.id) != topic.id:
        raise _topic_name_taken(name, stream)
    return TopicUpdated(
        stream_id=stream.id,
        id=topic.id,
        name=name,
        message_expiry_us=limits.message_expiry_us,
        compression=topic.compression if command.compression is None else command.compression,
        max_size_bytes=limits.max_size_bytes,
        replication_factor=limits.replication_factor,
        derived=tuple(sorted(updated_derived(topic.derived, command, context.dialect))),
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
        generation=metadata.next_generation(context.now_us),
    )


def _require_resizable(
    metadata: Metadata, command: CreatePartitions | DeletePartitions
) -> TopicRecord:
    topic = metadata.require_topic(command.stream, command.topic)
    if has_fixed_partitions(topic):
        raise ServerFault(
            StatusCode.PARTITION_RESIZE_DISABLED,
            f"topic {topic.id} of stream {topic.stream_id} was created with a fixed number of"
            " partitions",
        )
    return topic


def plan_create_partitions(
    metadata: Metadata, command: CreatePartitions, context: PlanContext
) -> PartitionsAdded:
    """Plan more partitions behind the last one."""
    topic = _require_resizable(metadata, command)
    first_id = len(topic.partitions)
    if first_id + command.partitions_count > PARTITIONS_PER_TOPIC_MAX:
        raise ServerFault(
            StatusCode.TOO_MANY_PARTITIONS,
            f"a topic holds at most {PARTITIONS_PER_TOPIC_MAX} partitions",
        )
    check_preallocation(topic.options, first_id + command.partitions_count, context.settings)
    return PartitionsAdded(
        stream_id=topic.stream_id,
        topic_id=topic.id,
        first_id=first_id,
        count=command.partitions_count,
        created_at_us=context.now_us,
        generation=metadata.next_generation(context.now_us),
    )


def plan_delete_partitions(
    metadata: Metadata, command: DeletePartitions, context: PlanContext
) -> PartitionsRemoved:
    """Plan the end of the last partitions."""
    topic = _require_resizable(metadata, command)
    kept_count = len(topic.partitions) - command.partitions_count
    if kept_count < 0:
        raise ServerFault(
            StatusCode.INVALID_PARTITIONS_COUNT,
            f"topic {topic.id} of stream {topic.stream_id} has {len(topic.partitions)} partitions,"
            f" not {command.partitions_count}",
        )
    return PartitionsRemoved(stream_id=topic.stream_id, topic_id=topic.id, kept_count=kept_count)


# Plans for consumer groups: a command and the present state give a change, or a fault.
#
# Pure. Who is a member of a group is not written down, so joining and leaving need no plan.


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
        generation=metadata.next_generation(context.now_us),
    )


def plan_delete_group(
    metadata: Metadata, command: DeleteConsumerGroup, context: PlanContext
) -> GroupDeleted:
    """Plan the end of a consumer group."""
    topic = metadata.require_topic(command.stream, command.topic)
    group = topic.require_group(command.group)
    return GroupDeleted(stream_id=topic.stream_id, topic_id=topic.id, id=group.id)

"""Applies changes of streams, topics, partitions and consumer groups."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from iggy_ref_server.metadata.apply_users import withdraw
from iggy_ref_server.metadata.records import (
    GroupRecord,
    PartitionRecord,
    StreamRecord,
    TopicRecord,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from iggy_ref_server.metadata import changes as happened
    from iggy_ref_server.metadata.state import Metadata

__all__ = [
    "add_partitions",
    "create_group",
    "create_stream",
    "create_topic",
    "delete_group",
    "delete_stream",
    "delete_topic",
    "purge_stream",
    "purge_topic",
    "remove_partitions",
    "rename_stream",
    "update_topic",
]


def _with_stream(
    metadata: Metadata, stream_id: int, change: Callable[[StreamRecord], StreamRecord]
) -> Metadata:
    stream = metadata.streams.find(stream_id)
    if stream is None:
        return metadata
    return replace(metadata, streams=metadata.streams.replace(change(stream)))


def _with_topic(
    metadata: Metadata,
    stream_id: int,
    topic_id: int,
    change: Callable[[TopicRecord], TopicRecord],
) -> Metadata:
    def in_stream(stream: StreamRecord) -> StreamRecord:
        topic = stream.topics.find(topic_id)
        if topic is None:
            return stream
        return replace(stream, topics=stream.topics.replace(change(topic)))

    return _with_stream(metadata, stream_id, in_stream)


def _emptied(topic: TopicRecord, incarnation: int) -> TopicRecord:
    partitions = tuple(
        replace(partition, incarnation=incarnation) for partition in topic.partitions
    )
    return replace(topic, partitions=partitions)


def _new_partitions(
    first_id: int, count: int, created_at_us: int, incarnation: int
) -> tuple[PartitionRecord, ...]:
    return tuple(
        PartitionRecord(number, created_at_us, incarnation)
        for number in range(first_id, first_id + count)
    )


def create_stream(metadata: Metadata, change: happened.StreamCreated) -> Metadata:
    """Create a stream without topics."""
    stream = StreamRecord(change.id, change.name, change.created_at_us)
    if not metadata.streams.fits(stream):
        return metadata
    return replace(metadata, streams=metadata.streams.add(stream))


def rename_stream(metadata: Metadata, change: happened.StreamRenamed) -> Metadata:
    """Give a stream another name."""
    if metadata.streams.id_by_name.get(change.name, change.id) != change.id:
        return metadata
    return _with_stream(metadata, change.id, lambda stream: replace(stream, name=change.name))


def delete_stream(metadata: Metadata, change: happened.StreamDeleted) -> Metadata:
    """Delete a stream, and the permissions that name it."""
    if metadata.streams.find(change.id) is None:
        return metadata
    remaining = replace(metadata, streams=metadata.streams.remove(change.id))
    return withdraw(remaining, change.id)


def purge_stream(metadata: Metadata, change: happened.StreamPurged) -> Metadata:
    """Give all partitions of a stream a new incarnation."""

    def in_stream(stream: StreamRecord) -> StreamRecord:
        topics = stream.topics
        emptied = {topic.id: _emptied(topic, change.incarnation) for topic in topics}
        return replace(stream, topics=replace(topics, by_id=emptied))

    return _with_stream(metadata, change.id, in_stream)


def create_topic(metadata: Metadata, change: happened.TopicCreated) -> Metadata:
    """Create a topic with its first partitions."""
    topic = TopicRecord(
        stream_id=change.stream_id,
        id=change.id,
        name=change.name,
        created_at_us=change.created_at_us,
        message_expiry_us=change.message_expiry_us,
        compression=change.compression,
        max_size_bytes=change.max_size_bytes,
        replication_factor=change.replication_factor,
        partitions=_new_partitions(
            0, change.partitions_count, change.created_at_us, change.incarnation
        ),
    )

    def in_stream(stream: StreamRecord) -> StreamRecord:
        if not stream.topics.fits(topic):
            return stream
        return replace(stream, topics=stream.topics.add(topic))

    return _with_stream(metadata, change.stream_id, in_stream)


def update_topic(metadata: Metadata, change: happened.TopicUpdated) -> Metadata:
    """Give a topic another name and other settings."""
    stream = metadata.streams.find(change.stream_id)
    if stream is None or stream.topics.id_by_name.get(change.name, change.id) != change.id:
        return metadata
    return _with_topic(
        metadata,
        change.stream_id,
        change.id,
        lambda topic: replace(
            topic,
            name=change.name,
            message_expiry_us=change.message_expiry_us,
            compression=change.compression,
            max_size_bytes=change.max_size_bytes,
            replication_factor=change.replication_factor,
        ),
    )


def delete_topic(metadata: Metadata, change: happened.TopicDeleted) -> Metadata:
    """Delete a topic, and the permissions that name it."""
    if metadata.find_topic(change.stream_id, change.id) is None:
        return metadata
    remaining = _with_stream(
        metadata,
        change.stream_id,
        lambda stream: replace(stream, topics=stream.topics.remove(change.id)),
    )
    return withdraw(remaining, change.stream_id, change.id)


def purge_topic(metadata: Metadata, change: happened.TopicPurged) -> Metadata:
    """Give all partitions of a topic a new incarnation."""
    return _with_topic(
        metadata, change.stream_id, change.id, lambda topic: _emptied(topic, change.incarnation)
    )


def add_partitions(metadata: Metadata, change: happened.PartitionsAdded) -> Metadata:
    """Add partitions behind the last one."""
    added = _new_partitions(change.first_id, change.count, change.created_at_us, change.incarnation)

    def in_topic(topic: TopicRecord) -> TopicRecord:
        if len(topic.partitions) != change.first_id:
            return topic
        return replace(topic, partitions=topic.partitions + added)

    return _with_topic(metadata, change.stream_id, change.topic_id, in_topic)


def remove_partitions(metadata: Metadata, change: happened.PartitionsRemoved) -> Metadata:
    """Delete the last partitions."""
    return _with_topic(
        metadata,
        change.stream_id,
        change.topic_id,
        lambda topic: replace(topic, partitions=topic.partitions[: change.kept_count]),
    )


def create_group(metadata: Metadata, change: happened.GroupCreated) -> Metadata:
    """Create a consumer group."""
    group = GroupRecord(change.id, change.name, change.incarnation)

    def in_topic(topic: TopicRecord) -> TopicRecord:
        return replace(topic, groups=topic.groups.add(group)) if topic.groups.fits(group) else topic

    return _with_topic(metadata, change.stream_id, change.topic_id, in_topic)


def delete_group(metadata: Metadata, change: happened.GroupDeleted) -> Metadata:
    """Delete a consumer group."""

    def in_topic(topic: TopicRecord) -> TopicRecord:
        if topic.groups.find(change.id) is None:
            return topic
        return replace(topic, groups=topic.groups.remove(change.id))

    return _with_topic(metadata, change.stream_id, change.topic_id, in_topic)

"""Applies changes to the state: a pure function, the same on the primary and on replicas.

A change that does not fit, such as one for a topic that does not exist, raises the version and
nothing else. Plans never make such a change; a repaired log may hold some.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from iggy_ref_server.metadata import changes as change_types
from iggy_ref_server.metadata.options import restore_options
from iggy_ref_server.metadata.state import (
    GroupRecord,
    Metadata,
    PartitionRecord,
    StreamRecord,
    TokenIndex,
    TokenRecord,
    TopicRecord,
    UserRecord,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from iggy_protocol import Permissions
    from iggy_ref_server.metadata.changes import Change


# Applies changes of users, their permissions and their tokens.


def _with_user(
    metadata: Metadata, user_id: int, change: Callable[[UserRecord], UserRecord]
) -> Metadata:
    user = metadata.users.find(user_id)
    if user is None:
        return metadata
    return replace(metadata, users=metadata.users.replace(change(user)))


def create_user(metadata: Metadata, change: change_types.UserCreated) -> Metadata:
    """Create a user."""
    user = UserRecord(
        id=change.id,
        generation=change.generation,
        username=change.username,
        password_hash=change.password_hash,
        status=change.status,
        created_at_us=change.created_at_us,
        permissions=change.permissions,
        options=restore_options(change.options),
    )
    if not metadata.users.fits(user):
        return metadata
    return replace(metadata, users=metadata.users.add(user))


def update_user(metadata: Metadata, change: change_types.UserUpdated) -> Metadata:
    """Give a user another name or status."""
    if metadata.users.id_by_name.get(change.username or "", change.id) != change.id:
        return metadata
    return _with_user(
        metadata,
        change.id,
        lambda user: replace(
            user,
            username=user.username if change.username is None else change.username,
            status=user.status if change.status is None else change.status,
            generation=user.generation if change.generation is None else change.generation,
        ),
    )


def delete_user(metadata: Metadata, change: change_types.UserDeleted) -> Metadata:
    """Delete a user, and its tokens."""
    if metadata.users.find(change.id) is None:
        return metadata
    return replace(
        metadata,
        users=metadata.users.remove(change.id),
        tokens=metadata.tokens.remove_user(change.id),
    )


def change_password(metadata: Metadata, change: change_types.PasswordChanged) -> Metadata:
    """Give a user another password."""
    return _with_user(
        metadata,
        change.user_id,
        lambda user: replace(user, password_hash=change.password_hash),
    )


def change_permissions(metadata: Metadata, change: change_types.PermissionsChanged) -> Metadata:
    """Give a user other permissions."""
    return _with_user(
        metadata, change.user_id, lambda user: replace(user, permissions=change.permissions)
    )


def create_token(metadata: Metadata, change: change_types.TokenCreated) -> Metadata:
    """Create a token of a user."""
    if metadata.users.find(change.user_id) is None:
        return metadata
    token = TokenRecord(change.user_id, change.name, change.hash, change.expires_at_us)
    return replace(metadata, tokens=metadata.tokens.add(token))


def delete_token(metadata: Metadata, change: change_types.TokenDeleted) -> Metadata:
    """Delete a token."""
    return replace(metadata, tokens=metadata.tokens.remove(change.user_id, change.name))


def expire_tokens(metadata: Metadata, change: change_types.TokensExpired) -> Metadata:
    """Delete all expired tokens."""
    kept = (token for token in metadata.tokens if not token.is_expired(change.now_us))
    return replace(metadata, tokens=TokenIndex.from_tokens(kept))


def _permissions_without(
    permissions: Permissions, stream_id: int, topic_id: int | None
) -> Permissions:
    if topic_id is None:
        kept = tuple(entry for entry in permissions.streams if entry.stream_id != stream_id)
        return replace(permissions, streams=kept)
    streams = tuple(
        replace(entry, topics=tuple(grant for grant in entry.topics if grant.topic_id != topic_id))
        if entry.stream_id == stream_id
        else entry
        for entry in permissions.streams
    )
    return replace(permissions, streams=streams)


def drop_permissions(metadata: Metadata, stream_id: int, topic_id: int | None = None) -> Metadata:
    """Drop all permissions that name a stream, or one topic of it.

    Their ids will be reused, and the permissions must not apply to the new objects.
    """
    users = metadata.users
    for user in metadata.users.by_id.values():
        if user.permissions is not None and user.permissions.streams:
            permissions = _permissions_without(user.permissions, stream_id, topic_id)
            if permissions != user.permissions:
                users = users.replace(replace(user, permissions=permissions))
    return metadata if users is metadata.users else replace(metadata, users=users)


# Applies changes of streams, topics, partitions and consumer groups.


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


def _purged_topic(topic: TopicRecord, generation: int) -> TopicRecord:
    partitions = tuple(replace(partition, generation=generation) for partition in topic.partitions)
    return replace(topic, partitions=partitions)


def _new_partitions(
    first_id: int, count: int, created_at_us: int, generation: int
) -> tuple[PartitionRecord, ...]:
    return tuple(
        PartitionRecord(number, created_at_us, generation)
        for number in range(first_id, first_id + count)
    )


def create_stream(metadata: Metadata, change: change_types.StreamCreated) -> Metadata:
    """Create a stream without topics."""
    stream = StreamRecord(
        change.id, change.name, change.created_at_us, options=restore_options(change.options)
    )
    if not metadata.streams.fits(stream):
        return metadata
    return replace(metadata, streams=metadata.streams.add(stream))


def rename_stream(metadata: Metadata, change: change_types.StreamRenamed) -> Metadata:
    """Give a stream another name."""
    if metadata.streams.id_by_name.get(change.name, change.id) != change.id:
        return metadata
    return _with_stream(metadata, change.id, lambda stream: replace(stream, name=change.name))


def delete_stream(metadata: Metadata, change: change_types.StreamDeleted) -> Metadata:
    """Delete a stream, and the permissions that name it."""
    if metadata.streams.find(change.id) is None:
        return metadata
    remaining = replace(metadata, streams=metadata.streams.remove(change.id))
    return drop_permissions(remaining, change.id)


def purge_stream(metadata: Metadata, change: change_types.StreamPurged) -> Metadata:
    """Give all partitions of a stream a new incarnation."""

    def in_stream(stream: StreamRecord) -> StreamRecord:
        topics = stream.topics
        emptied = {topic.id: _purged_topic(topic, change.generation) for topic in topics}
        return replace(stream, topics=replace(topics, by_id=emptied))

    return _with_stream(metadata, change.id, in_stream)


def create_topic(metadata: Metadata, change: change_types.TopicCreated) -> Metadata:
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
            0, change.partitions_count, change.created_at_us, change.generation
        ),
        options=restore_options(change.options),
        derived=frozenset(change.derived),
    )

    def in_stream(stream: StreamRecord) -> StreamRecord:
        if not stream.topics.fits(topic):
            return stream
        return replace(stream, topics=stream.topics.add(topic))

    return _with_stream(metadata, change.stream_id, in_stream)


def update_topic(metadata: Metadata, change: change_types.TopicUpdated) -> Metadata:
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
            derived=frozenset(change.derived),
        ),
    )


def delete_topic(metadata: Metadata, change: change_types.TopicDeleted) -> Metadata:
    """Delete a topic, and the permissions that name it."""
    if metadata.find_topic(change.stream_id, change.id) is None:
        return metadata
    remaining = _with_stream(
        metadata,
        change.stream_id,
        lambda stream: replace(stream, topics=stream.topics.remove(change.id)),
    )
    return drop_permissions(remaining, change.stream_id, change.id)


def purge_topic(metadata: Metadata, change: change_types.TopicPurged) -> Metadata:
    """Give all partitions of a topic a new incarnation."""
    return _with_topic(
        metadata, change.stream_id, change.id, lambda topic: _purged_topic(topic, change.generation)
    )


def add_partitions(metadata: Metadata, change: change_types.PartitionsAdded) -> Metadata:
    """Add partitions behind the last one."""
    added = _new_partitions(change.first_id, change.count, change.created_at_us, change.generation)

    def in_topic(topic: TopicRecord) -> TopicRecord:
        if len(topic.partitions) != change.first_id:
            return topic
        return replace(topic, partitions=topic.partitions + added)

    return _with_topic(metadata, change.stream_id, change.topic_id, in_topic)


def remove_partitions(metadata: Metadata, change: change_types.PartitionsRemoved) -> Metadata:
    """Delete the last partitions."""
    return _with_topic(
        metadata,
        change.stream_id,
        change.topic_id,
        lambda topic: replace(topic, partitions=topic.partitions[: change.kept_count]),
    )


def create_group(metadata: Metadata, change: change_types.GroupCreated) -> Metadata:
    """Create a consumer group."""
    group = GroupRecord(change.id, change.name, change.generation)

    def in_topic(topic: TopicRecord) -> TopicRecord:
        return replace(topic, groups=topic.groups.add(group)) if topic.groups.fits(group) else topic

    return _with_topic(metadata, change.stream_id, change.topic_id, in_topic)


def delete_group(metadata: Metadata, change: change_types.GroupDeleted) -> Metadata:
    """Delete a consumer group."""

    def in_topic(topic: TopicRecord) -> TopicRecord:
        if topic.groups.find(change.id) is None:
            return topic
        return replace(topic, groups=topic.groups.remove(change.id))

    return _with_topic(metadata, change.stream_id, change.topic_id, in_topic)


_APPLIERS: Mapping[type[Any], Callable[[Metadata, Any], Metadata]] = {
    change_types.StreamCreated: create_stream,
    change_types.StreamRenamed: rename_stream,
    change_types.StreamDeleted: delete_stream,
    change_types.StreamPurged: purge_stream,
    change_types.TopicCreated: create_topic,
    change_types.TopicUpdated: update_topic,
    change_types.TopicDeleted: delete_topic,
    change_types.TopicPurged: purge_topic,
    change_types.PartitionsAdded: add_partitions,
    change_types.PartitionsRemoved: remove_partitions,
    change_types.GroupCreated: create_group,
    change_types.GroupDeleted: delete_group,
    change_types.UserCreated: create_user,
    change_types.UserUpdated: update_user,
    change_types.UserDeleted: delete_user,
    change_types.PasswordChanged: change_password,
    change_types.PermissionsChanged: change_permissions,
    change_types.TokenCreated: create_token,
    change_types.TokenDeleted: delete_token,
    change_types.TokensExpired: expire_tokens,
}


def apply(metadata: Metadata, change: Change) -> Metadata:
    """Return the state after a change; its version is one higher."""
    after = _APPLIERS[type(change)](metadata, change)
    # A change that starts no new generation has no such field, or None.
    given = getattr(change, "generation", None) or 0
    return replace(
        after,
        version=metadata.version + 1,
        last_generation=max(metadata.last_generation, given),
    )

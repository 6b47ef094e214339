"""Convert permissions from and to JSON, where streams and topics are objects keyed by ids."""

from __future__ import annotations

import msgspec

from iggy_protocol.model.user import (
    GlobalPermissions,
    Permissions,
    StreamPermissions,
    TopicPermissions,
)
from iggy_protocol.rest.shapes import (
    GlobalPermissionsShape,
    PermissionsShape,
    StreamPermissionsShape,
    TopicPermissionsShape,
)

__all__ = ["permissions_from_shape", "permissions_to_shape"]


def permissions_from_shape(shape: PermissionsShape | None) -> Permissions | None:
    """Read permissions, by ascending ids."""
    if shape is None:
        return None
    server = GlobalPermissions(**msgspec.structs.asdict(shape.global_))
    streams = (_stream_from_shape(*entry) for entry in sorted((shape.streams or {}).items()))
    return Permissions(server, tuple(streams))


def _stream_from_shape(stream_id: int, shape: StreamPermissionsShape) -> StreamPermissions:
    flags = msgspec.structs.asdict(shape)
    flags["topics"] = tuple(
        TopicPermissions(topic_id, **msgspec.structs.asdict(topic))
        for topic_id, topic in sorted((shape.topics or {}).items())
    )
    return StreamPermissions(stream_id, **flags)


def permissions_to_shape(permissions: Permissions | None) -> PermissionsShape | None:
    """Write permissions; nothing below a level is ``null`` there."""
    if permissions is None:
        return None
    server = msgspec.convert(permissions.server, GlobalPermissionsShape, from_attributes=True)
    streams = {stream.stream_id: _stream_to_shape(stream) for stream in permissions.streams}
    return PermissionsShape(server, streams or None)


def _stream_to_shape(stream: StreamPermissions) -> StreamPermissionsShape:
    topics = {
        topic.topic_id: msgspec.convert(topic, TopicPermissionsShape, from_attributes=True)
        for topic in stream.topics
    }
    return StreamPermissionsShape(
        manage_stream=stream.manage_stream,
        read_stream=stream.read_stream,
        manage_topics=stream.manage_topics,
        read_topics=stream.read_topics,
        poll_messages=stream.poll_messages,
        send_messages=stream.send_messages,
        topics=topics or None,
    )

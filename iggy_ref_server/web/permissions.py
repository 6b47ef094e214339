"""Permissions between their JSON and what the server knows.

Owns both directions. In JSON streams and topics are objects keyed by ids, here they are tuples.
"""

from __future__ import annotations

import msgspec

from iggy_protocol import GlobalPermissions, Permissions, StreamPermissions, TopicPermissions
from iggy_protocol.rest import (
    GlobalPermissionsShape,
    PermissionsShape,
    StreamPermissionsShape,
    TopicPermissionsShape,
)

__all__ = ["read_permissions", "show_permissions"]


def read_permissions(shape: PermissionsShape | None) -> Permissions | None:
    """Read the permissions of a request."""
    if shape is None:
        return None
    server = GlobalPermissions(**msgspec.structs.asdict(shape.global_))
    streams = (_read_stream(*entry) for entry in sorted((shape.streams or {}).items()))
    return Permissions(server, tuple(streams))


def _read_stream(stream_id: int, shape: StreamPermissionsShape) -> StreamPermissions:
    flags = msgspec.structs.asdict(shape)
    flags["topics"] = tuple(
        TopicPermissions(topic_id, **msgspec.structs.asdict(topic))
        for topic_id, topic in sorted((shape.topics or {}).items())
    )
    return StreamPermissions(stream_id, **flags)


def show_permissions(permissions: Permissions | None) -> PermissionsShape | None:
    """Write the permissions of an answer; nothing below a level is ``null`` there."""
    if permissions is None:
        return None
    server = msgspec.convert(permissions.server, GlobalPermissionsShape, from_attributes=True)
    return PermissionsShape(server, _show_streams(permissions.streams))


def _show_streams(
    streams: tuple[StreamPermissions, ...],
) -> dict[int, StreamPermissionsShape] | None:
    if not streams:
        return None
    return {
        stream.stream_id: StreamPermissionsShape(
            manage_stream=stream.manage_stream,
            read_stream=stream.read_stream,
            manage_topics=stream.manage_topics,
            read_topics=stream.read_topics,
            poll_messages=stream.poll_messages,
            send_messages=stream.send_messages,
            topics=_show_topics(stream.topics),
        )
        for stream in streams
    }


def _show_topics(topics: tuple[TopicPermissions, ...]) -> dict[int, TopicPermissionsShape] | None:
    if not topics:
        return None
    return {
        topic.topic_id: TopicPermissionsShape(
            manage_topic=topic.manage_topic,
            read_topic=topic.read_topic,
            poll_messages=topic.poll_messages,
            send_messages=topic.send_messages,
        )
        for topic in topics
    }

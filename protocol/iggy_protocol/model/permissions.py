"""Permissions of a user: global, in a stream, in a topic."""

from __future__ import annotations

from iggy_protocol.records import record

__all__ = ["GlobalPermissions", "Permissions", "StreamPermissions", "TopicPermissions"]


@record
class GlobalPermissions:
    """Rights on the whole server."""

    manage_servers: bool = False
    read_servers: bool = False
    manage_users: bool = False
    read_users: bool = False
    manage_streams: bool = False
    read_streams: bool = False
    manage_topics: bool = False
    read_topics: bool = False
    poll_messages: bool = False
    send_messages: bool = False


@record
class TopicPermissions:
    """Rights on one topic."""

    topic_id: int
    manage_topic: bool = False
    read_topic: bool = False
    poll_messages: bool = False
    send_messages: bool = False


@record
class StreamPermissions:
    """Rights on one stream and, more finely, on some of its topics."""

    stream_id: int
    manage_stream: bool = False
    read_stream: bool = False
    manage_topics: bool = False
    read_topics: bool = False
    poll_messages: bool = False
    send_messages: bool = False
    topics: tuple[TopicPermissions, ...] = ()


@record
class Permissions:
    """All rights of a user; where a stream is named twice, the later entry counts."""

    server: GlobalPermissions = GlobalPermissions()
    streams: tuple[StreamPermissions, ...] = ()

"""Permissions: what a command requires of its user, and what a user was granted.

A ``Requirement`` lists flags. A user may run a command with any one of them, on the server, on the
stream or on the topic of the command. Grants add up; a flag that is off takes nothing away.
``Rights`` is computed once from the permissions of a user.

Knows no commands: the command table says which command has which requirement.
"""

from __future__ import annotations

from dataclasses import fields

from iggy_protocol import (
    GlobalPermissions,
    Permissions,
    StreamPermissions,
    TopicPermissions,
    record,
)

RIGHTS_CACHED_MAX = 1024


@record
class Requirement:
    """Flags of ``GlobalPermissions``, ``StreamPermissions`` and ``TopicPermissions``: any will do.

    Attributes:
        name: how the documentation calls it.
        any_user: whether every user fulfils it.
    """

    name: str
    server: frozenset[str] = frozenset()
    stream: frozenset[str] = frozenset()
    topic: frozenset[str] = frozenset()
    any_user: bool = False


def _any_of(name: str, server: str, stream: str = "", topic: str = "") -> Requirement:
    return Requirement(
        name, frozenset(server.split()), frozenset(stream.split()), frozenset(topic.split())
    )


ANY_USER = Requirement("any user", any_user=True)
READ_SERVERS = _any_of("read servers", "manage_servers read_servers")
MANAGE_SERVERS = _any_of("manage servers", "manage_servers")
READ_USERS = _any_of("read users", "manage_users read_users")
MANAGE_USERS = _any_of("manage users", "manage_users")
READ_STREAMS = _any_of("read streams", "manage_streams read_streams")
CREATE_STREAM = _any_of("create a stream", "manage_streams")
READ_STREAM = _any_of("read the stream", "manage_streams read_streams", "manage_stream read_stream")
MANAGE_STREAM = _any_of("manage the stream", "manage_streams", "manage_stream")
READ_TOPICS = _any_of(
    "read topics",
    "manage_streams read_streams manage_topics read_topics",
    "manage_stream read_stream manage_topics read_topics",
)
READ_TOPIC = _any_of(
    "read the topic",
    "manage_streams read_streams manage_topics read_topics",
    "manage_stream read_stream manage_topics read_topics",
    "manage_topic read_topic",
)
CREATE_TOPIC = _any_of(
    "create a topic", "manage_streams manage_topics", "manage_stream manage_topics"
)
MANAGE_TOPIC = _any_of(
    "manage the topic",
    "manage_streams manage_topics",
    "manage_stream manage_topics",
    "manage_topic",
)
POLL_MESSAGES = _any_of(
    "poll messages",
    "manage_streams read_streams manage_topics read_topics poll_messages",
    "manage_stream read_stream manage_topics read_topics poll_messages",
    "manage_topic read_topic poll_messages",
)
SEND_MESSAGES = _any_of(
    "send messages",
    "manage_streams manage_topics send_messages",
    "manage_stream manage_topics send_messages",
    "manage_topic send_messages",
)
USE_PARTITION = Requirement(
    "poll or send messages",
    POLL_MESSAGES.server | SEND_MESSAGES.server,
    POLL_MESSAGES.stream | SEND_MESSAGES.stream,
    POLL_MESSAGES.topic | SEND_MESSAGES.topic,
)


class Rights:
    """The flags that one user was granted: on the server, on streams and on topics."""

    __slots__ = ("_server", "_streams", "_topics")

    def __init__(self, permissions: Permissions) -> None:
        self._server = _granted(permissions.server)
        self._streams: dict[int, frozenset[str]] = {}
        self._topics: dict[tuple[int, int], frozenset[str]] = {}
        # Where a stream or a topic is named twice, the later entry counts.
        for stream in {stream.stream_id: stream for stream in permissions.streams}.values():
            self._streams[stream.stream_id] = _granted(stream)
            for topic in stream.topics:
                self._topics[stream.stream_id, topic.topic_id] = _granted(topic)

    def fulfil(
        self, requirement: Requirement, stream_id: int | None = None, topic_id: int | None = None
    ) -> bool:
        """Tell whether a command with this requirement is allowed on a stream or topic."""
        if requirement.any_user or not self._server.isdisjoint(requirement.server):
            return True
        if stream_id is None:
            return False
        if not requirement.stream.isdisjoint(self._streams.get(stream_id, ())):
            return True
        return topic_id is not None and not requirement.topic.isdisjoint(
            self._topics.get((stream_id, topic_id), ())
        )


def _granted(
    granted: GlobalPermissions | StreamPermissions | TopicPermissions,
) -> frozenset[str]:
    return frozenset(flag.name for flag in fields(granted) if getattr(granted, flag.name) is True)


# Permissions never change, so their rights are kept, by identity: to hash the permissions of a user
# with many streams would cost more than the question.
_cached_rights: dict[int, tuple[Permissions, Rights]] = {}


def is_allowed(
    requirement: Requirement,
    permissions: Permissions | None,
    *,
    stream_id: int | None = None,
    topic_id: int | None = None,
) -> bool:
    """Tell whether permissions fulfil a requirement on a stream or topic."""
    if permissions is None:
        return requirement.any_user
    kept = _cached_rights.get(id(permissions))
    if kept is None:
        if len(_cached_rights) >= RIGHTS_CACHED_MAX:
            _cached_rights.clear()
        kept = _cached_rights[id(permissions)] = (permissions, Rights(permissions))
    return kept[1].fulfil(requirement, stream_id, topic_id)

"""Which permission allows which command.

``REQUIREMENTS`` has one row for each command. A user may run it with any of the flags of the row,
on the server, on the stream or on the topic of the command. Grants add up; a flag that is off takes
nothing away. ``Rights`` is computed once from the permissions of a user.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from iggy_protocol import CommandCode, record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iggy_protocol import Permissions

__all__ = [
    "OWN_ACCOUNT_COMMANDS",
    "REQUIREMENTS",
    "UNAUTHENTICATED_COMMANDS",
    "Requirement",
    "Rights",
    "is_allowed",
]

RIGHTS_CACHED_MAX = 1024

# What a client may ask before it has logged in.
UNAUTHENTICATED_COMMANDS = frozenset(
    {
        CommandCode.PING,
        CommandCode.LOGIN_USER,
        CommandCode.LOGIN_WITH_PERSONAL_ACCESS_TOKEN,
    }
)

# What a user may do to the own account without any permission.
OWN_ACCOUNT_COMMANDS = frozenset({CommandCode.GET_USER, CommandCode.CHANGE_PASSWORD})


@record
class Requirement:
    """Flags of ``GlobalPermissions``, ``StreamPermissions`` and ``TopicPermissions``: any will do.

    A command that needs none but a login says so with ``any_user``.
    """

    server: frozenset[str] = frozenset()
    stream: frozenset[str] = frozenset()
    topic: frozenset[str] = frozenset()
    any_user: bool = False


def _any_of(server: str = "", stream: str = "", topic: str = "") -> Requirement:
    return Requirement(
        frozenset(server.split()), frozenset(stream.split()), frozenset(topic.split())
    )


_LOGIN = Requirement(any_user=True)
_READ_SERVER = _any_of("manage_servers read_servers")
_MANAGE_SERVER = _any_of("manage_servers")
_READ_USERS = _any_of("manage_users read_users")
_MANAGE_USERS = _any_of("manage_users")
_READ_STREAMS = _any_of("manage_streams read_streams")
_CREATE_STREAM = _any_of("manage_streams")
_READ_STREAM = _any_of("manage_streams read_streams", "manage_stream read_stream")
_MANAGE_STREAM = _any_of("manage_streams", "manage_stream")
_READ_TOPICS = _any_of(
    "manage_streams read_streams manage_topics read_topics",
    "manage_stream read_stream manage_topics read_topics",
)
_READ_TOPIC = _any_of(
    "manage_streams read_streams manage_topics read_topics",
    "manage_stream read_stream manage_topics read_topics",
    "manage_topic read_topic",
)
_CREATE_TOPIC = _any_of("manage_streams manage_topics", "manage_stream manage_topics")
_MANAGE_TOPIC = _any_of(
    "manage_streams manage_topics", "manage_stream manage_topics", "manage_topic"
)
_POLL = _any_of(
    "manage_streams read_streams manage_topics read_topics poll_messages",
    "manage_stream read_stream manage_topics read_topics poll_messages",
    "manage_topic read_topic poll_messages",
)
_SEND = _any_of(
    "manage_streams manage_topics send_messages",
    "manage_stream manage_topics send_messages",
    "manage_topic send_messages",
)

REQUIREMENTS: Mapping[CommandCode, Requirement] = MappingProxyType(
    {
        CommandCode.PING: _LOGIN,
        CommandCode.GET_STATS: _READ_SERVER,
        # The archive holds logs, processes and the configuration, so reading rights are not enough.
        CommandCode.GET_SNAPSHOT: _MANAGE_SERVER,
        CommandCode.GET_CLUSTER_METADATA: _LOGIN,
        CommandCode.GET_ME: _LOGIN,
        CommandCode.GET_CLIENT: _READ_SERVER,
        CommandCode.GET_CLIENTS: _READ_SERVER,
        CommandCode.GET_USER: _READ_USERS,
        CommandCode.GET_USERS: _READ_USERS,
        CommandCode.CREATE_USER: _MANAGE_USERS,
        CommandCode.DELETE_USER: _MANAGE_USERS,
        CommandCode.UPDATE_USER: _MANAGE_USERS,
        CommandCode.UPDATE_PERMISSIONS: _MANAGE_USERS,
        CommandCode.CHANGE_PASSWORD: _MANAGE_USERS,
        CommandCode.LOGIN_USER: _LOGIN,
        CommandCode.LOGOUT_USER: _LOGIN,
        CommandCode.GET_PERSONAL_ACCESS_TOKENS: _LOGIN,
        CommandCode.CREATE_PERSONAL_ACCESS_TOKEN: _LOGIN,
        CommandCode.DELETE_PERSONAL_ACCESS_TOKEN: _LOGIN,
        CommandCode.LOGIN_WITH_PERSONAL_ACCESS_TOKEN: _LOGIN,
        CommandCode.POLL_MESSAGES: _POLL,
        CommandCode.SEND_MESSAGES: _SEND,
        CommandCode.FLUSH_UNSAVED_BUFFER: _SEND,
        CommandCode.GET_CONSUMER_OFFSET: _POLL,
        CommandCode.STORE_CONSUMER_OFFSET: _POLL,
        CommandCode.DELETE_CONSUMER_OFFSET: _POLL,
        CommandCode.GET_STREAM: _READ_STREAM,
        CommandCode.GET_STREAMS: _READ_STREAMS,
        CommandCode.CREATE_STREAM: _CREATE_STREAM,
        CommandCode.DELETE_STREAM: _MANAGE_STREAM,
        CommandCode.UPDATE_STREAM: _MANAGE_STREAM,
        CommandCode.PURGE_STREAM: _MANAGE_STREAM,
        CommandCode.GET_TOPIC: _READ_TOPIC,
        CommandCode.GET_TOPICS: _READ_TOPICS,
        CommandCode.CREATE_TOPIC: _CREATE_TOPIC,
        CommandCode.DELETE_TOPIC: _MANAGE_TOPIC,
        CommandCode.UPDATE_TOPIC: _MANAGE_TOPIC,
        CommandCode.PURGE_TOPIC: _MANAGE_TOPIC,
        CommandCode.CREATE_PARTITIONS: _MANAGE_TOPIC,
        CommandCode.DELETE_PARTITIONS: _MANAGE_TOPIC,
        CommandCode.DELETE_SEGMENTS: _MANAGE_TOPIC,
        CommandCode.GET_CONSUMER_GROUP: _READ_TOPIC,
        CommandCode.GET_CONSUMER_GROUPS: _READ_TOPIC,
        CommandCode.CREATE_CONSUMER_GROUP: _READ_TOPIC,
        CommandCode.DELETE_CONSUMER_GROUP: _READ_TOPIC,
        CommandCode.JOIN_CONSUMER_GROUP: _READ_TOPIC,
        CommandCode.LEAVE_CONSUMER_GROUP: _READ_TOPIC,
    }
)


class Rights:
    """What one user may do."""

    __slots__ = ("_everywhere", "_in_stream", "_in_topic")

    def __init__(self, permissions: Permissions) -> None:
        self._everywhere = frozenset(
            code
            for code, needed in REQUIREMENTS.items()
            if needed.any_user or _holds(permissions.server, needed.server)
        )
        self._in_stream: dict[int, frozenset[CommandCode]] = {}
        self._in_topic: dict[tuple[int, int], frozenset[CommandCode]] = {}
        # Where a stream or a topic is named twice, the later entry counts.
        for stream in {stream.stream_id: stream for stream in permissions.streams}.values():
            self._in_stream[stream.stream_id] = frozenset(
                code for code, needed in REQUIREMENTS.items() if _holds(stream, needed.stream)
            )
            for topic in stream.topics:
                self._in_topic[stream.stream_id, topic.topic_id] = frozenset(
                    code for code, needed in REQUIREMENTS.items() if _holds(topic, needed.topic)
                )

    def allow(
        self, code: CommandCode, stream_id: int | None = None, topic_id: int | None = None
    ) -> bool:
        """Tell whether a command on a stream or topic is allowed.

        The ``OWN_ACCOUNT_COMMANDS`` on the user's own account are allowed without asking here.
        """
        if code in self._everywhere:
            return True
        if stream_id is None:
            return False
        if code in self._in_stream.get(stream_id, ()):
            return True
        return topic_id is not None and code in self._in_topic.get((stream_id, topic_id), ())


# Permissions never change, so their rights are kept, by identity: to hash the permissions of a user
# with many streams would cost more than the question.
_cached_rights: dict[int, tuple[Permissions, Rights]] = {}


def is_allowed(
    code: CommandCode,
    permissions: Permissions | None,
    *,
    stream_id: int | None = None,
    topic_id: int | None = None,
) -> bool:
    """Tell whether permissions allow a command on a stream or topic; see ``Rights.allow``."""
    if permissions is None:
        return REQUIREMENTS[code].any_user
    kept = _cached_rights.get(id(permissions))
    if kept is None:
        if len(_cached_rights) >= RIGHTS_CACHED_MAX:
            _cached_rights.clear()
        kept = _cached_rights[id(permissions)] = (permissions, Rights(permissions))
    return kept[1].allow(code, stream_id, topic_id)


def _holds(granted: object, flags: frozenset[str]) -> bool:
    return any(getattr(granted, flag) for flag in flags)

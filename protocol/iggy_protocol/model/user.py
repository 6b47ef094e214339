"""Users, permissions and personal access tokens."""

from __future__ import annotations

from dataclasses import field
from enum import IntEnum

from iggy_protocol.options import NO_OPTIONS, Options
from iggy_protocol.records import optional_field, record

# Permissions of a user: global, in a stream, in a topic.


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


class UserStatus(IntEnum):
    """Whether a user may log in."""

    ACTIVE = 1
    INACTIVE = 2


@record
class User:
    """A user; root is number 0.

    Attributes:
        options: what a client has set; servers before 0.9 have none.
        derived_options: what the server chose; servers before 0.10 do not tell.
    """

    id: int
    created_at_us: int
    status: UserStatus
    username: str
    options: Options = optional_field(default=NO_OPTIONS, kw_only=True)
    derived_options: Options = optional_field(default=NO_OPTIONS, kw_only=True)


@record
class UserDetails(User):
    """A user with its permissions; ``None`` means none at all."""

    permissions: Permissions | None = None


@record
class Identity:
    """Who a login made of this connection."""

    user_id: int


@record
class PersonalAccessTokenInfo:
    """A token by name; the token itself is shown only once, when it is created."""

    name: str
    expires_at_us: int | None = None


@record
class RawPersonalAccessToken:
    """The secret text of a new token."""

    token: str = field(repr=False)

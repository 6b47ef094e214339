"""Users and their permissions in the official spelling.

Permissions of streams and topics stand in dictionaries by id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TypeVar

import iggy_protocol
from iggy_protocol import GlobalPermissions, record
from iggy_sdk.compat.choices import UserStatus
from iggy_sdk.compat.headers import UserHeaders, options_as_headers
from iggy_sdk.compat.records import Reported, Told
from iggy_sdk.compat.variants import ByValue

AnyUser = TypeVar("AnyUser", bound=iggy_protocol.User)


@record(kw_only=True)
class TopicPermissions:
    """Rights on one topic."""

    manage_topic: bool = False
    read_topic: bool = False
    poll_messages: bool = False
    send_messages: bool = False


@record(kw_only=True)
class StreamPermissions:
    """Rights on one stream and, by their ids, on some of its topics."""

    manage_stream: bool = False
    read_stream: bool = False
    manage_topics: bool = False
    read_topics: bool = False
    poll_messages: bool = False
    send_messages: bool = False
    topics: Mapping[int, TopicPermissions] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "topics", dict(self.topics) if self.topics else None)


class Permissions(ByValue):
    """All rights of a user: on the server, and on some streams by their ids."""

    __slots__ = ("global_permissions", "streams")
    __match_args__ = ("global_permissions", "streams")

    def __init__(
        self,
        global_permissions: GlobalPermissions | None = None,
        streams: Mapping[int, StreamPermissions] | None = None,
    ) -> None:
        """Take the rights; without any the user may do nothing.

        Args:
            global_permissions: rights on the whole server.
            streams: rights on single streams; an empty dictionary counts as None.
        """
        self.global_permissions: GlobalPermissions = global_permissions or GlobalPermissions()
        self.streams: dict[int, StreamPermissions] | None = dict(streams) if streams else None


def own_permissions(
    permissions: Permissions | iggy_protocol.Permissions | None,
) -> iggy_protocol.Permissions | None:
    """Return permissions as this SDK spells them, in either spelling."""
    if not isinstance(permissions, Permissions):
        return permissions
    return iggy_protocol.Permissions(
        permissions.global_permissions,
        tuple(_own_stream(id_, given) for id_, given in (permissions.streams or {}).items()),
    )


def _own_stream(stream_id: int, given: StreamPermissions) -> iggy_protocol.StreamPermissions:
    flags = {one.name: getattr(given, one.name) for one in fields(StreamPermissions)}
    flags["topics"] = tuple(
        iggy_protocol.TopicPermissions(
            topic_id,
            **{one.name: getattr(topic, one.name) for one in fields(TopicPermissions)},
        )
        for topic_id, topic in (given.topics or {}).items()
    )
    return iggy_protocol.StreamPermissions(stream_id, **flags)


def permissions_of(own: iggy_protocol.Permissions) -> Permissions:
    """Return permissions in the official spelling."""
    return Permissions(own.server, {stream.stream_id: _stream_of(stream) for stream in own.streams})


def _stream_of(own: iggy_protocol.StreamPermissions) -> StreamPermissions:
    flags = {one.name: getattr(own, one.name) for one in fields(StreamPermissions)}
    flags["topics"] = {
        topic.topic_id: TopicPermissions(
            **{one.name: getattr(topic, one.name) for one in fields(TopicPermissions)}
        )
        for topic in own.topics
    }
    return StreamPermissions(**flags)


# Users.


class UserInfoAttributes(Reported[AnyUser]):
    """The attributes of UserInfo and UserInfoDetails."""

    __slots__ = ()
    id: Told[int] = Told[int]()
    created_at: Told[int] = Told[int]("created_at_us")
    username: Told[str] = Told[str]()

    @property
    def status(self) -> UserStatus:
        """Whether the user may log in."""
        return UserStatus(self.own.status)

    @property
    def options(self) -> UserHeaders:
        """What a client has set."""
        return options_as_headers(self.own.options)

    @property
    def derived_options(self) -> UserHeaders:
        """What the server chose."""
        return options_as_headers(self.own.derived_options)


class UserInfo(UserInfoAttributes[iggy_protocol.User]):
    """A user."""

    __slots__ = ()


class UserInfoDetails(UserInfoAttributes[iggy_protocol.UserDetails]):
    """A user with its permissions."""

    __slots__ = ()

    @property
    def permissions(self) -> Permissions | None:
        """What the user may do; None means nothing at all."""
        own = self.own.permissions
        return None if own is None else permissions_of(own)


class IdentityInfo(Reported[iggy_protocol.Identity]):
    """Who a login made of the connection."""

    __slots__ = ()
    user_id: Told[int] = Told[int]()

    @property
    def access_token(self) -> None:
        """None: this SDK keeps the token of a login over HTTP to itself, and renews it."""

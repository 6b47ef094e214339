"""What changes of metadata are about, under the official names; ``own`` is the record of this SDK.

A ``created_op`` tells a stream or topic from an older one with the same id.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeVar

import iggy_protocol
from iggy_protocol import (
    NEVER_EXPIRES,
    LeaveReason,
    MetadataChange,
    MetadataItem,
    PermissionsReason,
    SessionReason,
    TokenReason,
)
from iggy_sdk.compat.choices import UserStatus
from iggy_sdk.compat.headers import UserHeaders, options_as_headers
from iggy_sdk.compat.records import Reported, Told
from iggy_sdk.compat.users import Permissions, permissions_of

WithOptions = TypeVar(
    "WithOptions",
    iggy_protocol.StreamState,
    iggy_protocol.TopicState,
    iggy_protocol.TopicChanged,
    iggy_protocol.UserState,
)
R_co = TypeVar("R_co", covariant=True)


class ReportedWithOptions(Reported[WithOptions]):
    """A resource that has options, unless the server could not read them."""

    __slots__ = ()

    @property
    def options(self) -> UserHeaders | None:
        """What a client has set."""
        own = self.own.options
        return None if own is None else options_as_headers(own.explicit)

    @property
    def derived_options(self) -> UserHeaders | None:
        """What the server chose."""
        own = self.own.options
        return None if own is None else options_as_headers(own.derived)

    @property
    def options_unreadable(self) -> bool:
        """Whether the server could not read the options."""
        return self.own.options is None


# Streams.


class MetadataStreamChange(ReportedWithOptions[iggy_protocol.StreamState]):
    """A stream that was created or updated, or that exists."""

    __slots__ = ()
    stream_id: Told[int] = Told[int]("key.id")
    stream_created_op: Told[int] = Told[int]("key.created_op")
    created_at: Told[int] = Told[int]("created_at_us")
    name: Told[str] = Told[str]()


class MetadataStreamDeleted(Reported[iggy_protocol.StreamRemoved]):
    """A stream that was deleted."""

    __slots__ = ()
    stream_id: Told[int] = Told[int]("key.id")
    stream_created_op: Told[int] = Told[int]("key.created_op")
    created_at: Told[int] = Told[int]("created_at_us")
    name: Told[str] = Told[str]()
    requested_op: Told[int | None] = Told[int | None]()


# Topics and what is in them.


class MetadataTopicChange(ReportedWithOptions[iggy_protocol.TopicChanged]):
    """A topic that was created or updated."""

    __slots__ = ()
    stream_id: Told[int] = Told[int]("key.stream.id")
    stream_created_op: Told[int] = Told[int]("key.stream.created_op")
    topic_id: Told[int] = Told[int]("key.id")
    topic_created_op: Told[int] = Told[int]("key.created_op")
    created_at: Told[int] = Told[int]("created_at_us")
    name: Told[str] = Told[str]()
    partitions_count: Told[int] = Told[int]()


class MetadataTopicItem(ReportedWithOptions[iggy_protocol.TopicState]):
    """A topic that exists."""

    __slots__ = ()
    stream_id: Told[int] = Told[int]("key.stream.id")
    stream_created_op: Told[int] = Told[int]("key.stream.created_op")
    topic_id: Told[int] = Told[int]("key.id")
    topic_created_op: Told[int] = Told[int]("key.created_op")
    created_at: Told[int] = Told[int]("created_at_us")
    name: Told[str] = Told[str]()


class InTopic(Reported[R_co]):
    """What stands in a topic."""

    __slots__ = ()
    stream_id: Told[int] = Told[int]("key.stream.id")
    stream_created_op: Told[int] = Told[int]("key.stream.created_op")
    topic_id: Told[int] = Told[int]("key.id")
    topic_created_op: Told[int] = Told[int]("key.created_op")


class MetadataTopicDeleted(InTopic[iggy_protocol.TopicRemoved]):
    """A topic that was deleted."""

    __slots__ = ()
    created_at: Told[int] = Told[int]("created_at_us")
    name: Told[str] = Told[str]()
    requested_op: Told[int | None] = Told[int | None]()


class MetadataPartitionsItem(InTopic[iggy_protocol.PartitionsState]):
    """The number of partitions of a topic that exists."""

    __slots__ = ()
    partitions_count: Told[int] = Told[int]()


class MetadataPartitionsChanged(InTopic[iggy_protocol.PartitionsChanged]):
    """More or fewer partitions."""

    __slots__ = ()
    partitions_count: Told[int] = Told[int]()
    requested_op: Told[int | None] = Told[int | None]()

    @property
    def removed_partition_ids(self) -> list[int]:
        """The partitions that are gone."""
        return list(self.own.removed)


class MetadataConsumerGroupItem(InTopic[iggy_protocol.ConsumerGroupState]):
    """A consumer group that exists."""

    __slots__ = ()
    group_id: Told[int] = Told[int]()
    name: Told[str] = Told[str]()


class MetadataConsumerGroupCreated(InTopic[iggy_protocol.ConsumerGroupAdded]):
    """A consumer group that was created, and how many the topic has now."""

    __slots__ = ()
    group_id: Told[int] = Told[int]()
    name: Told[str] = Told[str]()
    consumer_groups_count: Told[int] = Told[int]("groups_count")


class MetadataConsumerGroupDeleted(InTopic[iggy_protocol.ConsumerGroupRemoved]):
    """A consumer group that was deleted, and how many the topic has now."""

    __slots__ = ()
    group_id: Told[int] = Told[int]()
    name: Told[str] = Told[str]()
    consumer_groups_count: Told[int] = Told[int]("groups_count")
    requested_op: Told[int | None] = Told[int | None]()


class MetadataMemberItem(InTopic[iggy_protocol.MemberState]):
    """A member of a group and the partitions it owns."""

    __slots__ = ()
    group_id: Told[int] = Told[int]()
    member_id: Told[int] = Told[int]()
    client_id: Told[int] = Told[int]()

    @property
    def partition_ids(self) -> list[int]:
        """The partitions it owns."""
        return list(self.own.partitions)


class MetadataMemberJoined(InTopic[iggy_protocol.MemberAdded]):
    """A member that joined, and how many the group has now."""

    __slots__ = ()
    group_id: Told[int] = Told[int]()
    member_id: Told[int] = Told[int]()
    client_id: Told[int] = Told[int]()
    members_count: Told[int] = Told[int]()

    @property
    def partition_ids(self) -> list[int]:
        """The partitions it owns."""
        return list(self.own.partitions)


class MetadataMemberLeftReason(IntEnum):
    """Why a member is gone."""

    Left = LeaveReason.LEFT
    SessionEnded = LeaveReason.SESSION_ENDED

    def __str__(self) -> str:
        return LeaveReason(self).name.lower()


class MetadataMemberLeft(InTopic[iggy_protocol.MemberRemoved]):
    """A member that is gone, and how many the group has now."""

    __slots__ = ()
    group_id: Told[int] = Told[int]()
    member_id: Told[int] = Told[int]()
    client_id: Told[int] = Told[int]()
    members_count: Told[int] = Told[int]()

    @property
    def reason(self) -> MetadataMemberLeftReason:
        """Why it is gone."""
        return MetadataMemberLeftReason(self.own.reason)


class MetadataPartitionHandedOver(InTopic[iggy_protocol.PartitionHandedOver]):
    """A partition that another member owns now, or none."""

    __slots__ = ()
    group_id: Told[int] = Told[int]()
    partition_id: Told[int] = Told[int]()
    member_id: Told[int | None] = Told[int | None]()


# Users, their tokens and sessions.


class MetadataUserChange(ReportedWithOptions[iggy_protocol.UserState]):
    """A user that was created or updated, or that exists."""

    __slots__ = ()
    user_id: Told[int] = Told[int]("key.id")
    user_created_at: Told[int] = Told[int]("key.created_at_us")
    username: Told[str] = Told[str]()

    @property
    def status(self) -> UserStatus:
        """Whether the user may log in."""
        return UserStatus(self.own.status)

    @property
    def permissions(self) -> Permissions | None:
        """What the user may do; None means nothing at all."""
        own = self.own.permissions
        return None if own is None else permissions_of(own)


class OfUser(Reported[R_co]):
    """What belongs to a user."""

    __slots__ = ()
    user_id: Told[int] = Told[int]("key.id")
    user_created_at: Told[int] = Told[int]("key.created_at_us")


class MetadataUserIdentity(OfUser[iggy_protocol.UserNamed]):
    """A user that was deleted, or whose password was changed."""

    __slots__ = ()
    username: Told[str] = Told[str]()


class MetadataPermissionsUpdatedReason(IntEnum):
    """Why permissions changed."""

    Updated = PermissionsReason.UPDATED
    ResourceDeleted = PermissionsReason.RESOURCE_DELETED

    def __str__(self) -> str:
        return PermissionsReason(self).name.lower()


class MetadataUserPermissionsUpdated(OfUser[iggy_protocol.PermissionsReplaced]):
    """A user with other permissions."""

    __slots__ = ()
    username: Told[str] = Told[str]()

    @property
    def permissions(self) -> Permissions | None:
        """What the user may do now; None means nothing at all."""
        own = self.own.permissions
        return None if own is None else permissions_of(own)

    @property
    def reason(self) -> MetadataPermissionsUpdatedReason:
        """Why they changed."""
        return MetadataPermissionsUpdatedReason(self.own.reason)


class MetadataTokenChange(OfUser[iggy_protocol.TokenState]):
    """A token that was created, or that exists."""

    __slots__ = ()
    name: Told[str] = Told[str]()

    @property
    def expiry(self) -> int | None:
        """When it expires; None for a token that never does."""
        expires = self.own.expires_at_us
        return None if expires in (0, NEVER_EXPIRES) else expires


class MetadataTokenDeletedReason(IntEnum):
    """Why a token is gone."""

    Deleted = TokenReason.DELETED
    Expired = TokenReason.EXPIRED

    def __str__(self) -> str:
        return TokenReason(self).name.lower()


class MetadataTokenDeleted(OfUser[iggy_protocol.TokenRemoved]):
    """A token that is gone."""

    __slots__ = ()
    name: Told[str] = Told[str]()

    @property
    def reason(self) -> MetadataTokenDeletedReason:
        """Why it is gone."""
        return MetadataTokenDeletedReason(self.own.reason)


class MetadataSession(OfUser[iggy_protocol.RegisteredSession]):
    """A session that was registered, or that exists."""

    __slots__ = ()
    client_id: Told[int] = Told[int]()
    session: Told[int] = Told[int]()


class MetadataSessionClosedReason(IntEnum):
    """Why a session is gone."""

    Logout = SessionReason.LOGOUT
    Expired = SessionReason.EXPIRED
    Revoked = SessionReason.REVOKED

    def __str__(self) -> str:
        return SessionReason(self).name.lower()


class MetadataSessionClosed(OfUser[iggy_protocol.ClosedSession]):
    """A session that is gone."""

    __slots__ = ()
    client_id: Told[int] = Told[int]()
    session: Told[int] = Told[int]()

    @property
    def reason(self) -> MetadataSessionClosedReason:
        """Why it is gone."""
        return MetadataSessionClosedReason(self.own.reason)


# What this version of the SDK does not know.


class MetadataUnknownChange(Reported[MetadataChange]):
    """A change of a kind that is unknown here; its body stays bytes."""

    __slots__ = ()
    group: Told[int] = Told[int]()
    kind: Told[int] = Told[int]()

    @property
    def body(self) -> bytes:
        """The bytes of the change."""
        return self.own.body if isinstance(self.own.body, bytes) else b""


class MetadataUnknownItem(Reported[MetadataItem]):
    """An item of a group that is unknown here; its body stays bytes."""

    __slots__ = ()
    group: Told[int] = Told[int]()

    @property
    def body(self) -> bytes:
        """The bytes of the item."""
        return self.own.body if isinstance(self.own.body, bytes) else b""


ChangeBody = (
    MetadataStreamChange
    | MetadataStreamDeleted
    | MetadataTopicChange
    | MetadataTopicDeleted
    | MetadataPartitionsChanged
    | MetadataConsumerGroupCreated
    | MetadataConsumerGroupDeleted
    | MetadataMemberJoined
    | MetadataMemberLeft
    | MetadataPartitionHandedOver
    | MetadataUserChange
    | MetadataUserIdentity
    | MetadataUserPermissionsUpdated
    | MetadataTokenChange
    | MetadataTokenDeleted
    | MetadataSession
    | MetadataSessionClosed
    | MetadataUnknownChange
)
"""What a change is about."""

ItemBody = (
    MetadataStreamChange
    | MetadataTopicItem
    | MetadataPartitionsItem
    | MetadataConsumerGroupItem
    | MetadataMemberItem
    | MetadataUserChange
    | MetadataTokenChange
    | MetadataSession
    | MetadataUnknownItem
)
"""What an item of the current state is about."""

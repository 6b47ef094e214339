"""Changes of metadata as a server of 0.10 reports them, and its state as a list of items.

A change has a kind and a body; the body of a kind that is unknown stays bytes. An item has a group
and a body. Layouts are in ``commands.metadata_changes``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias

from iggy_protocol.model.user import Permissions, UserStatus
from iggy_protocol.options import NO_OPTIONS, Options
from iggy_protocol.records import record

# Where to read, and how far.


class ChangesStart(IntEnum):
    """Where a request for changes starts."""

    EARLIEST = 0
    LATEST = 1
    AFTER_CURSOR = 2
    CURRENT_STATE = 3


class ChangesStatus(IntEnum):
    """Whether a page goes on where the request asked."""

    OK = 0
    BEHIND = 1
    EXPIRED = 2
    RESET = 3


class ChangesPhase(IntEnum):
    """What a page holds."""

    CHANGES = 0
    CURRENT_STATE = 1


class MetadataGroup(IntEnum):
    """A family of metadata, to ask for some only."""

    STREAMS = 1
    TOPICS = 2
    PARTITIONS = 3
    CONSUMER_GROUPS = 4
    MEMBERS = 5
    USERS = 6
    TOKENS = 7
    SESSIONS = 8


class ChangeKind(IntEnum):
    """What happened."""

    STREAM_CREATED = 1
    STREAM_UPDATED = 2
    STREAM_DELETED = 3
    TOPIC_CREATED = 10
    TOPIC_UPDATED = 11
    TOPIC_DELETED = 12
    PARTITIONS_CHANGED = 20
    CONSUMER_GROUP_CREATED = 30
    CONSUMER_GROUP_DELETED = 31
    MEMBER_JOINED = 40
    MEMBER_LEFT = 41
    PARTITION_HANDED_OVER = 42
    USER_CREATED = 50
    USER_UPDATED = 51
    USER_DELETED = 52
    PASSWORD_CHANGED = 53
    PERMISSIONS_UPDATED = 54
    TOKEN_CREATED = 60
    TOKEN_DELETED = 61
    SESSION_REGISTERED = 70
    SESSION_CLOSED = 71


@record
class MetadataCursor:
    """A place in the log of metadata: behind this change."""

    log_id: int = 0
    op: int = 0
    checksum: int = 0
    ordinal: int = 0


@record
class CurrentStateToken:
    """How far a reader has come in the current state; servers hand it out, clients hand it back.

    Attributes:
        anchor: the place in the log to read changes from, once the state is read.
        required_head: the change that the server must have applied.
        group_mask: one bit for each group that is read.
        group: the group of the last item.
        key: the key of the last item.
    """

    anchor: MetadataCursor
    required_head: int
    group_mask: int
    group: int
    key: bytes


# Keys and other parts of bodies.


@record
class StreamKey:
    """A stream, told from an older one with the same id."""

    id: int
    created_op: int


@record
class TopicKey:
    """A topic, told from an older one with the same id."""

    stream: StreamKey
    id: int
    created_op: int


@record
class UserKey:
    """A user, told from an older one with the same id."""

    id: int
    created_at_us: int


@record
class ReportedOptions:
    """Explicit and derived options of a resource."""

    explicit: Options = NO_OPTIONS
    derived: Options = NO_OPTIONS


class LeaveReason(IntEnum):
    """Why a member is gone."""

    LEFT = 0
    SESSION_ENDED = 1


class PermissionsReason(IntEnum):
    """Why permissions changed."""

    UPDATED = 0
    RESOURCE_DELETED = 1


class TokenReason(IntEnum):
    """Why a token is gone."""

    DELETED = 0
    EXPIRED = 1


class SessionReason(IntEnum):
    """Why a session is gone."""

    LOGOUT = 0
    EXPIRED = 1
    REVOKED = 2


# Bodies. ``options`` is None where the server cannot read them.


@record
class StreamState:
    """A stream that was created or updated, or that exists."""

    key: StreamKey
    created_at_us: int
    name: str
    options: ReportedOptions | None = None


@record
class StreamRemoved:
    """A stream that was deleted."""

    key: StreamKey
    created_at_us: int
    name: str
    requested_op: int | None = None


@record
class TopicState:
    """A topic that exists."""

    key: TopicKey
    created_at_us: int
    name: str
    options: ReportedOptions | None = None


@record
class TopicChanged:
    """A topic that was created or updated."""

    key: TopicKey
    created_at_us: int
    name: str
    partitions_count: int
    options: ReportedOptions | None = None


@record
class TopicRemoved:
    """A topic that was deleted."""

    key: TopicKey
    created_at_us: int
    name: str
    requested_op: int | None = None


@record
class PartitionsState:
    """The number of partitions of a topic that exists."""

    key: TopicKey
    partitions_count: int


@record
class PartitionsChanged:
    """More or fewer partitions; the removed ids ascend."""

    key: TopicKey
    partitions_count: int
    removed: tuple[int, ...] = ()
    requested_op: int | None = None


@record
class ConsumerGroupState:
    """A consumer group that exists."""

    key: TopicKey
    group_id: int
    name: str


@record
class ConsumerGroupAdded:
    """A consumer group that was created, and how many the topic has now."""

    key: TopicKey
    group_id: int
    name: str
    groups_count: int


@record
class ConsumerGroupRemoved:
    """A consumer group that was deleted, and how many the topic has now."""

    key: TopicKey
    group_id: int
    name: str
    groups_count: int
    requested_op: int | None = None


@record
class MemberState:
    """A member of a group and the partitions it owns."""

    key: TopicKey
    group_id: int
    member_id: int
    client_id: int
    partitions: tuple[int, ...] = ()


@record
class MemberAdded:
    """A member that joined, and how many the group has now."""

    key: TopicKey
    group_id: int
    member_id: int
    client_id: int
    members_count: int
    partitions: tuple[int, ...] = ()


@record
class MemberRemoved:
    """A member that is gone, and how many the group has now."""

    key: TopicKey
    group_id: int
    member_id: int
    client_id: int
    members_count: int
    reason: LeaveReason


@record
class PartitionHandedOver:
    """A partition that another member owns now, or none."""

    key: TopicKey
    group_id: int
    partition_id: int
    member_id: int | None = None


@record
class UserState:
    """A user that was created or updated, or that exists."""

    key: UserKey
    username: str
    status: UserStatus
    permissions: Permissions | None = None
    options: ReportedOptions | None = None


@record
class UserNamed:
    """A user that was deleted, or whose password was changed."""

    key: UserKey
    username: str


@record
class PermissionsReplaced:
    """A user with other permissions."""

    key: UserKey
    username: str
    permissions: Permissions | None
    reason: PermissionsReason


@record
class TokenState:
    """A token that was created, or that exists."""

    key: UserKey
    name: str
    expires_at_us: int


@record
class TokenRemoved:
    """A token that is gone."""

    key: UserKey
    name: str
    reason: TokenReason


@record
class RegisteredSession:
    """A session that was registered, or that exists."""

    key: UserKey
    client_id: int
    session: int


@record
class ClosedSession:
    """A session that is gone."""

    key: UserKey
    client_id: int
    session: int
    reason: SessionReason


ChangeBody: TypeAlias = (
    StreamState
    | StreamRemoved
    | TopicChanged
    | TopicRemoved
    | PartitionsChanged
    | ConsumerGroupAdded
    | ConsumerGroupRemoved
    | MemberAdded
    | MemberRemoved
    | PartitionHandedOver
    | UserState
    | UserNamed
    | PermissionsReplaced
    | TokenState
    | TokenRemoved
    | RegisteredSession
    | ClosedSession
    | bytes
)
"""The body of a change; bytes where its kind is unknown."""

ItemBody: TypeAlias = (
    StreamState
    | TopicState
    | PartitionsState
    | ConsumerGroupState
    | MemberState
    | UserState
    | TokenState
    | RegisteredSession
    | bytes
)
"""The body of an item; bytes where its group is unknown."""


@record
class MetadataChange:
    """One change.

    Attributes:
        op: its position in the log.
        ordinal: its number among the changes at this position.
        actor: the user that caused it.
        kind: a ``ChangeKind``, or the number of one that is unknown.
    """

    op: int
    ordinal: int
    checksum: int
    timestamp_us: int
    actor: int | None
    group: int
    kind: int
    body: ChangeBody


@record
class MetadataItem:
    """One resource of the current state; ``group`` is a ``MetadataGroup`` or an unknown number."""

    group: int
    body: ItemBody


@record
class MetadataChanges:
    """One page of changes, or of the current state.

    Attributes:
        oldest_op: the oldest change that the server keeps.
        head_op: the newest one.
        next_cursor: where the next request goes on.
        has_more: whether another page is ready.
        token: where the next page of the current state goes on; no bytes at its end.
    """

    status: ChangesStatus
    phase: ChangesPhase
    log_id: int | None
    oldest_op: int
    retained_since_us: int
    head_op: int
    next_cursor: MetadataCursor | None
    has_more: bool
    changes: tuple[MetadataChange, ...] = ()
    items: tuple[MetadataItem, ...] = ()
    token: bytes = b""

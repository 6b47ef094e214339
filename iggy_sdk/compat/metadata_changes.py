"""The log of metadata changes in the official spelling; servers from 0.10 on have one.

A page has changes, or items of the current state. Cursors and page tokens have a text, so that a
program can keep them: ``str()`` writes it and ``parse`` reads it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final

import iggy_protocol
from iggy_protocol import (
    CURRENT_STATE_TOKEN,
    ChangeKind,
    ChangesPhase,
    ChangesStart,
    ChangesStatus,
    CurrentStateToken,
    GetMetadataChanges,
    MetadataChange,
    MetadataCursor,
    MetadataGroup,
    MetadataItem,
    ProtocolError,
)
from iggy_sdk.compat import metadata_bodies as bodies
from iggy_sdk.compat.records import Reported, Told
from iggy_sdk.compat.variants import ByValue, SequenceVariant, variant
from iggy_sdk.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from iggy_sdk.compat.metadata_bodies import ChangeBody, ItemBody


class MetadataChangeGroup(IntEnum):
    """A family of metadata, to ask for some only."""

    Streams = MetadataGroup.STREAMS
    Topics = MetadataGroup.TOPICS
    Partitions = MetadataGroup.PARTITIONS
    ConsumerGroups = MetadataGroup.CONSUMER_GROUPS
    ConsumerGroupMembers = MetadataGroup.MEMBERS
    Users = MetadataGroup.USERS
    PersonalAccessTokens = MetadataGroup.TOKENS
    Sessions = MetadataGroup.SESSIONS

    def __str__(self) -> str:
        return _snake(self.name)


class MetadataChangeKind(IntEnum):
    """What happened."""

    StreamCreated = ChangeKind.STREAM_CREATED
    StreamUpdated = ChangeKind.STREAM_UPDATED
    StreamDeleted = ChangeKind.STREAM_DELETED
    TopicCreated = ChangeKind.TOPIC_CREATED
    TopicUpdated = ChangeKind.TOPIC_UPDATED
    TopicDeleted = ChangeKind.TOPIC_DELETED
    PartitionsChanged = ChangeKind.PARTITIONS_CHANGED
    ConsumerGroupCreated = ChangeKind.CONSUMER_GROUP_CREATED
    ConsumerGroupDeleted = ChangeKind.CONSUMER_GROUP_DELETED
    ConsumerGroupMemberJoined = ChangeKind.MEMBER_JOINED
    ConsumerGroupMemberLeft = ChangeKind.MEMBER_LEFT
    ConsumerGroupPartitionHandedOver = ChangeKind.PARTITION_HANDED_OVER
    UserCreated = ChangeKind.USER_CREATED
    UserUpdated = ChangeKind.USER_UPDATED
    UserDeleted = ChangeKind.USER_DELETED
    UserPasswordChanged = ChangeKind.PASSWORD_CHANGED
    UserPermissionsUpdated = ChangeKind.PERMISSIONS_UPDATED
    PersonalAccessTokenCreated = ChangeKind.TOKEN_CREATED
    PersonalAccessTokenDeleted = ChangeKind.TOKEN_DELETED
    SessionRegistered = ChangeKind.SESSION_REGISTERED
    SessionClosed = ChangeKind.SESSION_CLOSED

    def __str__(self) -> str:
        return _snake(self.name)


class MetadataChangePhase(IntEnum):
    """What a page holds."""

    Changes = ChangesPhase.CHANGES
    Current = ChangesPhase.CURRENT_STATE

    def __str__(self) -> str:
        return _snake(self.name)


class MetadataChangeStatus(IntEnum):
    """Whether a page goes on where the request asked."""

    Ok = ChangesStatus.OK
    Behind = ChangesStatus.BEHIND
    Expired = ChangesStatus.EXPIRED
    Reset = ChangesStatus.RESET

    def __str__(self) -> str:
        return _snake(self.name)


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)[1:]


# Places to go on from.

PAGE_LENGTH: Final = 100
"""How many changes a page has at most, where a request does not say."""

CURSOR_MARK: Final = "mc1_"
TOKEN_MARK: Final = "cs1_"
CURSOR_SIZES: Final = (16, 8, 16, 4)
"""The bytes of the numbers in the text of a cursor."""


def _text_of(mark: str, data: bytes) -> str:
    return mark + urlsafe_b64encode(data).decode().rstrip("=")


def _bytes_of(mark: str, text: str, what: str) -> bytes:
    """Read a text; only the one way to write it is taken."""
    body = text.removeprefix(mark)
    try:
        data = urlsafe_b64decode(body + "=" * (-len(body) % 4))
    except ValueError:
        data = b""
    if not data or _text_of(mark, data) != text:
        raise ConfigurationError(
            f"{text!r} is no {what}", advice=f"Give what str() wrote; it begins with {mark}."
        )
    return data


class MetadataChangeCursor(ByValue):
    """A place in the log of metadata: behind this change."""

    __slots__ = __match_args__ = ("log_id", "op", "checksum", "ordinal")

    def __init__(self, log_id: int, op: int, checksum: int, ordinal: int) -> None:
        """Take what a page told.

        Args:
            log_id: names the log.
            op: the position of the change.
            checksum: that of the position.
            ordinal: the number of the change among those at its position.
        """
        self.log_id: int = log_id
        self.op: int = op
        self.checksum: int = checksum
        self.ordinal: int = ordinal

    @property
    def own(self) -> MetadataCursor:
        """The place as this SDK spells it."""
        return MetadataCursor(*self._values())

    @staticmethod
    def parse(text: str) -> MetadataChangeCursor:
        """Read a cursor from its text.

        Raises:
            ConfigurationError: it is not the text of a cursor.
        """
        data = _bytes_of(CURSOR_MARK, text, "cursor")
        if len(data) != sum(CURSOR_SIZES):
            raise ConfigurationError(f"{text!r} is no cursor", advice="Give what str() wrote.")
        numbers, at = [], 0
        for size in CURSOR_SIZES:
            numbers.append(int.from_bytes(data[at : at + size], "little"))
            at += size
        return MetadataChangeCursor(*numbers)

    def __str__(self) -> str:
        numbers = zip(self._values(), CURSOR_SIZES, strict=True)
        return _text_of(
            CURSOR_MARK, b"".join(number.to_bytes(size, "little") for number, size in numbers)
        )


def cursor_of(own: MetadataCursor) -> MetadataChangeCursor:
    """Return a cursor in the official spelling."""
    return MetadataChangeCursor(own.log_id, own.op, own.checksum, own.ordinal)


class MetadataCurrentPageToken(Reported[CurrentStateToken]):
    """How far a reader has come in the current state."""

    __slots__ = ()
    required_head: Told[int] = Told[int]()
    last_key: Told[bytes] = Told[bytes]("key")

    @property
    def anchor(self) -> MetadataChangeCursor:
        """The place in the log to read changes from, once the state is read."""
        return cursor_of(self.own.anchor)

    @property
    def groups(self) -> list[MetadataChangeGroup]:
        """The groups that are read."""
        return [one for one in MetadataChangeGroup if self.own.group_mask >> (one - 1) & 1]

    @property
    def last_group(self) -> MetadataChangeGroup:
        """The group of the last item."""
        return MetadataChangeGroup(self.own.group)

    @property
    def data(self) -> bytes:
        """What is sent back to the server."""
        return CURRENT_STATE_TOKEN.encode(self.own)

    @staticmethod
    def parse(text: str) -> MetadataCurrentPageToken:
        """Read a page token from its text.

        Raises:
            ConfigurationError: it is not the text of a page token.
        """
        data = _bytes_of(TOKEN_MARK, text, "page token")
        try:
            return MetadataCurrentPageToken(CURRENT_STATE_TOKEN.decode(data))
        except ProtocolError as error:
            raise ConfigurationError(
                f"{text!r} is no page token", advice="Give what str() wrote."
            ) from error

    def __str__(self) -> str:
        return _text_of(TOKEN_MARK, self.data)


class MetadataChangeStart(ByValue, ABC):
    """Where to read the log of metadata."""

    __slots__ = ()
    Earliest: ClassVar[type[StartEarliest]]
    Latest: ClassVar[type[StartLatest]]
    After: ClassVar[type[StartAfter]]
    Current: ClassVar[type[StartCurrent]]

    @property
    @abstractmethod
    def own(self) -> GetMetadataChanges:
        """The request of this SDK that starts there."""


@variant(MetadataChangeStart, "Earliest")
class StartEarliest(MetadataChangeStart, SequenceVariant):
    """At the oldest change that the server keeps."""

    __slots__ = ()

    @property
    def own(self) -> GetMetadataChanges:
        """The request of this SDK that starts there."""
        return GetMetadataChanges(ChangesStart.EARLIEST)


@variant(MetadataChangeStart, "Latest")
class StartLatest(MetadataChangeStart, SequenceVariant):
    """Behind the newest change."""

    __slots__ = ()

    @property
    def own(self) -> GetMetadataChanges:
        """The request of this SDK that starts there."""
        return GetMetadataChanges(ChangesStart.LATEST)


@variant(MetadataChangeStart, "After")
class StartAfter(MetadataChangeStart):
    """Behind the change that a page ended with."""

    __slots__ = __match_args__ = ("cursor",)

    def __init__(self, cursor: MetadataChangeCursor) -> None:
        """Take ``next`` of a page."""
        self.cursor: MetadataChangeCursor = cursor

    @property
    def own(self) -> GetMetadataChanges:
        """The request of this SDK that starts there."""
        return GetMetadataChanges(ChangesStart.AFTER_CURSOR, self.cursor.own)


@variant(MetadataChangeStart, "Current")
class StartCurrent(MetadataChangeStart):
    """In the current state: at its begin, or behind a page of it."""

    __slots__ = __match_args__ = ("page_token",)

    def __init__(self, page_token: MetadataCurrentPageToken | None = None) -> None:
        """Take ``current_page_token`` of a page, or nothing for the first page."""
        self.page_token: MetadataCurrentPageToken | None = page_token

    @property
    def own(self) -> GetMetadataChanges:
        """The request of this SDK that starts there."""
        data = b"" if self.page_token is None else self.page_token.data
        return GetMetadataChanges(ChangesStart.CURRENT_STATE, token=data)


# What a page has.


_CHANGES: Final[Mapping[type, Callable[[Any], ChangeBody]]] = {
    iggy_protocol.StreamState: bodies.MetadataStreamChange,
    iggy_protocol.StreamRemoved: bodies.MetadataStreamDeleted,
    iggy_protocol.TopicChanged: bodies.MetadataTopicChange,
    iggy_protocol.TopicRemoved: bodies.MetadataTopicDeleted,
    iggy_protocol.PartitionsChanged: bodies.MetadataPartitionsChanged,
    iggy_protocol.ConsumerGroupAdded: bodies.MetadataConsumerGroupCreated,
    iggy_protocol.ConsumerGroupRemoved: bodies.MetadataConsumerGroupDeleted,
    iggy_protocol.MemberAdded: bodies.MetadataMemberJoined,
    iggy_protocol.MemberRemoved: bodies.MetadataMemberLeft,
    iggy_protocol.PartitionHandedOver: bodies.MetadataPartitionHandedOver,
    iggy_protocol.UserState: bodies.MetadataUserChange,
    iggy_protocol.UserNamed: bodies.MetadataUserIdentity,
    iggy_protocol.PermissionsReplaced: bodies.MetadataUserPermissionsUpdated,
    iggy_protocol.TokenState: bodies.MetadataTokenChange,
    iggy_protocol.TokenRemoved: bodies.MetadataTokenDeleted,
    iggy_protocol.RegisteredSession: bodies.MetadataSession,
    iggy_protocol.ClosedSession: bodies.MetadataSessionClosed,
}
_ITEMS: Final[Mapping[type, Callable[[Any], ItemBody]]] = {
    iggy_protocol.StreamState: bodies.MetadataStreamChange,
    iggy_protocol.TopicState: bodies.MetadataTopicItem,
    iggy_protocol.PartitionsState: bodies.MetadataPartitionsItem,
    iggy_protocol.ConsumerGroupState: bodies.MetadataConsumerGroupItem,
    iggy_protocol.MemberState: bodies.MetadataMemberItem,
    iggy_protocol.UserState: bodies.MetadataUserChange,
    iggy_protocol.TokenState: bodies.MetadataTokenChange,
    iggy_protocol.RegisteredSession: bodies.MetadataSession,
}


class MetadataChangeRecord(Reported[MetadataChange]):
    """One change."""

    __slots__ = ()
    op: Told[int] = Told[int]()
    ordinal: Told[int] = Told[int]()
    checksum: Told[int] = Told[int]()
    timestamp: Told[int] = Told[int]("timestamp_us")
    actor_user_id: Told[int | None] = Told[int | None]("actor")

    @property
    def group(self) -> MetadataChangeGroup | None:
        """What family it belongs to; None if that is unknown here."""
        return _group(self.own.group)

    @property
    def kind(self) -> MetadataChangeKind | None:
        """What happened; None if that is unknown here."""
        known = self.own.kind in list(MetadataChangeKind)
        return MetadataChangeKind(self.own.kind) if known else None

    @property
    def change(self) -> ChangeBody:
        """What it is about."""
        make = _CHANGES.get(type(self.own.body))
        return bodies.MetadataUnknownChange(self.own) if make is None else make(self.own.body)


class MetadataCurrentItem(Reported[MetadataItem]):
    """One resource of the current state."""

    __slots__ = ()

    @property
    def group(self) -> MetadataChangeGroup | None:
        """What family it belongs to; None if that is unknown here."""
        return _group(self.own.group)

    @property
    def body(self) -> ItemBody:
        """What it is."""
        make = _ITEMS.get(type(self.own.body))
        return bodies.MetadataUnknownItem(self.own) if make is None else make(self.own.body)


def _group(number: int) -> MetadataChangeGroup | None:
    return MetadataChangeGroup(number) if number in list(MetadataChangeGroup) else None


class MetadataChanges(Reported[iggy_protocol.MetadataChanges]):
    """One page of changes, or of the current state."""

    __slots__ = ()
    log_id: Told[int | None] = Told[int | None]()
    oldest_op: Told[int] = Told[int]()
    retained_since: Told[int] = Told[int]("retained_since_us")
    head_op: Told[int] = Told[int]()
    has_more: Told[bool] = Told[bool]()

    @property
    def status(self) -> MetadataChangeStatus:
        """Whether the page goes on where the request asked."""
        return MetadataChangeStatus(self.own.status)

    @property
    def phase(self) -> MetadataChangePhase:
        """What the page holds."""
        return MetadataChangePhase(self.own.phase)

    @property
    def next(self) -> MetadataChangeCursor | None:
        """Where the next request goes on."""
        own = self.own.next_cursor
        return None if own is None else cursor_of(own)

    @property
    def records(self) -> list[MetadataChangeRecord]:
        """The changes, in their order."""
        return [MetadataChangeRecord(change) for change in self.own.changes]

    @property
    def items(self) -> list[MetadataCurrentItem]:
        """The items of the current state."""
        return [MetadataCurrentItem(item) for item in self.own.items]

    @property
    def current_page_token(self) -> MetadataCurrentPageToken | None:
        """Where the next page of the current state goes on; None at its end.

        Raises:
            RemoteProtocolError: the token of the server cannot be read.
        """
        data = self.own.token
        return MetadataCurrentPageToken(CURRENT_STATE_TOKEN.decode(data)) if data else None


def request_of(
    start: MetadataChangeStart,
    groups: Iterable[MetadataChangeGroup] | None,
    since: int | None,
    until: int | None,
    limit: int | None,
) -> GetMetadataChanges:
    """Return the request of this SDK for a page."""
    return replace(
        start.own,
        groups=tuple(MetadataGroup(int(group)) for group in groups or ()),
        since_us=since,
        until_us=until,
        limit=PAGE_LENGTH if limit is None else limit,
    )

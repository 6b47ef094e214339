"""Changes of metadata, from 0.10 on: what a server changed since a cursor, or its state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from iggy_protocol.codes import CommandCode
from iggy_protocol.commands.users import PERMISSIONS, USER_STATUS
from iggy_protocol.dialect import V0_12_0
from iggy_protocol.errors import (
    INVALID_COMMAND,
    InvalidField,
    LocalProtocolError,
    UnknownDiscriminant,
)
from iggy_protocol.fields import (
    CompiledAdapter,
    CountPrefixedArray,
    Field,
    LengthPrefixedBytes,
    PresenceFlagged,
    RecordStruct,
    StrictPresenceFlagged,
)
from iggy_protocol.layout import Layout
from iggy_protocol.model import metadata_changes as model
from iggy_protocol.model.metadata_changes import (
    ChangeKind,
    ChangesPhase,
    ChangesStart,
    ChangesStatus,
    CurrentStateToken,
    MetadataChange,
    MetadataChanges,
    MetadataCursor,
    MetadataGroup,
    MetadataItem,
)
from iggy_protocol.primitives import (
    NAME,
    PREFIXED_OPTIONS,
    STRICT_BOOL,
    U8,
    U16,
    U32,
    U64,
    U128,
    discriminant,
)
from iggy_protocol.records import record
from iggy_protocol.registry import Command, RecordCodec, command, reply_of_one

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


CHANGES_PAGE_MAX = 1000
"""How many changes a client may ask for at once; servers of 0.10 refuse more."""

OPTIONAL_U32 = StrictPresenceFlagged(U32)
OPTIONAL_U64 = StrictPresenceFlagged(U64)
IDS = CountPrefixedArray(U32, count_size=4)

CURSOR = RecordStruct(
    MetadataCursor, "log_id" / U128, "op" / U64, "checksum" / U128, "ordinal" / U32
)
TOKEN_BYTES = LengthPrefixedBytes(U16, label="u16 length, bytes")
CURRENT_STATE_TOKEN: Layout[CurrentStateToken] = Layout(
    "CurrentStateToken",
    RecordStruct(
        CurrentStateToken,
        "anchor" / CURSOR,
        "required_head" / U64,
        "group_mask" / U8,
        "group" / U8,
        "key" / LengthPrefixedBytes(U16, label="u16 length, bytes"),
    ),
)

STREAM_KEY = RecordStruct(model.StreamKey, "id" / U32, "created_op" / U64)
TOPIC_KEY = RecordStruct(model.TopicKey, "stream" / STREAM_KEY, "id" / U32, "created_op" / U64)
USER_KEY = RecordStruct(model.UserKey, "id" / U32, "created_at_us" / U64)


class ReadableOptions(PresenceFlagged):
    """Options behind a byte of zero; a byte of one says that the server cannot read them."""

    def parse_elements(self, stream: Any, parse: Callable[[int], Any]) -> Any:
        """Read the byte and what follows it."""
        start = stream.tell()
        state = stream.read(1)
        if state not in (b"\0", b"\1"):
            raise UnknownDiscriminant(
                f"{state[0]} is no state of options", offset=start, need=1, have=1
            )
        return parse(0) if state == b"\0" else None

    def build_elements(self, obj: Any, stream: Any, build: Callable[[Any, int], Any]) -> None:
        """Write the byte and what follows it."""
        stream.write(b"\1" if obj is None else b"\0")
        if obj is not None:
            build(obj, 0)


REPORTED_OPTIONS = ReadableOptions(
    RecordStruct(model.ReportedOptions, "explicit" / PREFIXED_OPTIONS, "derived" / PREFIXED_OPTIONS)
)
OPTIONAL_PERMISSIONS = StrictPresenceFlagged(PERMISSIONS)

# The bodies, most of which go on from the same beginnings.

STREAM_FIELDS = ("key" / STREAM_KEY, "created_at_us" / U64, "name" / NAME)
TOPIC_FIELDS = ("key" / TOPIC_KEY, "created_at_us" / U64, "name" / NAME)
GROUP_FIELDS = ("key" / TOPIC_KEY, "group_id" / U32, "name" / NAME)
MEMBER_FIELDS = (
    "key" / TOPIC_KEY,
    "group_id" / U32,
    "member_id" / U32,
    "client_id" / U128,
)
USER_FIELDS = ("key" / USER_KEY, "username" / NAME)
TOKEN_FIELDS = ("key" / USER_KEY, "name" / NAME)
SESSION_FIELDS = ("key" / USER_KEY, "client_id" / U128, "session" / U64)
OPTIONS_FIELD = "options" / REPORTED_OPTIONS
REQUESTED_FIELD = "requested_op" / OPTIONAL_U64

STREAM_STATE = RecordStruct(model.StreamState, *STREAM_FIELDS, OPTIONS_FIELD)
STREAM_REMOVED = RecordStruct(model.StreamRemoved, *STREAM_FIELDS, REQUESTED_FIELD)
TOPIC_STATE = RecordStruct(model.TopicState, *TOPIC_FIELDS, OPTIONS_FIELD)
TOPIC_CHANGED = RecordStruct(
    model.TopicChanged, *TOPIC_FIELDS, "partitions_count" / U32, OPTIONS_FIELD
)
TOPIC_REMOVED = RecordStruct(model.TopicRemoved, *TOPIC_FIELDS, REQUESTED_FIELD)
PARTITIONS_STATE = RecordStruct(model.PartitionsState, "key" / TOPIC_KEY, "partitions_count" / U32)
PARTITIONS_CHANGED = RecordStruct(
    model.PartitionsChanged,
    "key" / TOPIC_KEY,
    "partitions_count" / U32,
    "removed" / IDS,
    REQUESTED_FIELD,
)
GROUP_STATE = RecordStruct(model.ConsumerGroupState, *GROUP_FIELDS)
GROUP_ADDED = RecordStruct(model.ConsumerGroupAdded, *GROUP_FIELDS, "groups_count" / U32)
GROUP_REMOVED = RecordStruct(
    model.ConsumerGroupRemoved, *GROUP_FIELDS, "groups_count" / U32, REQUESTED_FIELD
)
MEMBER_STATE = RecordStruct(model.MemberState, *MEMBER_FIELDS, "partitions" / IDS)
MEMBER_ADDED = RecordStruct(
    model.MemberAdded, *MEMBER_FIELDS, "members_count" / U32, "partitions" / IDS
)
MEMBER_REMOVED = RecordStruct(
    model.MemberRemoved,
    *MEMBER_FIELDS,
    "members_count" / U32,
    "reason" / discriminant(model.LeaveReason),
)
PARTITION_HANDED_OVER = RecordStruct(
    model.PartitionHandedOver,
    "key" / TOPIC_KEY,
    "group_id" / U32,
    "partition_id" / U32,
    "member_id" / OPTIONAL_U32,
)
USER_STATE = RecordStruct(
    model.UserState,
    *USER_FIELDS,
    "status" / USER_STATUS,
    "permissions" / OPTIONAL_PERMISSIONS,
    OPTIONS_FIELD,
)
USER_NAMED = RecordStruct(model.UserNamed, *USER_FIELDS)
PERMISSIONS_CHANGED = RecordStruct(
    model.PermissionsReplaced,
    *USER_FIELDS,
    "permissions" / OPTIONAL_PERMISSIONS,
    "reason" / discriminant(model.PermissionsReason),
)
TOKEN_STATE = RecordStruct(model.TokenState, *TOKEN_FIELDS, "expires_at_us" / U64)
TOKEN_REMOVED = RecordStruct(
    model.TokenRemoved, *TOKEN_FIELDS, "reason" / discriminant(model.TokenReason)
)
SESSION_STATE = RecordStruct(model.RegisteredSession, *SESSION_FIELDS)
SESSION_REMOVED = RecordStruct(
    model.ClosedSession, *SESSION_FIELDS, "reason" / discriminant(model.SessionReason)
)


def _layouts(records: Mapping[Any, RecordStruct]) -> Mapping[int, Layout[Any]]:
    return {int(tag): Layout(block.type.__name__, block) for tag, block in records.items()}


CHANGE_BODIES = _layouts(
    {
        ChangeKind.STREAM_CREATED: STREAM_STATE,
        ChangeKind.STREAM_UPDATED: STREAM_STATE,
        ChangeKind.STREAM_DELETED: STREAM_REMOVED,
        ChangeKind.TOPIC_CREATED: TOPIC_CHANGED,
        ChangeKind.TOPIC_UPDATED: TOPIC_CHANGED,
        ChangeKind.TOPIC_DELETED: TOPIC_REMOVED,
        ChangeKind.PARTITIONS_CHANGED: PARTITIONS_CHANGED,
        ChangeKind.CONSUMER_GROUP_CREATED: GROUP_ADDED,
        ChangeKind.CONSUMER_GROUP_DELETED: GROUP_REMOVED,
        ChangeKind.MEMBER_JOINED: MEMBER_ADDED,
        ChangeKind.MEMBER_LEFT: MEMBER_REMOVED,
        ChangeKind.PARTITION_HANDED_OVER: PARTITION_HANDED_OVER,
        ChangeKind.USER_CREATED: USER_STATE,
        ChangeKind.USER_UPDATED: USER_STATE,
        ChangeKind.USER_DELETED: USER_NAMED,
        ChangeKind.PASSWORD_CHANGED: USER_NAMED,
        ChangeKind.PERMISSIONS_UPDATED: PERMISSIONS_CHANGED,
        ChangeKind.TOKEN_CREATED: TOKEN_STATE,
        ChangeKind.TOKEN_DELETED: TOKEN_REMOVED,
        ChangeKind.SESSION_REGISTERED: SESSION_STATE,
        ChangeKind.SESSION_CLOSED: SESSION_REMOVED,
    }
)
ITEM_BODIES = _layouts(
    {
        MetadataGroup.STREAMS: STREAM_STATE,
        MetadataGroup.TOPICS: TOPIC_STATE,
        MetadataGroup.PARTITIONS: PARTITIONS_STATE,
        MetadataGroup.CONSUMER_GROUPS: GROUP_STATE,
        MetadataGroup.MEMBERS: MEMBER_STATE,
        MetadataGroup.USERS: USER_STATE,
        MetadataGroup.TOKENS: TOKEN_STATE,
        MetadataGroup.SESSIONS: SESSION_STATE,
    }
)


class RawChange(NamedTuple):
    """A change with the bytes of its body."""

    op: int
    ordinal: int
    checksum: int
    timestamp_us: int
    actor: int | None
    group: int
    kind: int
    body: bytes


class RawItem(NamedTuple):
    """An item with the bytes of its body."""

    group: int
    body: bytes


class TaggedBody(CompiledAdapter):
    """A record whose body has a layout by its tag; the body of an unknown tag stays bytes."""

    def __init__(
        self, raw: RecordStruct, type_: type[Any], tag: str, layouts: Mapping[int, Layout[Any]]
    ) -> None:
        def decode(value: Any) -> Any:
            layout = layouts.get(getattr(value, tag))
            body = value.body if layout is None else layout.decode(value.body)
            return type_(**{**value._asdict(), "body": body})

        def encode(value: Any) -> Any:
            layout = layouts.get(getattr(value, tag))
            body = value.body if layout is None else layout.encode(value.body)
            return raw.type(**{name: getattr(value, name) for name in names}, body=body)

        names = [str(one.name) for one in raw.fields[:-1]]
        super().__init__(raw, decode, encode)
        self.type = type_
        self.tag = tag
        self.layouts = layouts


BODY = LengthPrefixedBytes(U32, label="u32 length, body")
CHANGE = TaggedBody(
    RecordStruct(
        RawChange,
        "op" / U64,
        "ordinal" / U32,
        "checksum" / U128,
        "timestamp_us" / U64,
        "actor" / OPTIONAL_U32,
        "group" / U8,
        "kind" / U8,
        "body" / BODY,
    ),
    MetadataChange,
    "kind",
    CHANGE_BODIES,
)
ITEM = TaggedBody(
    RecordStruct(RawItem, "group" / U8, "body" / BODY), MetadataItem, "group", ITEM_BODIES
)


def _page_fault(page: MetadataChanges) -> str | None:
    if page.changes and page.items:
        return "a page has changes or items, not both"
    return None


def _request_fault(request: GetMetadataChanges) -> str | None:
    if not 1 <= request.limit <= CHANGES_PAGE_MAX:
        return f"the limit is {request.limit}, allowed are 1 to {CHANGES_PAGE_MAX}"
    if request.start is not ChangesStart.AFTER_CURSOR and request.cursor != MetadataCursor():
        return "only a request that starts after a cursor has one"
    if request.start is not ChangesStart.CURRENT_STATE and request.token:
        return "only a request for the current state has a token"
    return None


def _checked(block: Field, fault_of: Callable[[Any], str | None]) -> CompiledAdapter:
    """Declare a record with rules that span several of its fields."""

    def decode(value: Any) -> Any:
        fault = fault_of(value)
        if fault is not None:
            raise InvalidField(fault, status=INVALID_COMMAND)
        return value

    def encode(value: Any) -> Any:
        fault = fault_of(value)
        if fault is not None:
            raise LocalProtocolError(fault)
        return value

    return CompiledAdapter(block, decode, encode)


METADATA_CHANGES = _checked(
    RecordStruct(
        MetadataChanges,
        "status" / discriminant(ChangesStatus),
        "phase" / discriminant(ChangesPhase),
        "log_id" / StrictPresenceFlagged(U128),
        "oldest_op" / U64,
        "retained_since_us" / U64,
        "head_op" / U64,
        "next_cursor" / StrictPresenceFlagged(CURSOR),
        "has_more" / STRICT_BOOL,
        "changes" / CountPrefixedArray(CHANGE, count_size=4),
        "items" / CountPrefixedArray(ITEM, count_size=4),
        "token" / TOKEN_BYTES,
    ),
    _page_fault,
)


def _strict_codec(layout: Layout[Any]) -> RecordCodec:
    return RecordCodec(Layout(layout.name, _checked(layout.construct, _request_fault)))


@command(
    CommandCode.GET_METADATA_CHANGES,
    "start" / discriminant(ChangesStart),
    "cursor" / CURSOR,
    "since_us" / OPTIONAL_U64,
    "until_us" / OPTIONAL_U64,
    "limit" / U32,
    "groups" / CountPrefixedArray(discriminant(MetadataGroup), count_size=1),
    "token" / TOKEN_BYTES,
    reply=reply_of_one(METADATA_CHANGES, "MetadataChanges"),
    codec=_strict_codec,
    since=V0_12_0,
)
@record
class GetMetadataChanges(Command[MetadataChanges]):
    """Ask for changes of metadata, or for its current state.

    Attributes:
        cursor: where to start, for ``ChangesStart.AFTER_CURSOR`` only.
        since_us: leaves out what is older.
        until_us: leaves out what is newer.
        groups: leaves out the others; all where it is empty.
        token: where the current state goes on, for ``ChangesStart.CURRENT_STATE`` only.
    """

    start: ChangesStart = ChangesStart.EARLIEST
    cursor: MetadataCursor = MetadataCursor()
    since_us: int | None = None
    until_us: int | None = None
    limit: int = 100
    groups: tuple[MetadataGroup, ...] = ()
    token: bytes = b""

"""The heads of 256 bytes that stand before every body, from 0.9 on.

    frame = head (256 bytes) + body (size - 256 bytes)

The first half is common to all frames; its command says what the second half is: a request, a
reply or an eviction. Each head is declared once with construct and run as a ``struct.Struct``, as
a ``NamedTuple`` of all its fields in their order: any 256 bytes can be read and written back as
they were. ``check_request`` and ``check_reply`` say which of them a peer may send.

Knows neither sessions nor commands.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from construct import Bytes, Int8ul, Int32ul, Int64ul, Struct

from iggy_protocol.dialect import V0_11, Dialect
from iggy_protocol.errors import InvalidField
from iggy_protocol.layout import derive_struct

if TYPE_CHECKING:
    from iggy_protocol.layout import Buffer


VSR_HEAD_BYTES: Final = 256
REQUEST: Final = 5
REPLY: Final = 8
EVICTION: Final = 13
COMMAND_MAX: Final = 29
"""The last command that replicas send to each other; a frame with a later one is no frame."""

ZERO_ID: Final = bytes(16)
COMMITTED: Final = 1
"""The marker of a reply that is the final result of a write."""

COMMON = (
    "checksum" / Bytes(16),
    "checksum_body" / Bytes(16),
    "cluster" / Bytes(16),
    "size" / Int32ul,
    "view" / Int32ul,
    "release" / Int32ul,
    "command" / Int8ul,
    "replica" / Int8ul,
    "reserved" / Bytes(66),
)
REQUEST_HEAD = Struct(
    *COMMON,
    "client" / Bytes(16),
    "identifier" / Bytes(16),
    "timestamp" / Int64ul,
    "number" / Int64ul,
    "operation" / Int8ul,
    "padding" / Bytes(7),
    "session" / Int64ul,
    "user_id" / Int32ul,
    "code" / Int32ul,
    "incarnation" / Int64ul,
    "owner_generation" / Int64ul,
    "metadata_position" / Int64ul,
    "reserved_end" / Bytes(32),
)
REPLY_HEAD = Struct(
    *COMMON,
    "identifier" / Bytes(16),
    "context" / Bytes(16),
    "client" / Bytes(16),
    "op" / Int64ul,
    "commit" / Int64ul,
    "timestamp" / Int64ul,
    "number" / Int64ul,
    "operation" / Int8ul,
    "padding" / Bytes(7),
    "status" / Int32ul,
    "marker" / Int8ul,
    "reserved_marker" / Bytes(3),
    "incarnation" / Int64ul,
    "reserved_end" / Bytes(24),
)
EVICTION_HEAD = Struct(
    *COMMON,
    "client" / Bytes(16),
    "highest" / Int32ul,
    "lowest" / Int32ul,
    "reserved_end" / Bytes(103),
    "reason" / Int8ul,
)


def offset_of(head: Struct, name: str) -> int:
    """Return the byte of a head at which a field begins."""
    names = [field.name for field in head.subcons]
    return int(sum(field.sizeof() for field in head.subcons[: names.index(name)]))


_REQUEST, REQUEST_FIELDS = derive_struct(REQUEST_HEAD)
_REPLY, REPLY_FIELDS = derive_struct(REPLY_HEAD)
_EVICTION, EVICTION_FIELDS = derive_struct(EVICTION_HEAD)


class RequestHead(NamedTuple):
    """The head of a request.

    Attributes:
        size: of the whole frame.
        client: the client's own id of its session; never zeros.
        identifier: a checksum of the body in 0.9, later random; zeros where a request has none.
        number: counts the requests of the session.
        operation: what the request is; 2 is one that ``code`` names.
        session: the number that a login returned.
        incarnation: with the next two, the state of a partition; zeros in 0.9.
    """

    checksum: bytes = ZERO_ID
    checksum_body: bytes = ZERO_ID
    cluster: bytes = ZERO_ID
    size: int = VSR_HEAD_BYTES
    view: int = 0
    release: int = 0
    command: int = REQUEST
    replica: int = 0
    reserved: bytes = bytes(66)
    client: bytes = ZERO_ID
    identifier: bytes = ZERO_ID
    timestamp: int = 0
    number: int = 0
    operation: int = 0
    padding: bytes = bytes(7)
    session: int = 0
    user_id: int = 0
    code: int = 0
    incarnation: int = 0
    owner_generation: int = 0
    metadata_position: int = 0
    reserved_end: bytes = bytes(32)

    def encode(self) -> bytes:
        """Write the head."""
        return _REQUEST.pack(*self)


class ReplyHead(NamedTuple):
    """The head of a reply.

    Attributes:
        identifier: that of the request.
        client: that of the request.
        op: the position of a committed result; in 0.9 the session.
        commit: the position of the metadata.
        number: that of the request.
        operation: what the body is; not always that of the request.
        status: 0, or an error, which has no body.
        marker: 1 for the final result of a write; always 0 in 0.9.
        incarnation: that of the request.
    """

    checksum: bytes = ZERO_ID
    checksum_body: bytes = ZERO_ID
    cluster: bytes = ZERO_ID
    size: int = VSR_HEAD_BYTES
    view: int = 0
    release: int = 0
    command: int = REPLY
    replica: int = 0
    reserved: bytes = bytes(66)
    identifier: bytes = ZERO_ID
    context: bytes = ZERO_ID
    client: bytes = ZERO_ID
    op: int = 0
    commit: int = 0
    timestamp: int = 0
    number: int = 0
    operation: int = 0
    padding: bytes = bytes(7)
    status: int = 0
    marker: int = 0
    reserved_marker: bytes = bytes(3)
    incarnation: int = 0
    reserved_end: bytes = bytes(24)

    def encode(self) -> bytes:
        """Write the head."""
        return _REPLY.pack(*self)


_RESERVED: Final = ReplyHead().reserved
_PADDING: Final = ReplyHead().padding
_RESERVED_MARKER: Final = ReplyHead().reserved_marker
_RESERVED_END: Final = ReplyHead().reserved_end


def write_reply_head(
    request: RequestHead,
    operation: int,
    body_bytes: int,
    status: int,
    positions: tuple[int, int],
    committed: tuple[int, int],
) -> bytes:
    """Write the head of a reply; the same as a ``ReplyHead`` with these fields, without making one.

    Args:
        request: what it answers.
        operation: what the body is.
        body_bytes: the size of the body.
        status: 0, or an error.
        positions: the fields ``op`` and ``commit``.
        committed: the fields ``marker`` and ``incarnation``.
    """
    op, commit = positions
    marker, incarnation = committed
    return _REPLY.pack(
        ZERO_ID, ZERO_ID, ZERO_ID, VSR_HEAD_BYTES + body_bytes, 0, 0, REPLY, 0, _RESERVED,
        request.identifier, ZERO_ID, request.client, op, commit, 0, request.number, operation,
        _PADDING, status, marker, _RESERVED_MARKER, incarnation, _RESERVED_END,
    )  # fmt: skip


class EvictionHead(NamedTuple):
    """The head of an eviction, which has no body and names no request.

    Attributes:
        highest: the newest version that the server accepts, if it refuses that of the client.
        lowest: the oldest one.
        reason: why the session ends.
    """

    checksum: bytes = ZERO_ID
    checksum_body: bytes = ZERO_ID
    cluster: bytes = ZERO_ID
    size: int = VSR_HEAD_BYTES
    view: int = 0
    release: int = 0
    command: int = EVICTION
    replica: int = 0
    reserved: bytes = bytes(66)
    client: bytes = ZERO_ID
    highest: int = 0
    lowest: int = 0
    reserved_end: bytes = bytes(103)
    reason: int = 0

    def encode(self) -> bytes:
        """Write the head."""
        return _EVICTION.pack(*self)


def read_request_head(buffer: Buffer, position: int = 0) -> RequestHead:
    """Read 256 bytes as the head of a request, whatever they are."""
    return RequestHead._make(_REQUEST.unpack_from(buffer, position))


def read_reply_head(buffer: Buffer, position: int = 0) -> ReplyHead:
    """Read 256 bytes as the head of a reply, whatever they are."""
    return ReplyHead._make(_REPLY.unpack_from(buffer, position))


def read_eviction_head(buffer: Buffer, position: int = 0) -> EvictionHead:
    """Read 256 bytes as the head of an eviction, whatever they are."""
    return EvictionHead._make(_EVICTION.unpack_from(buffer, position))


class FixedFields:
    """Fields of a head that have one value, compared with one call for all of them.

    Args:
        default: a head with these values.
        names: the fields.
    """

    def __init__(self, default: Any, *names: str) -> None:
        indices = [default._fields.index(name) for name in names]
        self._get = itemgetter(*indices)
        self._names = names
        self._expected = self._get(default)

    def check(self, head: Any) -> None:
        """Raise InvalidField for the first field that has another value."""
        found = self._get(head)
        if found == self._expected:
            return
        name, value, expected = next(
            (name, value, expected)
            for name, value, expected in zip(self._names, found, self._expected, strict=True)
            if value != expected
        )
        raise InvalidField(f"{name} is {value!r}, where it is always {expected!r}", field=name)


# Checksums of a head are 0 today and verified by no server, so another value is not refused.
REQUEST_FIXED = FixedFields(
    RequestHead(),
    "cluster",
    "view",
    "release",
    "replica",
    "reserved",
    "timestamp",
    "padding",
    "user_id",
    "reserved_end",
)
REQUEST_WITHOUT_CONTEXT = FixedFields(
    RequestHead(), "incarnation", "owner_generation", "metadata_position"
)
# A server may tell its cluster, view, replica and clock; clients ignore them.
REPLY_FIXED = FixedFields(ReplyHead(), "release", "reserved", "padding", "reserved_end")
REPLY_WITHOUT_MARKER = FixedFields(ReplyHead(), "marker", "reserved_marker", "incarnation")
EVICTION_FIXED = FixedFields(EvictionHead(), "size", "release", "reserved", "reserved_end")


def check_request(head: RequestHead, dialect: Dialect | None) -> None:
    """Raise InvalidField if a head is none that a client may send; ``None`` before its login."""
    REQUEST_FIXED.check(head)
    if head.client == ZERO_ID:
        raise InvalidField("client is zeros, but it names the session")
    if dialect is V0_11:
        REQUEST_WITHOUT_CONTEXT.check(head)


def check_reply(head: ReplyHead, dialect: Dialect) -> None:
    """Raise InvalidField if a head is none that a server of this dialect may send."""
    REPLY_FIXED.check(head)
    if head.status and head.size != VSR_HEAD_BYTES:
        raise InvalidField(f"status is {head.status}, but an error has no body")
    if dialect is V0_11:
        REPLY_WITHOUT_MARKER.check(head)
    elif head.marker > COMMITTED or any(head.reserved_marker):
        raise InvalidField(f"marker is {head.marker}, where it is 0 or {COMMITTED}")

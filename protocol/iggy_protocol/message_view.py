"""Messages back to back in memory, read in place: headers, the walk over them, and views.

A part of ``batch_python``; import from there.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, final

from construct import Bytes, Int32ul, Int64ul, Struct
from xxhash import xxh3_64_intdigest

from iggy_protocol.layout import Buffer, derive_struct

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self


# The header in front of every message, and the index entry that says where a message ends.
#
#      0        8                24       32         40       48       52       56        64
#     +--------+----------------+--------+----------+--------+--------+--------+---------+---
#     |checksum| id             | offset | timestamp| origin |headers |payload |reserved | payload,
#     | u64    | u128           | u64    | u64 us   | u64 us |length  |length  | u64     | headers
#     +--------+----------------+--------+----------+--------+--------+--------+---------+---
#
# The length of the user headers comes before that of the payload, but the payload bytes come before
# the user headers. Both layouts have a fixed size.


MESSAGE_HEADER = Struct(
    "checksum" / Int64ul,  # XXH3-64 over all bytes of the message after this field
    "id" / Bytes(16),  # a little-endian number, or a UUID in the order of its text
    "offset" / Int64ul,
    "timestamp_us" / Int64ul,
    "origin_timestamp_us" / Int64ul,
    "user_headers_length" / Int32ul,
    "payload_length" / Int32ul,
    "reserved" / Int64ul,
)

INDEX_ENTRY = Struct(
    "relative_offset" / Int32ul,  # counted from the start of the segment; 0 in a request
    "end_position" / Int32ul,  # where the message ends, and the next one starts
    "timestamp_us" / Int64ul,  # 0 in a request
)


HEADER, HEADER_FIELDS = derive_struct(MESSAGE_HEADER)
HEADER_BYTES = HEADER.size
CHECKSUM_BYTES = 8

# Iterating needs only the two lengths, which are followed by the reserved word alone.
LENGTHS = struct.Struct("<II")
AT_LENGTHS = HEADER_BYTES - LENGTHS.size - 8


class Header(NamedTuple):
    """The fields of a message header, in the order of their bytes."""

    checksum: int
    id: bytes
    offset: int
    timestamp_us: int
    origin_timestamp_us: int
    user_headers_length: int
    payload_length: int
    reserved: int


assert Header._fields == HEADER_FIELDS


def as_bytes_view(buffer: Buffer) -> memoryview:
    """Return a view of the bytes of any C-contiguous buffer, whatever its element type."""
    view = memoryview(buffer)
    if not view.c_contiguous:
        raise BufferError("the buffer is not C-contiguous")
    return view.cast("B")


def header_at(memory: memoryview, at: int) -> Header:
    """Read the header of a message that is known to be complete."""
    return Header._make(HEADER.unpack_from(memory, at))


def extent_at(memory: memoryview, at: int, end: int) -> tuple[int, int] | None:
    """Return the extent of the message at an offset.

    Returns:
        Size of header and payload, size of the whole message; ``None`` when the message does not
        lie before the end.
    """
    left = end - at
    if left < HEADER_BYTES:
        return None
    user_headers_length, payload_length = LENGTHS.unpack_from(memory, at + AT_LENGTHS)
    payload_end: int = HEADER_BYTES + payload_length
    size: int = payload_end + user_headers_length
    return (payload_end, size) if size <= left else None


def first_message_bytes(buffer: Buffer) -> int:
    """Return how large the first message is by its header, which is whole; the rest may be cut."""
    user_headers_length, payload_length = LENGTHS.unpack_from(as_bytes_view(buffer), AT_LENGTHS)
    size: int = HEADER_BYTES + payload_length + user_headers_length
    return size


def extents_of(memory: memoryview) -> Iterator[tuple[int, int, int]]:
    """Iterate over whole messages: start and extent of each; ValueError at a truncated end."""
    at, end = 0, len(memory)
    while (extent := extent_at(memory, at, end)) is not None:
        payload_end, size = extent
        yield at, payload_end, size
        at += size
    if at < end:
        raise ValueError(f"the last {end - at} bytes are not a whole message")


def message_checksum(message: memoryview) -> int:
    """Compute what the checksum of exactly one message should be."""
    return xxh3_64_intdigest(message[CHECKSUM_BYTES:])


@final
class MessageView:
    """One message, read in place; made by ``walk``."""

    __slots__ = ("_message", "_payload_end")

    _message: memoryview
    _payload_end: int

    def __init__(self) -> None:
        raise TypeError("cannot create 'MessageView' instances")

    def __init_subclass__(cls) -> None:
        raise TypeError("type 'MessageView' is not an acceptable base type")

    def _header(self) -> Header:
        return header_at(self._message, 0)

    @property
    def checksum(self) -> int:
        """XXH3-64 over the rest of the message."""
        return self._header().checksum

    @property
    def id(self) -> int:
        """128-bit id."""
        return int.from_bytes(self._header().id, "little")

    @property
    def offset(self) -> int:
        """Offset in the partition."""
        return self._header().offset

    @property
    def timestamp_us(self) -> int:
        """Server clock on append."""
        return self._header().timestamp_us

    @property
    def origin_timestamp_us(self) -> int:
        """Producer's clock."""
        return self._header().origin_timestamp_us

    @property
    def payload(self) -> memoryview:
        """Read-only memoryview, no copy."""
        return self._message[HEADER_BYTES : self._payload_end]

    @property
    def user_headers(self) -> memoryview:
        """Read-only memoryview, no copy."""
        return self._message[self._payload_end :]

    @property
    def size(self) -> int:
        """Bytes of the whole message."""
        return len(self._message)

    def is_intact(self) -> bool:
        """Tell whether the checksum holds."""
        return message_checksum(self._message) == self.checksum

    def __repr__(self) -> str:
        return (
            f"<MessageView offset={self.offset} id={self.id} timestamp_us={self.timestamp_us} "
            f"payload={len(self.payload)} bytes user_headers={len(self.user_headers)} bytes>"
        )


def walk(messages: Buffer, /) -> Iterator[MessageView]:
    """Iterate over views of the messages; ValueError at a cut tail."""
    return _walk(as_bytes_view(messages).toreadonly())


def _walk(memory: memoryview) -> Iterator[MessageView]:
    for at, payload_end, size in extents_of(memory):
        view = object.__new__(MessageView)
        view._message = memory[at : at + size]
        view._payload_end = payload_end
        yield view


# Message views with slots for decoded values, in pure Python.
#
# A part of ``batch_python``; import from there. A consumer derives its own class of messages from
# ``MessageRecord``.


R = TypeVar("R", bound="MessageRecord")


class MessageRecord:
    """One message of a batch; a base for a consumer's own class of messages.

    A class that adds no slots costs one allocation for each message. Its ``__init__`` is called
    when a record is made from a view, and not by ``reading``.
    """

    __slots__ = ("_opened", "_opens_plain", "_source", "_value", "_view")

    _view: MessageView
    _opens_plain: bool
    _source: Any
    _opened: Any
    _value: Any

    def __new__(cls, view: MessageView | MessageRecord, /, *_args: Any, **_keywords: Any) -> Self:
        """Make a record of the message that a view or another record looks at.

        Args:
            view: where the message is.
            _args: those of a derived class, whose ``__init__`` takes them.
            _keywords: the same.
        """
        if not isinstance(view, MessageView | MessageRecord):
            raise TypeError(f"a record is made of a MessageView, not of {type(view).__name__}")
        record = object.__new__(cls)
        record._view = view if isinstance(view, MessageView) else view._view
        record._opens_plain = False
        record._source = record._opened = record._value = None
        return record

    @property
    def checksum(self) -> int:
        """XXH3-64 over the rest of the message."""
        return self._view.checksum

    @property
    def id(self) -> int:
        """128-bit id."""
        return self._view.id

    @property
    def offset(self) -> int:
        """Offset in the partition."""
        return self._view.offset

    @property
    def timestamp_us(self) -> int:
        """Server clock on append."""
        return self._view.timestamp_us

    @property
    def origin_timestamp_us(self) -> int:
        """Producer's clock."""
        return self._view.origin_timestamp_us

    @property
    def size(self) -> int:
        """Bytes of the whole message."""
        return self._view.size

    @property
    def payload(self) -> bytes:
        """The payload; a copy if the message is plain, else what ``_read_payload`` returns."""
        return self.raw_payload if self._is_plain else self._read_payload()

    @property
    def raw_payload(self) -> bytes:
        """A copy of the payload as it lies there."""
        return bytes(self._view.payload)

    @property
    def raw_user_headers(self) -> bytes:
        """A copy of the user headers as they lie there."""
        return bytes(self._view.user_headers)

    @property
    def _is_plain(self) -> bool:
        """Whether the payload needs no decoding, because this message has no user headers."""
        return self._opens_plain and not len(self._view.user_headers)

    def _read_payload(self) -> bytes:
        """Read the payload of a message that is not plain."""
        return self.raw_payload


def reading(
    messages: Buffer,
    kind: type[R],
    source: object,
    opens_plain: object,
    kept: list[R | None],
    /,
) -> Iterator[R]:
    """Iterate over records of the messages; ValueError at a cut tail.

    A message has the same record as long as the record is referenced or holds a decoded value.
    Where ``kept`` has none, a new one is stored there; the extension removes records that are no
    longer referenced.
    """
    if not isinstance(kind, type) or not issubclass(kind, MessageRecord):
        raise TypeError("records are made of a class of MessageRecord")
    if not isinstance(kept, list):
        raise TypeError("records are kept in a list")
    return _reading(walk(messages), kind, source, bool(opens_plain), kept)


def _reading(
    views: Iterator[MessageView],
    kind: type[R],
    source: object,
    is_plain: bool,
    kept: list[R | None],
) -> Iterator[R]:
    for index, view in enumerate(views):
        if index >= len(kept):
            raise ValueError(f"there is no place for message {index}")
        record = kept[index]
        if record is None:
            record = MessageRecord.__new__(kind, view)
            record._source = source
            record._opens_plain = is_plain
            kept[index] = record
        yield record


# A message of a producer, and the size limits of its parts.

PAYLOAD_BYTES_MAX = 64_000_000
USER_HEADERS_BYTES_MAX = 100_000


class NewMessage(NamedTuple):
    """A message to be sent.

    Attributes:
        payload: the content, any bytes-like object.
        id: 0 asks the server to choose one.
        user_headers: an encoded block of user headers.
        origin_timestamp_us: the producer's clock; ``None`` takes the time of the whole batch.
    """

    payload: Buffer
    id: int = 0
    user_headers: bytes = b""
    origin_timestamp_us: int | None = None

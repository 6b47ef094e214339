"""Messages back to back in memory, read in place: headers, the walk over them, and views.

This is the reading half of the pure-Python twin; ``batch_python`` is its door. It knows how one
message lies in a buffer. It knows no index entries, no request bodies and no connections.
"""

from __future__ import annotations

from pickle import PickleBuffer
from typing import TYPE_CHECKING, NamedTuple, final

from xxhash import xxh3_64_intdigest

from iggy_protocol.fixed_layout import derive_struct
from iggy_protocol.model.message import MESSAGE_HEADER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iggy_protocol.layout import Buffer

__all__ = [
    "HEADER",
    "Header",
    "MessageView",
    "flat",
    "header_at",
    "headers_of",
    "message_checksum",
    "walk",
]

HEADER, HEADER_FIELDS = derive_struct(MESSAGE_HEADER)
CHECKSUM_BYTES = 8


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

    @property
    def message_bytes(self) -> int:
        """Size of the whole message."""
        return HEADER.size + self.payload_length + self.user_headers_length


assert Header._fields == HEADER_FIELDS


def flat(buffer: Buffer) -> memoryview:
    """Look at the bytes of any C-contiguous buffer.

    PickleBuffer exports the buffer anew, so that a memoryview which was passed in cannot be
    released while the result is in use, and turns elements of any kind into bytes.
    """
    if not memoryview(buffer).c_contiguous:
        raise BufferError("the buffer is not C-contiguous")
    return PickleBuffer(buffer).raw()


def header_at(memory: memoryview, at: int, end: int) -> Header | None:
    """Read the header at a place; ``None`` when the message does not lie before the end."""
    if end - at < HEADER.size:
        return None
    header = Header._make(HEADER.unpack_from(memory, at))
    return header if header.message_bytes <= end - at else None


def headers_of(memory: memoryview) -> Iterator[tuple[int, Header]]:
    """Walk whole messages, with the place of each; ValueError at a cut tail."""
    at = 0
    while (header := header_at(memory, at, len(memory))) is not None:
        yield at, header
        at += header.message_bytes
    if at < len(memory):
        raise ValueError(f"the last {len(memory) - at} bytes are not a whole message")


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
        return Header._make(HEADER.unpack_from(self._message))

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
        return self._message[HEADER.size : self._payload_end]

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
    return _walk(flat(messages).toreadonly())


def _walk(memory: memoryview) -> Iterator[MessageView]:
    for at, header in headers_of(memory):
        view = object.__new__(MessageView)
        view._message = memory[at : at + header.message_bytes]
        view._payload_end = HEADER.size + header.payload_length
        yield view

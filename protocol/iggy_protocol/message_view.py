"""Messages back to back in memory, read in place: headers, the walk over them, and views.

A part of ``batch_python``; import from there.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple, final

from xxhash import xxh3_64_intdigest

from iggy_protocol.fixed_layout import derive_struct
from iggy_protocol.message_layout import MESSAGE_HEADER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iggy_protocol.layout import Buffer

__all__ = [
    "HEADER",
    "Header",
    "MessageView",
    "extent_at",
    "extents_of",
    "flat",
    "header_at",
    "message_checksum",
    "walk",
]

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


def flat(buffer: Buffer) -> memoryview:
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
    return _walk(flat(messages).toreadonly())


def _walk(memory: memoryview) -> Iterator[MessageView]:
    for at, payload_end, size in extents_of(memory):
        view = object.__new__(MessageView)
        view._message = memory[at : at + size]
        view._payload_end = payload_end
        yield view

"""One message: what a producer hands over, and the header in front of it on the wire.

     0        8                24       32         40       48       52       56        64
    +--------+----------------+--------+----------+--------+--------+--------+---------+---
    |checksum| id             | offset | timestamp| origin |headers |payload |reserved | payload,
    | u64    | u128           | u64    | u64 us   | u64 us |length  |length  | u64     | headers
    +--------+----------------+--------+----------+--------+--------+--------+---------+---

The lengths stand headers first, the bytes payload first. Owns the two layouts of fixed size and
the limits of one message. Knows nothing of batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from construct import Bytes, Int32ul, Int64ul, Struct

if TYPE_CHECKING:
    from iggy_protocol.layout import Buffer

__all__ = [
    "INDEX_ENTRY",
    "MESSAGE_HEADER",
    "PAYLOAD_BYTES_MAX",
    "USER_HEADERS_BYTES_MAX",
    "NewMessage",
]

PAYLOAD_BYTES_MAX = 64_000_000
USER_HEADERS_BYTES_MAX = 100_000

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

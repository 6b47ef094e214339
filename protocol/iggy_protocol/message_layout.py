"""The header in front of every message, and the index entry that says where a message ends.

     0        8                24       32         40       48       52       56        64
    +--------+----------------+--------+----------+--------+--------+--------+---------+---
    |checksum| id             | offset | timestamp| origin |headers |payload |reserved | payload,
    | u64    | u128           | u64    | u64 us   | u64 us |length  |length  | u64     | headers
    +--------+----------------+--------+----------+--------+--------+--------+---------+---

The length of the user headers comes before that of the payload, but the payload bytes come before
the user headers. Both layouts have a fixed size.
"""

from __future__ import annotations

from construct import Bytes, Int32ul, Int64ul, Struct

__all__ = ["INDEX_ENTRY", "MESSAGE_HEADER"]

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

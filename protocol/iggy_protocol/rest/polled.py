"""Convert the JSON of a poll to the bytes of the binary protocol.

Consumers read messages in place, from the stored byte format. So the JSON is converted back to
it; it has every number, the payloads and the user headers. Only the order of user headers may
differ from the producer's, because the server sorts them.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from iggy_protocol.batch import MessageBatch, PolledMessages
from iggy_protocol.errors import InvalidField
from iggy_protocol.message_view import HEADER
from iggy_protocol.rest.codec import encode_header_entries

if TYPE_CHECKING:
    from iggy_protocol.rest.shapes import MessageShape, PolledMessagesShape

__all__ = ["read_polled"]

ID_BYTES = 16


def read_polled(shape: PolledMessagesShape) -> PolledMessages:
    """Make of JSON what a binary poll brings.

    Raises:
        InvalidField: a message contradicts itself, or a number does not fit its field.
    """
    parts: list[bytes] = []
    for index, message in enumerate(shape.messages):
        block = _block_of(message)
        parts += (_header_of(message, block, index), message.payload, block)
    return PolledMessages(
        shape.partition_id,
        shape.current_offset,
        shape.count,
        MessageBatch(b"".join(parts)),
    )


def _block_of(message: MessageShape) -> bytes:
    headers = message.user_headers
    if not headers:
        return b""
    return headers if isinstance(headers, bytes) else encode_header_entries(headers)


def _header_of(message: MessageShape, block: bytes, index: int) -> bytes:
    """Write the fixed part of a message, whose lengths have to be true."""
    header = message.header
    if header.payload_length != len(message.payload):
        raise _contradiction("the payload has another length", index, "payload")
    if header.user_headers_length != len(block):
        raise _contradiction("the user headers have another length", index, "user_headers")
    try:
        return HEADER.pack(
            header.checksum,
            header.id.to_bytes(ID_BYTES, "little"),
            header.offset,
            header.timestamp,
            header.origin_timestamp,
            header.user_headers_length,
            header.payload_length,
            header.reserved,
        )
    except struct.error:
        raise _contradiction("a number has at most 64 bits", index, "header") from None


def _contradiction(message: str, index: int, field: str) -> InvalidField:
    return InvalidField(message, field=f"messages.{index}.{field}")

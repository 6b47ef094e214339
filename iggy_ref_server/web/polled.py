"""The answer to a poll as JSON, made in pieces.

A poll may bring thousands of messages. They are encoded a few at a time, with a pause for everybody
else between the pieces, so that one large answer does not hold up the shard.

Owns the JSON of messages. How a poll is served is the handlers' affair.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

import trio

from iggy_protocol import CommandCode, decode_reply
from iggy_protocol.rest import (
    MessageHeaderShape,
    MessageShape,
    PolledMessagesShape,
    encode_json,
    interpret_user_headers,
)
from iggy_ref_server.storage.interface import FileSlice, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iggy_protocol import MessageView, PolledMessages
    from iggy_ref_server.handlers.messages import RawReply

__all__ = ["encode_polled_json"]

# About a millisecond of work.
MESSAGES_PER_PIECE: Final = 200
BYTES_PER_PIECE: Final = 1 << 19
NOTHING: Final = encode_json(PolledMessagesShape(0, 0, 0, ()))


async def encode_polled_json(reply: RawReply) -> bytes:
    """Write the answer to a poll.

    Raises:
        StorageError: a segment could not be read.
    """
    polled: PolledMessages = decode_reply(CommandCode.POLL_MESSAGES, await _load(reply))
    if not polled.messages_count:
        return NOTHING
    head = encode_json(
        PolledMessagesShape(polled.partition_id, polled.current_offset, polled.messages_count, ())
    )
    # The head ends with an empty list of messages, which the pieces fill.
    pieces = [head.removesuffix(b"]}")]
    messages = iter(polled.messages)
    while piece := _piece(messages):
        if len(pieces) > 1:
            pieces.append(b",")
            await trio.lowlevel.checkpoint()
        pieces.append(encode_json(piece)[1:-1])
    pieces.append(b"]}")
    return b"".join(pieces)


def _piece(messages: Iterator[MessageView]) -> list[MessageShape]:
    piece: list[MessageShape] = []
    size_bytes = 0
    for message in islice(messages, MESSAGES_PER_PIECE):
        piece.append(_shape(message))
        size_bytes += message.size
        if size_bytes >= BYTES_PER_PIECE:
            break
    return piece


def _shape(message: MessageView) -> MessageShape:
    payload, headers = message.payload, message.user_headers
    return MessageShape(
        header=MessageHeaderShape(
            checksum=message.checksum,
            id=message.id,
            offset=message.offset,
            timestamp=message.timestamp_us,
            origin_timestamp=message.origin_timestamp_us,
            user_headers_length=len(headers),
            payload_length=len(payload),
            reserved=0,
        ),
        payload=bytes(payload),
        user_headers=interpret_user_headers(headers) if headers else (),
    )


async def _load(reply: RawReply) -> bytes:
    """Join the parts of a reply, those included that are still in files."""
    parts: list[bytes] = []
    for part in reply.parts:
        if not isinstance(part, FileSlice):
            parts.append(bytes(part))
            continue
        content = await part.file.read(part.size, part.position)
        if len(content) != part.size:
            raise StorageError("read", part.file.path, "the segment is shorter than its index says")
        parts.append(content)
    return b"".join(parts)

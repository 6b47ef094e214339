"""The answer to a poll as JSON, made in pieces.

A poll may bring thousands of messages. They are encoded a few at a time, with a pause for everybody
else between the pieces, so that one large answer does not hold up the shard; and each piece leaves
before the next is made, so that the client can read meanwhile.

Owns the JSON of messages. How a poll is served is the handlers' affair.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import trio
from msgspec import defstruct
from starlette.responses import Response

from iggy_protocol import CommandCode, decode_reply
from iggy_protocol.rest import (
    MessageHeaderShape,
    MessageShape,
    PolledMessagesShape,
    encode_json,
    interpret_user_headers,
)
from iggy_ref_server.storage.interface import FileSlice, StorageError
from iggy_ref_server.web.errors import JSON, json_response

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import Receive, Scope, Send

    from iggy_protocol import MessageBatch, PolledMessages
    from iggy_ref_server.handlers.messages import RawReply

__all__ = ["respond_polled"]

# About a millisecond of work.
MESSAGES_PER_PIECE: Final = 200
BYTES_PER_PIECE: Final = 1 << 19
NOTHING: Final = encode_json(PolledMessagesShape(0, 0, 0, ()))
RESERVED: Final = 0
ID_BYTES: Final = 16

# What is written only, and was checked when it was stored, need not be checked once more. There is
# one for each message, so that is most of what it would cost.
_Header: Any = defstruct("_Header", MessageHeaderShape.__struct_fields__, gc=False)
_Message: Any = defstruct("_Message", MessageShape.__struct_fields__, gc=False)


async def respond_polled(reply: RawReply) -> Response:
    """Answer a poll; a large answer leaves piece by piece, while the next piece is being written.

    Raises:
        StorageError: a segment could not be read.
    """
    polled: PolledMessages = decode_reply(CommandCode.POLL_MESSAGES, await _load(reply))
    pieces = _write(polled)
    if polled.messages.nbytes <= BYTES_PER_PIECE:
        return json_response(b"".join(pieces))
    return PiecesResponse(pieces)


class PiecesResponse(Response):
    """An answer in JSON whose length nobody knows before it is written.

    Args:
        pieces: its parts, each of them a moment's work.
    """

    def __init__(self, pieces: Iterator[bytes]) -> None:
        super().__init__(media_type=JSON)
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send one piece after another; the others have their turns in between."""
        headers = [header for header in self.raw_headers if header[0] != b"content-length"]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for piece in self._pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            await trio.lowlevel.checkpoint()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _write(polled: PolledMessages) -> Iterator[bytes]:
    """Write the JSON of an answer in pieces."""
    if not polled.messages_count:
        yield NOTHING
        return
    shape = PolledMessagesShape(
        polled.partition_id, polled.current_offset, polled.messages_count, ()
    )
    # It ends with an empty list of messages, which the pieces fill.
    before = encode_json(shape).removesuffix(b"]}")
    messages = _shapes(polled.messages)
    while piece := _piece(messages):
        yield before + encode_json(piece)[1:-1]
        before = b","
    yield b"]}"


def _piece(messages: Iterator[Any]) -> list[Any]:
    """Take as many messages as are a moment's work, however their sizes differ."""
    piece: list[Any] = []
    size_bytes = 0
    for message in islice(messages, MESSAGES_PER_PIECE):
        piece.append(message)
        size_bytes += len(message.payload)
        if size_bytes >= BYTES_PER_PIECE:
            break
    return piece


def _shapes(messages: MessageBatch) -> Iterator[Any]:
    columns = messages.columns()
    payloads, blocks = memoryview(columns.payloads or b""), memoryview(columns.user_headers or b"")
    ids = memoryview(columns.ids)
    payload_at = block_at = id_at = 0
    for checksum, offset, timestamp_us, origin_us, payload_end, block_end in zip(
        memoryview(columns.checksums).cast("Q"),
        memoryview(columns.offsets).cast("Q"),
        memoryview(columns.timestamps_us).cast("Q"),
        memoryview(columns.origin_timestamps_us).cast("Q"),
        memoryview(columns.payload_bounds or b"").cast("i")[1:],
        memoryview(columns.user_header_bounds or b"").cast("i")[1:],
        strict=True,
    ):
        header = _Header(
            checksum,
            int.from_bytes(ids[id_at : id_at + ID_BYTES], "little"),
            offset,
            timestamp_us,
            origin_us,
            block_end - block_at,
            payload_end - payload_at,
            RESERVED,
        )
        block = blocks[block_at:block_end]
        headers = interpret_user_headers(block) if block else ()
        yield _Message(header, payloads[payload_at:payload_end], headers)
        payload_at, block_at, id_at = payload_end, block_end, id_at + ID_BYTES


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

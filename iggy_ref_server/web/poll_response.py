"""The response to a poll, encoded as JSON in pieces.

A poll may return thousands of messages. They are encoded a few at a time with a checkpoint between
the pieces, so that one large response does not block the shard. Each piece is sent before the next
is encoded.
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
    from iggy_ref_server.dispatch.handlers.messages import EncodedReply

__all__ = ["respond_polled"]

# About a millisecond of work.
MESSAGES_PER_PIECE: Final = 200
BYTES_PER_PIECE: Final = 1 << 19
EMPTY_POLL: Final = encode_json(PolledMessagesShape(0, 0, 0, ()))
RESERVED: Final = 0
ID_BYTES: Final = 16

# The values were validated when they were stored. The validating classes would cost most of the
# time, because there is one object per message.
_Header: Any = defstruct("_Header", MessageHeaderShape.__struct_fields__, gc=False)
_Message: Any = defstruct("_Message", MessageShape.__struct_fields__, gc=False)


async def respond_polled(reply: EncodedReply) -> Response:
    """Make the response to a poll; a large one is sent piece by piece.

    Raises:
        StorageError: a segment could not be read.
    """
    polled: PolledMessages = decode_reply(CommandCode.POLL_MESSAGES, await _load(reply))
    pieces = _write(polled)
    if polled.messages.nbytes <= BYTES_PER_PIECE:
        return json_response(b"".join(pieces))
    return StreamedJsonResponse(pieces)


class StreamedJsonResponse(Response):
    """A JSON response whose length is not known in advance.

    Args:
        pieces: encodes the parts one by one.
    """

    def __init__(self, pieces: Iterator[bytes]) -> None:
        super().__init__(media_type=JSON)
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the pieces with a checkpoint after each."""
        headers = [header for header in self.raw_headers if header[0] != b"content-length"]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for piece in self._pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            await trio.lowlevel.checkpoint()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _write(polled: PolledMessages) -> Iterator[bytes]:
    """Encode a response in pieces."""
    if not polled.messages_count:
        yield EMPTY_POLL
        return
    shape = PolledMessagesShape(
        polled.partition_id, polled.current_offset, polled.messages_count, ()
    )
    # Remove the end of the empty list of messages, which the pieces fill.
    before = encode_json(shape).removesuffix(b"]}")
    messages = _shapes(polled.messages)
    while piece := _piece(messages):
        yield before + encode_json(piece)[1:-1]
        before = b","
    yield b"]}"


def _piece(messages: Iterator[Any]) -> list[Any]:
    """Take the messages of one piece, limited by count and size."""
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


async def _load(reply: EncodedReply) -> bytes:
    """Join the parts of a reply, and read those that are pieces of files."""
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

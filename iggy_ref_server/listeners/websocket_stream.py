"""The WebSocket handshake, and a WebSocket connection over TLS as a stream of bytes.

A pong waits for the end of a frame, and the close frame for all replies. Connections without TLS
need no stream: the socket server serves them with a codec.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import trio
from websockets.http11 import Request
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

from iggy_ref_server.data_plane.lingering import DISCARD_BYTES, linger
from iggy_ref_server.listeners.websocket_frames import FrameReader, ReplyFramer

if TYPE_CHECKING:
    from iggy_ref_server.config import WebSocket

__all__ = ["HandshakeRefused", "WebSocketStream", "say_nothing_more", "shake_hands"]

# The library logs every connection; the listener does that already, with the address.
LIBRARY_LOGGER: Final = logging.getLogger(f"{__name__}.library")
LIBRARY_LOGGER.setLevel(logging.WARNING)

END_OF_HEAD: Final = b"\r\n\r\n"
HEAD_BYTES_MAX: Final = 16 * 1024
HEAD_PIECE_BYTES: Final = 4096
# The defaults of Apache Iggy's WebSocket library.
FRAME_BYTES_MAX: Final = 16 << 20
MESSAGE_BYTES_MAX: Final = 64 << 20
RECEIVE_BYTES: Final = 64 << 10
# Up to this size the parts of a reply are joined, so that they leave in one packet.
JOINED_BYTES_MAX: Final = 64 << 10
# How long a client may leave a pong unread.
PONG_S: Final = 30.0
# How long a client may leave the close frame unread.
FAREWELL_S: Final = 1.0
BROKEN: Final = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)


class HandshakeRefused(Exception):
    """The request of the client is no valid WebSocket handshake."""


async def shake_hands(transport: trio.abc.Stream, config: WebSocket) -> tuple[FrameReader, bytes]:
    """Do the handshake; the caller sets the timeout, and closes the transport if this fails.

    Args:
        transport: the connection, encrypted or not.
        config: the section ``[websocket]``.

    Returns:
        The decoder of the frames, and the bytes that arrived after the request.

    Raises:
        HandshakeRefused: the request is invalid; an HTTP error was sent if possible.
        trio.BrokenResourceError: the client disconnected.
    """
    protocol = ServerProtocol(max_size=None, logger=LIBRARY_LOGGER)
    rest = await _hear_request(transport, protocol)
    answer = b"".join(protocol.data_to_send())
    if answer:
        await transport.send_all(answer)
    if protocol.state is not OPEN:
        raise HandshakeRefused(str(protocol.handshake_exc or "the head is too long"))
    reader = FrameReader(
        protocol,
        frame_bytes_max=config.max_frame_size_bytes or FRAME_BYTES_MAX,
        message_bytes_max=config.max_message_size_bytes or MESSAGE_BYTES_MAX,
        accepts_unmasked=config.accept_unmasked_frames,
    )
    return reader, rest


async def _hear_request(transport: trio.abc.Stream, protocol: ServerProtocol) -> bytes:
    """Have the library read a request and reply; return the bytes after the request."""
    head = b""
    while not protocol.close_expected():
        data = bytes(await transport.receive_some(HEAD_PIECE_BYTES))
        if not data:
            raise trio.BrokenResourceError("the client disconnected during the handshake")
        seen_bytes, head = len(head), head + data
        end = head.find(END_OF_HEAD, max(0, seen_bytes - len(END_OF_HEAD) + 1))
        end = len(head) if end < 0 else end + len(END_OF_HEAD)
        protocol.receive_data(head[seen_bytes:end])
        for request in protocol.events_received():
            assert isinstance(request, Request), "the library was shown the head alone"
            protocol.send_response(protocol.accept(request))
            return head[end:]
        if len(head) > HEAD_BYTES_MAX and not protocol.close_expected():
            reason = "The head of the request is too long.\n"
            refusal = protocol.reject(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, reason)
            protocol.send_response(refusal)
    return b""


class WebSocketStream(trio.abc.Stream):
    """The payloads of a client's binary messages as a stream, and replies as such messages.

    Args:
        transport: the connection after its handshake.
        reader: decodes its frames.
        rest: the bytes that arrived after the handshake's request.
    """

    def __init__(self, transport: trio.abc.Stream, reader: FrameReader, rest: bytes) -> None:
        self._transport = transport
        self._reader = reader
        self._framer = ReplyFramer()
        self._inbox: deque[bytes] = deque(reader.feed(rest))
        self._is_sending = False
        self._turns = trio.lowlevel.ParkingLot()
        self._is_torn = False
        self._is_deserted = False
        self._is_closed = False

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Receive bytes of messages; empty when either side has closed."""
        if self._is_closed:
            raise trio.ClosedResourceError
        wanted = max_bytes or RECEIVE_BYTES
        reader = self._reader
        while not self._inbox:
            if reader.pong is not None:
                await self._send_pong()
            if reader.is_ended or self._is_deserted:
                await trio.lowlevel.checkpoint()
                return b""
            data = await self._transport.receive_some(min(wanted, max(reader.left, RECEIVE_BYTES)))
            self._is_deserted = not data
            self._inbox.extend(reader.feed(bytes(data)))
        piece = self._inbox.popleft()
        if len(piece) > wanted:
            self._inbox.appendleft(piece[wanted:])
            return piece[:wanted]
        return piece

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send replies, split at any position."""
        if self._is_closed:
            raise trio.ClosedResourceError
        while self._is_sending:
            await self._turns.park()
        parts = self._framer.frame(data)
        if self._owes_pong:
            parts.append(self._take_pong())
        await self._write(parts)
        # The reader leaves a pong to the writer during a write, and no other reply may follow.
        while self._owes_pong and not self._is_sending:
            await self._write([self._take_pong()])

    @property
    def _owes_pong(self) -> bool:
        """Whether a pong is waiting and can be written now."""
        return self._reader.pong is not None and self._framer.is_between

    async def _send_pong(self) -> None:
        """Send a pong, unless a frame is being written, whose writer sends the pong too."""
        if self._is_sending or not self._owes_pong:
            return
        with trio.move_on_after(PONG_S) as patience:
            await self._write([self._take_pong()])
        if patience.cancelled_caught:
            raise trio.BrokenResourceError("the client does not read its pongs")

    def _take_pong(self) -> bytes:
        pong, self._reader.pong = self._reader.pong, None
        return pong or b""

    async def _write(self, parts: list[bytes | memoryview]) -> None:
        """Write, and wake the next writer."""
        self._is_sending = self._is_torn = True
        try:
            if len(parts) == 1:
                await self._transport.send_all(parts[0])
            elif sum(map(len, parts)) <= JOINED_BYTES_MAX:
                await self._transport.send_all(b"".join(parts))
            else:
                for part in parts:
                    await self._transport.send_all(part)
            self._is_torn = False
        finally:
            self._is_sending = False
            self._turns.unpark()

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until the transport takes more."""
        await self._transport.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        """Send a close frame, let the client read its last replies, and close."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            with contextlib.suppress(*BROKEN):
                await self._take_leave()
        finally:
            await trio.aclose_forcefully(self._transport)

    async def _take_leave(self) -> None:
        self._reader.close()
        if self._is_deserted:
            return
        with trio.move_on_after(FAREWELL_S) as patience:
            if not self._is_torn and not self._is_sending and self._framer.is_between:
                await self._transport.send_all(self._reader.farewell)
        if patience.cancelled_caught:
            return
        transport = self._transport
        below = transport.transport_stream if isinstance(transport, trio.SSLStream) else transport
        if isinstance(below, trio.abc.HalfCloseableStream):
            await say_nothing_more(below)


async def say_nothing_more(below: trio.abc.HalfCloseableStream) -> None:
    """Half-close, and let the client read the last bytes before the socket is closed."""

    async def discard() -> bool:
        return bool(await below.receive_some(DISCARD_BYTES))

    with contextlib.suppress(*BROKEN):
        await below.send_eof()
        await linger(discard)

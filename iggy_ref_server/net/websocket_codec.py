"""The WebSocket codec of a connection in the socket server.

``FramedOutputBuffer`` encodes replies as frames when they are put in; pieces of files stay pieces.
``WebSocketCodec`` decodes received frames and replies to pings.

Replies are put in as wholes, so a pong is always between two of them, and the close frame after the
last. Has no socket and handles no requests.
"""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Protocol

import trio
from websockets.http11 import Request
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

from iggy_protocol.websocket import FrameReader, ReplyFramer
from iggy_ref_server.dispatch.replies import OutputBuffer
from iggy_ref_server.net.handshakes import HandshakeRefused
from iggy_ref_server.storage.interface import FileSlice

if TYPE_CHECKING:
    from iggy_protocol import Buffer
    from iggy_ref_server.config.schema import WebSocketListenerConfig
    from iggy_ref_server.net.socket_connection import SocketLimits


# The size of a receive call while no large payload is incomplete.
CODEC_RECEIVE_BYTES: Final = 64 << 10
# Up to this size a part of a reply is joined with its frame head: one buffer instead of two. So are
# replies that come together, such as those to a run of sends, if they have this size on average.
JOINED_FRAME_BYTES_MAX: Final = 1 << 10


class FramedOutputBuffer(OutputBuffer):
    """The output buffer of one client, in frames."""

    __slots__ = ("_framer", "_pong", "_pong_end", "_put_bytes")

    def __init__(self) -> None:
        super().__init__()
        self._framer = ReplyFramer()
        self._put_bytes = 0
        self._pong = b""
        self._pong_end = 0

    def use_vsr_frames(self) -> None:
        """Find the ends of replies as from 0.9 on: each of them is one message."""
        assert self._framer.is_at_boundary, "a reply was not put in as a whole"
        self._framer.is_vsr = True

    def put(self, item: Buffer | FileSlice) -> None:
        """Append a part of a reply; the reply's head must be in buffers, split anywhere."""
        if isinstance(item, FileSlice):
            position = item.position
            for head, size in self._framer.skip(item.size):
                self._append(head)
                self._append(FileSlice(item.file, position, size))
                position += size
            return
        parts = self._framer.frame(item)
        frames_count = len(parts) // 2
        if frames_count and sum(map(len, parts)) <= JOINED_FRAME_BYTES_MAX * frames_count:
            parts = [b"".join(parts)]
        for part in parts:
            self._append(part)

    def sent(self, size: int) -> None:
        """Drop the first ``size`` bytes."""
        super().sent(size)
        if self._pong:
            self._put_pong()

    def sent_encoded(self, size: int) -> None:
        """Drop the first ``size`` encrypted bytes."""
        super().sent_encoded(size)
        if self._pong:
            self._put_pong()

    def put_pong(self, pong: bytes) -> None:
        """Append a pong as soon as the one before it is sent.

        Of several waiting pongs only the last is sent (RFC 6455, section 5.5.3), so a client that
        reads none of them uses no memory.
        """
        self._pong = pong
        self._put_pong()

    def put_close(self, close_frame: bytes) -> None:
        """Append a close frame."""
        assert self._framer.is_at_boundary, "a reply was not put in as a whole"
        self._pong = b""
        self._append(close_frame)

    def _put_pong(self) -> None:
        sent_bytes = self._put_bytes - self.size_bytes
        if sent_bytes >= self._pong_end:
            assert self._framer.is_at_boundary, "a reply was not put in as a whole"
            self._append(self._pong)
            self._pong_end, self._pong = self._put_bytes, b""

    def _append(self, item: Buffer | FileSlice) -> None:
        before = self.size_bytes
        super().put(item)
        self._put_bytes += self.size_bytes - before


class WebSocketCodec:
    """The frames of one connection behind its handshake.

    Args:
        reader: decodes received bytes.
        limits: the limits of the connection.
        receive_bytes: how much to receive per call.

    Attributes:
        output_buffer: encodes replies as frames.
    """

    __slots__ = ("_has_written_close", "_reader", "_receive_bytes", "limits", "output_buffer")

    def __init__(self, reader: FrameReader, limits: SocketLimits, *, receive_bytes: int) -> None:
        self._reader = reader
        self._receive_bytes = receive_bytes
        self._has_written_close = False
        self.limits = limits
        self.output_buffer = FramedOutputBuffer()

    @property
    def receive_bytes(self) -> int:
        """How much to receive per call: more while a large payload is incomplete."""
        return min(self._receive_bytes, max(self._reader.left, CODEC_RECEIVE_BYTES))

    @property
    def missing_bytes(self) -> int:
        """The missing bytes of the current payload."""
        return min(self._reader.left, self._receive_bytes)

    @property
    def is_mid_frame(self) -> bool:
        """Whether a frame is incomplete."""
        return self._reader.is_mid_frame

    @property
    def is_ended(self) -> bool:
        """Whether the client has sent a close frame or violated the protocol."""
        return self._reader.is_ended

    def decode(self, data: bytes) -> bytes:
        """Decode frames, split at any position; return the payloads and reply to pings."""
        reader = self._reader
        content = b"".join(reader.feed(data))
        if reader.pong is not None:
            pong, reader.pong = reader.pong, None
            self.output_buffer.put_pong(pong)
        return content

    def write_close(self) -> None:
        """Append the close frame: the reply to the client's, or one with GOING_AWAY."""
        if not self._has_written_close:
            self._has_written_close = True
            self._reader.close()
            self.output_buffer.put_close(self._reader.close_frame)


# The WebSocket handshake, on a connection that is encrypted or not.


# The library logs every connection; the listener does that already, with the address.
LIBRARY_LOGGER: Final = logging.getLogger(f"{__name__}.library")
LIBRARY_LOGGER.setLevel(logging.WARNING)

END_OF_HEAD: Final = b"\r\n\r\n"
HEAD_BYTES_MAX: Final = 16 * 1024
HEAD_PIECE_BYTES: Final = 4096
# The defaults of Apache Iggy's WebSocket library.
FRAME_BYTES_MAX: Final = 16 << 20
MESSAGE_BYTES_MAX: Final = 64 << 20


class HandshakeStream(Protocol):
    """The bytes of a connection during its handshake."""

    async def receive_some(self, size: int, /) -> bytes | bytearray:
        """Wait for bytes; empty at the end of the input."""

    async def send_all(self, data: bytes, /) -> None:
        """Send a small reply."""


async def accept_handshake(
    transport: HandshakeStream, config: WebSocketListenerConfig
) -> tuple[FrameReader, bytes]:
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
    rest = await _read_request(transport, protocol)
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


async def _read_request(transport: HandshakeStream, protocol: ServerProtocol) -> bytes:
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

"""A WebSocket connection over TCP or TLS: each request is one binary message."""

from __future__ import annotations

import errno
import logging
import math
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from iggy_sdk.errors import ConfigurationError, ConnectionFailedError
from iggy_sdk.transport.tcp import TcpTransport, format_endpoint, open_tcp
from iggy_sdk.transport.tls import HandshakeEndedError, TlsTransport, open_tls

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from websockets.client import ClientProtocol

    from iggy_protocol import Buffer
    from iggy_protocol.websocket import InPlaceFrameReader, RequestFramer
    from iggy_sdk.connection_string import Endpoint
    from iggy_sdk.options import ClientOptions


LOGGER = logging.getLogger(__name__)

END_OF_HEAD = b"\r\n\r\n"
HEAD_BYTES_MAX = 16_384
HEAD_PIECE_BYTES = 4096

HTTP = b"HTTP/"
TLS_ALERT = b"\x15\x03"
SERVER_ERROR = 500

PORT_ADVICE = "Use the port of the server's WebSocket listener, 8092 by default."
PLAIN_ADVICE = "Use iggy+wss:// if the server has TLS enabled on this port."


class WebSocketTransport:
    """A connection whose handshakes are done."""

    def __init__(
        self,
        transport: TcpTransport | TlsTransport,
        reader: InPlaceFrameReader,
        framer: RequestFramer,
        *,
        unread: bytes = b"",
    ) -> None:
        self._transport = transport
        self._reader = reader
        self._framer = framer
        self._unread = unread
        self._is_writing = False
        self._pending_control: list[Buffer] = []

    @property
    def peer(self) -> str:
        """Where the server is."""
        return self._transport.peer

    def send_nowait(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """Write what the socket takes of a request; the rest that is returned is framed already."""
        assert not self._is_writing, "the rest of the previous request must be sent first"
        if self._reader.is_ended:
            raise BrokenPipeError(errno.EPIPE, "the server has closed the WebSocket")
        left, self._pending_control = self._pending_control, []
        for piece in self._framer.frame(buffers):
            left.append(piece)
            if not self._is_writing:
                left = self._transport.send_nowait(left)
                self._is_writing = bool(left)
        return left

    async def send(self, left: list[Buffer]) -> None:
        """Write everything."""
        if left and not self._is_writing:
            left[:] = self.send_nowait(left)
        await self._transport.send(left)
        self._is_writing = False

    async def receive_into(self, space: memoryview) -> int:
        """Wait for bytes of replies and read them."""
        while True:
            if self._unread:
                count: int | None = self._decode(space, self._take_unread(space))
            elif self._reader.is_ended:
                return self._end_of_stream()
            else:
                received = await self._transport.receive_into(space)
                count = self._decode(space, received) if received else 0
            if count is not None:
                return count

    def receive_nowait(self, space: memoryview) -> int | None:
        """Read what is there."""
        if self._unread:
            return self._decode(space, self._take_unread(space))
        if self._reader.is_ended:
            return self._end_of_stream()
        received = self._transport.receive_nowait(space)
        return self._decode(space, received) if received else received

    def _take_unread(self, space: memoryview) -> int:
        piece, self._unread = self._unread[: len(space)], self._unread[len(space) :]
        space[: len(piece)] = piece
        return len(piece)

    def _decode(self, space: memoryview, received: int) -> int | None:
        """Return the number of bytes of replies in what was received; None if there is none."""
        reader = self._reader
        kept = reader.decode_in_place(space, received)
        if reader.pong is not None or reader.close_frame:
            self._send_control_reply()
        if kept:
            return kept
        return self._end_of_stream() if reader.is_ended else None

    def _send_control_reply(self) -> None:
        """Reply to a ping or a close frame, between two frames and without waiting."""
        control_reply = self._reader.take_control_reply()
        if not self._pending_control:
            self._pending_control = [control_reply]
        if not self._is_writing:
            with suppress(OSError):
                self._pending_control = self._transport.send_nowait(self._pending_control)

    def _end_of_stream(self) -> int:
        if self._reader.failure:
            raise OSError(
                errno.EPROTO, f"the server broke the WebSocket protocol: {self._reader.failure}"
            )
        return 0

    def add_reader(self, on_bytes: Callable[[], None]) -> bool:
        """Have the event loop call a function whenever there are bytes, where it can."""
        return not self._unread and self._transport.add_reader(on_bytes)

    def remove_reader(self) -> None:
        """Remove the callback."""
        self._transport.remove_reader()

    def interrupt(self) -> None:
        """Wake the task that waits for bytes."""
        self._transport.interrupt()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    async def aclose(self) -> None:
        """Send a close frame without waiting for that of the server, and close."""
        if not self._is_writing:
            self._reader.close()
            if self._reader.close_frame:
                self._send_control_reply()
        await self._transport.aclose()


async def open_websocket(endpoint: Endpoint, options: ClientOptions) -> WebSocketTransport:
    """Connect to an endpoint and upgrade to a WebSocket; the caller limits the time.

    Raises:
        ConnectionFailedError: no server answers there, or it refuses the upgrade.
        ConfigurationError: a file of the options cannot be read, or a library is missing.
    """
    codec = _import_codec()
    transport: TcpTransport | TlsTransport
    if options.tls is None:
        transport = await open_tcp(endpoint, options)
    else:
        transport = await open_tls(endpoint, options, options.tls)
    try:
        secure = options.tls is not None
        protocol = _client_protocol(endpoint.host, endpoint.port, secure=secure)
        unread = await _run_handshake(transport, protocol, endpoint)
    except OSError as error:
        transport.abort()
        if isinstance(error, ConnectionFailedError):
            raise
        raise _handshake_ended_error(endpoint, error.strerror or str(error)) from error
    except BaseException:
        transport.abort()
        raise
    settings = options.transport_settings
    reader = codec.InPlaceFrameReader(
        protocol,
        frame_bytes_max=settings.get("max_frame_size", math.inf),
        message_bytes_max=settings.get("max_message_size", math.inf),
    )
    framer = codec.RequestFramer(secrets.token_bytes)
    return WebSocketTransport(transport, reader, framer, unread=unread)


def _import_codec() -> Any:
    """Import the part of the protocol whose library is an optional dependency."""
    try:
        from iggy_protocol import websocket
    except ImportError as error:
        raise ConfigurationError(
            "iggy+ws:// needs a library that is not installed: websockets",
            advice="Run: pip install 'iggy-python[websocket]'",
        ) from error
    return websocket


def _client_protocol(host: str, port: int, *, secure: bool) -> ClientProtocol:
    """Make the protocol object of ``websockets`` for a new connection."""
    from websockets.client import ClientProtocol
    from websockets.uri import parse_uri

    scheme = "wss" if secure else "ws"
    where = f"[{host.partition('%')[0]}]" if ":" in host else host
    uri = parse_uri(f"{scheme}://{where}:{port}/")
    return ClientProtocol(uri, max_size=None, logger=LOGGER)


async def _run_handshake(
    transport: TcpTransport | TlsTransport, protocol: ClientProtocol, endpoint: Endpoint
) -> bytes:
    """Do the upgrade; return the bytes that followed the response."""
    protocol.send_request(protocol.connect())
    left: list[Buffer] = transport.send_nowait(protocol.data_to_send())
    await transport.send(left)
    head, space = b"", memoryview(bytearray(HEAD_PIECE_BYTES))
    while END_OF_HEAD not in head:
        count = await transport.receive_into(space)
        if not count and not head:
            raise _handshake_ended_error(endpoint, "the server closed the connection")
        head += space[:count]
        if not count or not head.startswith(HTTP[: len(head)]) or len(head) > HEAD_BYTES_MAX:
            raise _handshake_refused_error(endpoint, head)
    end = head.index(END_OF_HEAD) + len(END_OF_HEAD)
    protocol.receive_data(head[:end])
    protocol.events_received()
    protocol.data_to_send()
    if protocol.handshake_exc is not None or protocol.state.name != "OPEN":
        raise _handshake_refused_error(endpoint, head, protocol.handshake_exc)
    return head[end:]


def _handshake_ended_error(endpoint: Endpoint, reason: str) -> ConnectionFailedError:
    return HandshakeEndedError(
        f"{format_endpoint(endpoint)} ended the WebSocket handshake: {reason}",
        advice=f"{PORT_ADVICE} {PLAIN_ADVICE}",
    )


def _handshake_refused_error(
    endpoint: Endpoint, head: bytes, reason: Exception | None = None
) -> ConnectionFailedError:
    """Make the error of a refused upgrade, with advice."""
    where = format_endpoint(endpoint)
    if head.startswith(TLS_ALERT):
        return ConnectionFailedError(
            f"{where} requires TLS", advice="Use iggy+wss:// for this server.", retriable=False
        )
    if not head.startswith(HTTP):
        return ConnectionFailedError(
            f"{where} does not speak WebSocket", advice=PORT_ADVICE, retriable=False
        )
    status = head.partition(b"\r\n")[0].decode("latin-1")[:200]
    words = status.split(" ", 2)
    if words[1:2] == ["101"]:
        return ConnectionFailedError(
            f"{where} answered the WebSocket handshake wrongly: {reason or 'the head is too long'}",
            advice=PORT_ADVICE,
            retriable=False,
        )
    is_server_error = words[1:2] and words[1].isdigit() and int(words[1]) >= SERVER_ERROR
    return ConnectionFailedError(
        f"{where} refused the WebSocket: {status}",
        advice="Check the server and the proxy before it, then try again."
        if is_server_error
        else PORT_ADVICE,
        retriable=bool(is_server_error),
    )

"""A blocking WebSocket client for tests that sends any frame, good or bad, and shows what comes.

    peer = WsPeer(address)
    peer.send(frame_of(Ping()))          one masked binary message
    assert peer.read() == bytes(8)       the payload of the next binary message

Handshake and parsing are done by ``websockets``; frames are written byte by byte.
"""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Any

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

from iggy_protocol import LoginUser
from tests.protocol.websocket.frames import ws_frame
from tests.server.features.topic_calls import frame_of

if TYPE_CHECKING:
    import ssl
    from types import TracebackType

REQUEST = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def listening_address(server, name: str = "websocket") -> tuple[str, int]:
    """Return the address of a listener of a running server."""
    host, _, port = server.current_config()[name]["address"].rpartition(":")
    return host.strip("[]"), int(port)


class WsPeer:
    """One connection behind its handshake."""

    def __init__(
        self, address: tuple[str, int], *, tls: ssl.SSLContext | None = None, timeout_s: float = 10
    ) -> None:
        raw = socket.create_connection(address, timeout=timeout_s)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = raw if tls is None else tls.wrap_socket(raw, server_hostname="localhost")
        self.protocol = ClientProtocol(parse_uri("ws://localhost/"), max_size=None)
        self.protocol.send_request(self.protocol.connect())
        self._events: list[Any] = []
        self._flush()
        while self.protocol.state is State.CONNECTING:
            self._receive()
        self._events.pop(0)

    def __enter__(self) -> WsPeer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def login(self) -> None:
        """Log in as root."""
        self.send(frame_of(LoginUser("iggy", "iggy")))
        assert self.read()[:4] == bytes(4)

    def send(self, payload: bytes) -> None:
        """Send one binary message."""
        self.socket.sendall(ws_frame(payload))

    def send_raw(self, data: bytes) -> None:
        """Send any bytes."""
        self.socket.sendall(data)

    def read_frame(self) -> Frame:
        """Return the next frame, of whatever kind."""
        while not self._events:
            self._receive()
        return self._events.pop(0)

    def read(self) -> bytes:
        """Return the payload of the next frame, which is a whole binary message."""
        frame = self.read_frame()
        assert frame.opcode is Opcode.BINARY, frame
        assert frame.fin
        return bytes(frame.data)

    def read_end(self) -> int | None:
        """Read to the end; return the code of the close frame, if there was one."""
        while self.protocol.state is not State.CLOSED:
            try:
                self._receive()
            except (ConnectionError, EOFError):
                break
        closes = [event for event in self._events if event.opcode is Opcode.CLOSE]
        return int.from_bytes(bytes(closes[0].data[:2]), "big") if closes else None

    def _receive(self) -> None:
        data = self.socket.recv(1 << 16)
        if data:
            self.protocol.receive_data(data)
        else:
            self.protocol.receive_eof()
        if self.protocol.handshake_exc is not None:
            raise self.protocol.handshake_exc
        self._events += self.protocol.events_received()
        # Answers to pings and close frames are for the tests to send.
        if not data and not self._events:
            raise EOFError

    def _flush(self) -> None:
        for data in self.protocol.data_to_send():
            self.socket.sendall(data)


def read_to_end(raw: socket.socket, within_s: float = 10) -> bytes:
    """Read a plain socket until the other end closes it."""
    raw.settimeout(within_s)
    deadline, data = time.monotonic() + within_s, b""
    while time.monotonic() < deadline:
        try:
            piece = raw.recv(1 << 16)
        except ConnectionError:
            break
        if not piece:
            break
        data += piece
    return data

"""The WebSocket listener, with or without TLS.

Owns accepting and handshakes. An attacker can leave many handshakes unfinished, so at the limit a
new one cancels the oldest. After the handshake a plain socket goes to the socket server with a
WebSocket codec, and a TLS connection goes to the stream server.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import trio

from iggy_protocol import Transport, client_id
from iggy_ref_server.clients import ClientTable
from iggy_ref_server.config import SocketAddress, WebSocketListenerConfig
from iggy_ref_server.net.pipeline import RequestPipeline
from iggy_ref_server.net.socket_server import SocketLimits, SocketServer
from iggy_ref_server.net.stream_server import StreamServer
from iggy_ref_server.net.tcp import accept_next
from iggy_ref_server.net.websocket_codec import (
    HandshakeRefused,
    WebSocketCodec,
    WebSocketStream,
    accept_handshake,
    half_close_and_linger,
)
from iggy_ref_server.session import ClientSession

if TYPE_CHECKING:
    from iggy_protocol.websocket import FrameReader

__all__ = ["RawSocketStream", "WebSocketListener"]

LOGGER = logging.getLogger(__name__)


# A connected socket as a trio stream, with few calls between a reply and the kernel.
#
# ``trio.SocketStream`` calls ``recv`` before it waits, and passes several layers to send. For small
# requests one after the other that is a third of the server's time. TLS runs on this stream; a
# plain connection detaches its socket after the handshake.


RECEIVE_BYTES = 1 << 16


class RawSocketStream(trio.abc.HalfCloseableStream):
    """A non-blocking socket.

    Args:
        connected: the socket, which this object closes.
    """

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self._socket = connected

    def detach(self) -> socket.socket:
        """Return the socket; this object is closed afterwards."""
        return socket.socket(fileno=self._socket.detach())

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Wait for bytes; empty at the end of the input."""
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            try:
                return self._socket.recv(max_bytes or RECEIVE_BYTES)
            except BlockingIOError:
                continue
            except OSError as error:
                raise trio.BrokenResourceError(str(error)) from error

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send everything; waits only when the socket is full."""
        await trio.lowlevel.checkpoint_if_cancelled()
        view = memoryview(data)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._socket)
            except OSError as error:
                raise trio.BrokenResourceError(str(error)) from error

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until the socket takes more."""
        await trio.lowlevel.wait_writable(self._socket)

    async def send_eof(self) -> None:
        """Half-close the socket."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        """Close, and wake waiting tasks."""
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()
        await trio.lowlevel.checkpoint()


CONNECTION_ERRORS: Final = (
    trio.BrokenResourceError,
    trio.ClosedResourceError,
    ssl.SSLError,
    OSError,
)


@dataclass(slots=True, kw_only=True)
class WebSocketListener:
    """Accepts WebSocket connections of one shard.

    Attributes:
        config: the section ``[websocket]``.
        tls: the TLS context, or None for plain connections.
        socket_server: serves plain connections after their handshake.
        streams: serves TLS connections.
        limits: the limits of each plain connection.
        receive_bytes: how much to receive per call from a plain connection.
        nursery: runs handshakes and TLS connections, which outlive the accept loop.
        handshakes_max: the limit of unfinished handshakes.
        handshake_timeout_s: the timeout of a handshake.
        can_accept: returns whether the shard accepts another connection from an address.
        clients: limits clients without a login.
        on_connect: called with each new pipeline of a plain connection.
        on_disconnect: called with each session of a TLS connection that has ended.
    """

    config: WebSocketListenerConfig
    tls: ssl.SSLContext | None
    socket_server: SocketServer
    streams: StreamServer
    limits: SocketLimits
    receive_bytes: int
    nursery: trio.Nursery
    handshakes_max: int
    handshake_timeout_s: float
    can_accept: Callable[[str], bool]
    clients: ClientTable
    on_connect: Callable[[RequestPipeline], None]
    on_disconnect: Callable[[ClientSession], None]
    _handshakes: dict[trio.CancelScope, None] = field(default_factory=dict)

    async def serve(self, listener: trio.socket.SocketType) -> None:
        """Accept until cancelled."""
        while True:
            accepted, address = await accept_next(listener, "WebSocketListenerConfig")
            peer = str(SocketAddress(address[0], address[1]))
            if self.can_accept(peer):
                with contextlib.suppress(OSError):
                    _set_options(accepted, is_local=peer.startswith(("127.", "[::1]")))
                self.nursery.start_soon(self._serve_client, accepted, peer)
            else:
                accepted.close()

    async def _serve_client(self, accepted: trio.socket.SocketType, peer: str) -> None:
        """Serve one client; no error leaves this task."""
        family, kind = accepted.family, accepted.type
        plain = RawSocketStream(socket.socket(family, kind, fileno=accepted.detach()))
        try:
            await self._start_serving(plain, peer)
        except* CONNECTION_ERRORS as group:
            LOGGER.info("lost the connection of %s: %s", peer, group.exceptions[0])
        except* Exception:
            LOGGER.exception("the WebSocket connection of %s failed with an unexpected error", peer)
        finally:
            await trio.aclose_forcefully(plain)

    async def _start_serving(self, plain: RawSocketStream, peer: str) -> None:
        """Do the handshake, and pass the client to the server of its kind."""
        handshake = await self._handshake(plain, peer)
        if handshake is None or not self.clients.admit_unauthenticated(peer):
            return
        session = ClientSession(client_id(peer), peer, Transport.WEBSOCKET)
        transport, reader, rest = handshake
        if transport is plain:
            codec = WebSocketCodec(reader, self.limits, receive_bytes=self.receive_bytes)
            self.on_connect(self.socket_server.admit(plain.detach(), session, rest, codec))
            return
        try:
            await self.streams.serve(WebSocketStream(transport, reader, rest), session)
        finally:
            self.on_disconnect(session)

    async def _handshake(
        self, plain: RawSocketStream, peer: str
    ) -> tuple[trio.abc.Stream, FrameReader, bytes] | None:
        """Do the handshake within its timeout; None if it fails."""
        if len(self._handshakes) >= self.handshakes_max:
            next(iter(self._handshakes)).cancel()
        reason: object = "timed out, or cancelled for newer handshakes"
        with trio.move_on_after(self.handshake_timeout_s) as timeout:
            self._handshakes[timeout] = None
            try:
                transport = await self._start_tls(plain)
                return transport, *await accept_handshake(transport, self.config)
            except (HandshakeRefused, *CONNECTION_ERRORS) as error:
                reason = error
            finally:
                del self._handshakes[timeout]
        LOGGER.info("the WebSocket handshake with %s failed: %s", peer, reason)
        if isinstance(reason, HandshakeRefused):
            await half_close_and_linger(plain)
        return None

    async def _start_tls(self, plain: RawSocketStream) -> trio.abc.Stream:
        if self.tls is None:
            return plain
        stream = trio.SSLStream(plain, self.tls, server_side=True, https_compatible=True)
        await stream.do_handshake()
        return stream


def _set_options(accepted: trio.socket.SocketType, *, is_local: bool) -> None:
    # As for TCP: small replies must not wait for ACKs, and BBR paces even on loopback.
    accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if is_local and hasattr(socket, "TCP_CONGESTION"):
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")

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
from iggy_ref_server.clients import Clients
from iggy_ref_server.config import Address, WebSocket
from iggy_ref_server.data_plane.link import Link
from iggy_ref_server.data_plane.sockets import SocketLimits, SocketRoom
from iggy_ref_server.data_plane.streams import StreamRoom
from iggy_ref_server.listeners.accepting import accept_next
from iggy_ref_server.listeners.websocket_envelope import WebSocketEnvelope
from iggy_ref_server.listeners.websocket_socket import BareSocket
from iggy_ref_server.listeners.websocket_stream import (
    HandshakeRefused,
    WebSocketStream,
    say_nothing_more,
    shake_hands,
)
from iggy_ref_server.session import Session

if TYPE_CHECKING:
    from iggy_ref_server.listeners.websocket_frames import FrameReader

__all__ = ["WebSocketDoor"]

LOGGER = logging.getLogger(__name__)

LOST: Final = (trio.BrokenResourceError, trio.ClosedResourceError, ssl.SSLError, OSError)


@dataclass(slots=True, kw_only=True)
class WebSocketDoor:
    """Accepts WebSocket connections of one shard.

    Attributes:
        config: the section ``[websocket]``.
        tls: the TLS context, or None for plain connections.
        room: serves plain connections after their handshake.
        streams: serves TLS connections.
        limits: the limits of each plain connection.
        receive_bytes: how much to receive per call from a plain connection.
        nursery: runs handshakes and TLS connections, which outlive the accept loop.
        handshakes_max: the limit of unfinished handshakes.
        handshake_s: the timeout of a handshake.
        has_room: returns whether the shard accepts another connection from an address.
        clients: limits clients without a login.
        connected: called with each new pipeline of a plain connection.
        gone: called with each session of a TLS connection that has ended.
    """

    config: WebSocket
    tls: ssl.SSLContext | None
    room: SocketRoom
    streams: StreamRoom
    limits: SocketLimits
    receive_bytes: int
    nursery: trio.Nursery
    handshakes_max: int
    handshake_s: float
    has_room: Callable[[str], bool]
    clients: Clients
    connected: Callable[[Link], None]
    gone: Callable[[Session], None]
    _handshakes: dict[trio.CancelScope, None] = field(default_factory=dict)

    async def serve(self, listener: trio.socket.SocketType) -> None:
        """Accept until cancelled."""
        while True:
            accepted, address = await accept_next(listener, "WebSocket")
            peer = str(Address(address[0], address[1]))
            if self.has_room(peer):
                with contextlib.suppress(OSError):
                    _set_options(accepted, is_local=peer.startswith(("127.", "[::1]")))
                self.nursery.start_soon(self._attend, accepted, peer)
            else:
                accepted.close()

    async def _attend(self, accepted: trio.socket.SocketType, peer: str) -> None:
        """Serve one client; no error leaves this task."""
        family, kind = accepted.family, accepted.type
        plain = BareSocket(socket.socket(family, kind, fileno=accepted.detach()))
        try:
            await self._introduce(plain, peer)
        except* LOST as group:
            LOGGER.info("lost the connection of %s: %s", peer, group.exceptions[0])
        except* Exception:
            LOGGER.exception("the WebSocket connection of %s failed with an unexpected error", peer)
        finally:
            await trio.aclose_forcefully(plain)

    async def _introduce(self, plain: BareSocket, peer: str) -> None:
        """Do the handshake, and pass the client to the server of its kind."""
        opened = await self._open(plain, peer)
        if opened is None or not self.clients.make_room(peer):
            return
        session = Session(client_id(peer), peer, Transport.WEBSOCKET)
        transport, reader, rest = opened
        if transport is plain:
            envelope = WebSocketEnvelope(reader, self.limits, receive_bytes=self.receive_bytes)
            self.connected(self.room.admit(plain.detach(), session, rest, envelope))
            return
        try:
            await self.streams.serve(WebSocketStream(transport, reader, rest), session)
        finally:
            self.gone(session)

    async def _open(
        self, plain: BareSocket, peer: str
    ) -> tuple[trio.abc.Stream, FrameReader, bytes] | None:
        """Do the handshake within its timeout; None if it fails."""
        if len(self._handshakes) >= self.handshakes_max:
            next(iter(self._handshakes)).cancel()
        reason: object = "timed out, or cancelled for newer handshakes"
        with trio.move_on_after(self.handshake_s) as patience:
            self._handshakes[patience] = None
            try:
                transport = await self._encrypt(plain)
                return transport, *await shake_hands(transport, self.config)
            except (HandshakeRefused, *LOST) as error:
                reason = error
            finally:
                del self._handshakes[patience]
        LOGGER.info("the WebSocket handshake with %s failed: %s", peer, reason)
        if isinstance(reason, HandshakeRefused):
            await say_nothing_more(plain)
        return None

    async def _encrypt(self, plain: BareSocket) -> trio.abc.Stream:
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

"""The WebSocket door, with or without TLS.

Owns accepting and handshakes. A handshake takes a few packets, so many that stay unfinished are
somebody's who means harm: the oldest of them is given up for a newcomer. What a connection says
after its handshake is the data plane's affair, as at the TCP door: a plain socket goes to the
socket room in an envelope that knows frames, a TLS connection becomes a stream with tasks of its
own.
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
        tls: the certificate, or None for plain connections.
        room: serves plain connections behind their handshake.
        streams: serves TLS connections.
        limits: the bounds of each plain connection.
        receive_bytes: how much to receive at once from a plain connection.
        nursery: for connections, which outlive the accepting.
        handshakes_max: how many may be under way.
        handshake_s: how long one of them may take.
        has_room: whether the shard takes another connection from an address.
        clients: makes room for those who have not logged in.
        connected: told of each new link of a plain connection.
        gone: told of each session of a TLS connection that has ended.
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
        """Serve one client; whatever becomes of it stays here."""
        family, kind = accepted.family, accepted.type
        plain = BareSocket(socket.socket(family, kind, fileno=accepted.detach()))
        try:
            await self._introduce(plain, peer)
        except* LOST as group:
            LOGGER.info("lost %s: %s", peer, group.exceptions[0])
        except* Exception:
            LOGGER.exception("the connection of %s ended by an error", peer)
        finally:
            await trio.aclose_forcefully(plain)

    async def _introduce(self, plain: BareSocket, peer: str) -> None:
        """Lead a client to the room that serves it, once it speaks WebSocket."""
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
        """Shake hands in good time; None where that fails."""
        if len(self._handshakes) >= self.handshakes_max:
            next(iter(self._handshakes)).cancel()
        reason: object = "it took too long, or too many others came"
        with trio.move_on_after(self.handshake_s) as patience:
            self._handshakes[patience] = None
            try:
                transport = await self._encrypt(plain)
                return transport, *await shake_hands(transport, self.config)
            except (HandshakeRefused, *LOST) as error:
                reason = error
            finally:
                del self._handshakes[patience]
        LOGGER.info("no WebSocket with %s: %s", peer, reason)
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
    # As at the TCP door: small replies must not wait, and BBR paces where there is no network.
    accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if is_local and hasattr(socket, "TCP_CONGESTION"):
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")

"""The WebSocket listener, with or without TLS.

Owns accepting and the limits of connections. After the handshakes of TLS and of WebSocket the
socket server serves the client, with a WebSocket codec and with its TLS.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import trio

from iggy_protocol import Transport, client_id
from iggy_ref_server.clients import ClientTable
from iggy_ref_server.config.schema import WebSocketListenerConfig
from iggy_ref_server.config.syntax import SocketAddress
from iggy_ref_server.net.handshakes import HandshakeRefused, Handshakes, HandshakeSocket
from iggy_ref_server.net.pipeline import RequestPipeline
from iggy_ref_server.net.socket_connection import SocketLimits
from iggy_ref_server.net.socket_server import SocketServer
from iggy_ref_server.net.tcp import accept_next
from iggy_ref_server.net.websocket_codec import WebSocketCodec, accept_handshake
from iggy_ref_server.session import ClientSession

if TYPE_CHECKING:
    from iggy_protocol.websocket import FrameReader


LOGGER = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class WebSocketListener:
    """Accepts WebSocket connections of one shard.

    Attributes:
        config: the section ``[websocket]``.
        tls: the TLS context, or None for plain connections.
        socket_server: serves the clients after their handshake.
        limits: the limits of each connection.
        receive_bytes: how much to receive per call.
        nursery: runs handshakes, which outlive the accept loop.
        handshakes: the unfinished handshakes.
        can_accept: returns whether the shard accepts another connection from an address.
        clients: limits clients without a login.
        on_connect: called with each new pipeline.
    """

    config: WebSocketListenerConfig
    tls: ssl.SSLContext | None
    socket_server: SocketServer
    limits: SocketLimits
    receive_bytes: int
    nursery: trio.Nursery
    handshakes: Handshakes
    can_accept: Callable[[str], bool]
    clients: ClientTable
    on_connect: Callable[[RequestPipeline], None]

    async def serve(self, listener: trio.socket.SocketType) -> None:
        """Accept until cancelled."""
        while True:
            accepted, address = await accept_next(listener, "WebSocket")
            peer = str(SocketAddress(address[0], address[1]))
            if self.can_accept(peer):
                with contextlib.suppress(OSError):
                    _set_options(accepted, is_local=peer.startswith(("127.", "[::1]")))
                self.nursery.start_soon(self._admit_client, accepted, peer)
            else:
                accepted.close()

    async def _admit_client(self, accepted: trio.socket.SocketType, peer: str) -> None:
        """Do the handshakes, and pass the client to the socket server; no error leaves this."""
        family, kind = accepted.family, accepted.type
        plain = HandshakeSocket(socket.socket(family, kind, fileno=accepted.detach()))
        try:
            done = await self.handshakes.run(peer, partial(self._handshake, plain))
            if done is not None and self.clients.admit_unauthenticated(peer):
                session = ClientSession(client_id(peer), peer, Transport.WEBSOCKET)
                codec = WebSocketCodec(done[0], self.limits, receive_bytes=self.receive_bytes)
                self.on_connect(
                    self.socket_server.admit(plain.detach(), session, done[1], codec, plain.tls)
                )
        except Exception:
            LOGGER.exception("the WebSocket connection of %s failed with an unexpected error", peer)
        finally:
            plain.close()

    async def _handshake(self, plain: HandshakeSocket) -> tuple[FrameReader, bytes]:
        if self.tls is not None:
            await plain.start_tls(self.tls)
        try:
            return await accept_handshake(plain, self.config)
        except HandshakeRefused:
            await plain.linger()
            raise


def _set_options(accepted: trio.socket.SocketType, *, is_local: bool) -> None:
    # As for TCP: small replies must not wait for ACKs, and BBR paces even on loopback.
    accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if is_local and hasattr(socket, "TCP_CONGESTION"):
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")

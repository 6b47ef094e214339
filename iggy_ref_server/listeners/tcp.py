"""The TCP listener, with or without TLS.

Owns accepting, socket options and TLS handshakes. Plain sockets go to the socket server. TLS
connections go to the stream server.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from iggy_protocol import Transport, client_id
from iggy_ref_server.clients import Clients
from iggy_ref_server.config import Tcp
from iggy_ref_server.data_plane.link import Link
from iggy_ref_server.data_plane.sockets import SocketRoom
from iggy_ref_server.data_plane.streams import StreamRoom
from iggy_ref_server.listeners.accepting import accept_next
from iggy_ref_server.session import Session

__all__ = ["TcpDoor"]

LOGGER = logging.getLogger(__name__)

HANDSHAKE_S = 10.0
# Unfinished handshakes; at the limit a new one cancels the oldest.
HANDSHAKES_MAX = 64
LINGER = struct.Struct("ii")


@dataclass(slots=True, kw_only=True)
class TcpDoor:
    """Accepts TCP connections of one shard.

    Attributes:
        config: the section ``[tcp]``.
        tls: the TLS context, or None for plain TCP.
        room: serves plain sockets.
        streams: serves TLS connections.
        nursery: runs TLS connections, which outlive the accept loop.
        connections_max: the connection limit of this shard.
        clients: limits clients without a login.
        connected: called with each new pipeline of a plain socket.
        gone: called with each session that has ended.
    """

    config: Tcp
    tls: ssl.SSLContext | None
    room: SocketRoom
    streams: StreamRoom
    nursery: trio.Nursery
    connections_max: int
    clients: Clients
    connected: Callable[[Link], None]
    gone: Callable[[Session], None]
    _handshakes: dict[trio.CancelScope, None] = field(default_factory=dict)

    async def serve(self, listener: trio.socket.SocketType) -> None:
        """Accept until cancelled."""
        while True:
            self._admit(*await accept_next(listener, "TCP"))

    def _admit(self, accepted: trio.socket.SocketType, address: tuple[str, int]) -> None:
        peer = _write_address(address)
        is_plain = self.tls is None
        if not self._has_room(peer) or (is_plain and not self.clients.make_room(peer)):
            accepted.close()
            return
        session = Session(client_id(peer), peer, Transport.TCP)
        with contextlib.suppress(OSError):
            self._set_options(accepted, is_local=_is_local(address))
        if self.tls is None:
            family, kind = accepted.family, accepted.type
            plain = socket.socket(family, kind, fileno=accepted.detach())
            self.connected(self.room.admit(plain, session))
        else:
            self.nursery.start_soon(self._serve_tls, accepted, session)

    def _has_room(self, peer: str) -> bool:
        connections = self.room.plain_count + len(self.streams)
        return connections < self.connections_max or self.clients.make_room_at(
            Transport.TCP, peer, "limits.max_connections"
        )

    def _set_options(self, accepted: trio.socket.SocketType, *, is_local: bool) -> None:
        # Replies are small: with Nagle's algorithm a pipelining client waits 40 ms at a time.
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # BBR paces packets even on loopback, which halves the throughput of polls.
        control = self.config.congestion_control or ("cubic" if is_local else "")
        if control and hasattr(socket, "TCP_CONGESTION"):
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
        options = self.config.socket
        if not options.override_defaults:
            return
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.recv_buffer_size_bytes)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, options.send_buffer_size_bytes)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, int(options.keepalive))
        if options.linger_us:
            linger_s = -(-options.linger_us // 1_000_000)
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER.pack(1, linger_s))

    async def _serve_tls(self, accepted: trio.socket.SocketType, session: Session) -> None:
        assert self.tls is not None
        stream = trio.SSLStream(
            trio.SocketStream(accepted), self.tls, server_side=True, https_compatible=True
        )
        if not await self._shake_hands(stream, session.address):
            await trio.aclose_forcefully(stream)
            return
        try:
            await self.streams.serve(stream, session)
        except (trio.BrokenResourceError, ssl.SSLError, OSError) as error:
            LOGGER.info("lost the connection of %s: %s", session.address, error)
        finally:
            self.gone(session)

    async def _shake_hands(self, stream: trio.SSLStream[trio.SocketStream], address: str) -> bool:
        """Do the TLS handshake within its timeout; False if it fails or a limit is reached."""
        if len(self._handshakes) >= HANDSHAKES_MAX:
            next(iter(self._handshakes)).cancel()
        reason: object = "timed out, or cancelled for newer handshakes"
        with trio.move_on_after(HANDSHAKE_S) as patience:
            self._handshakes[patience] = None
            try:
                await stream.do_handshake()
                return self.clients.make_room(address)
            except (trio.BrokenResourceError, ssl.SSLError, OSError) as error:
                reason = error.__cause__ or error
            finally:
                del self._handshakes[patience]
        LOGGER.info("the TLS handshake with %s failed: %s", address, reason)
        return False


def _is_local(address: tuple[str, int]) -> bool:
    return address[0].startswith("127.") or address[0] == "::1"


def _write_address(address: tuple[str, int]) -> str:
    """Format an address as Apache Iggy does; the client id is a hash of this text."""
    host, port = address[0], address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

"""The TCP listener, with or without TLS.

Owns accepting, socket options and the limits of connections. The socket server serves the clients,
those with TLS after their handshake.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
import ssl
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import trio

from iggy_protocol import Transport, client_id
from iggy_ref_server.clients import ClientTable
from iggy_ref_server.config.schema import TcpListenerConfig
from iggy_ref_server.descriptor_limit import connections_end
from iggy_ref_server.net.handshakes import Handshakes, HandshakeSocket
from iggy_ref_server.net.pipeline import RequestPipeline
from iggy_ref_server.net.socket_server import SocketServer
from iggy_ref_server.session import ClientSession

LOGGER = logging.getLogger(__name__)


# Accepting the next connection of a listening socket, past errors of the one before.


ACCEPT_PAUSE_S: Final = 0.1
OUT_OF_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


async def accept_next(
    listener: trio.socket.SocketType, transport: str
) -> tuple[trio.socket.SocketType, Any]:
    """Wait for a connection, and return it with the address of its client.

    Args:
        listener: a listening socket.
        transport: the name of the transport in the log.
    """
    while True:
        try:
            accepted, address = await listener.accept()
            if accepted.fileno() < connections_end():
                return accepted, address
            # The last descriptors are a reserve, so that files can still be opened for connected
            # clients.
            accepted.close()
            LOGGER.error(
                "refused a %s connection from %s: the remaining file descriptors are reserved for "
                "files; raise the limit of open files (ulimit -n)",
                transport,
                address,
            )
            await trio.sleep(ACCEPT_PAUSE_S)
        except OSError as error:
            # Any other error is about a client that disconnected before it was accepted.
            if error.errno in OUT_OF_RESOURCES:
                # The client stays in the kernel's queue; retrying without a pause would spin.
                LOGGER.error("cannot accept %s connections: %s", transport, error.strerror)
                await trio.sleep(ACCEPT_PAUSE_S)


HANDSHAKE_S = 10.0
HANDSHAKES_MAX = 64
SO_LINGER_VALUE = struct.Struct("ii")


@dataclass(slots=True, kw_only=True)
class TcpListener:
    """Accepts TCP connections of one shard.

    Attributes:
        config: the section ``[tcp]``.
        tls: the TLS context, or None for plain TCP.
        socket_server: serves the clients.
        nursery: runs TLS handshakes, which outlive the accept loop.
        connections_max: the connection limit of this shard.
        clients: limits clients without a login.
        on_connect: called with each new pipeline.
    """

    config: TcpListenerConfig
    tls: ssl.SSLContext | None
    socket_server: SocketServer
    nursery: trio.Nursery
    connections_max: int
    clients: ClientTable
    on_connect: Callable[[RequestPipeline], None]
    _handshakes: Handshakes = field(
        default_factory=lambda: Handshakes(
            name="TLS", count_max=HANDSHAKES_MAX, timeout_s=HANDSHAKE_S
        )
    )

    async def serve(self, listener: trio.socket.SocketType) -> None:
        """Accept until cancelled."""
        while True:
            self._accept(*await accept_next(listener, "TCP"))

    def _accept(self, accepted: trio.socket.SocketType, address: tuple[str, int]) -> None:
        peer = _format_address(address)
        is_plain = self.tls is None
        if not self._can_accept(peer) or (
            is_plain and not self.clients.admit_unauthenticated(peer)
        ):
            accepted.close()
            return
        session = ClientSession(client_id(peer), peer, Transport.TCP)
        with contextlib.suppress(OSError):
            self._set_options(accepted, is_local=_is_local(address))
        family, kind = accepted.family, accepted.type
        plain = socket.socket(family, kind, fileno=accepted.detach())
        if self.tls is None:
            self.on_connect(self.socket_server.admit(plain, session))
        else:
            self.nursery.start_soon(self._admit_tls_client, plain, session, self.tls)

    def _can_accept(self, peer: str) -> bool:
        connections = self.socket_server.plain_count
        return connections < self.connections_max or self.clients.evict_unauthenticated_of(
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
            accepted.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, SO_LINGER_VALUE.pack(1, linger_s)
            )

    async def _admit_tls_client(
        self, plain: socket.socket, session: ClientSession, context: ssl.SSLContext
    ) -> None:
        """Do the TLS handshake, and pass the client to the socket server."""
        accepted, address = HandshakeSocket(plain), session.address
        try:
            tls = await self._handshakes.run(address, partial(accepted.start_tls, context))
            if tls is not None and self.clients.admit_unauthenticated(address):
                admitted = self.socket_server.admit(accepted.detach(), session, tls=tls)
                self.on_connect(admitted)
        finally:
            accepted.close()


def _is_local(address: tuple[str, int]) -> bool:
    return address[0].startswith("127.") or address[0] == "::1"


def _format_address(address: tuple[str, int]) -> str:
    """Format an address as Apache Iggy does; the client id is a hash of this text."""
    host, port = address[0], address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

"""The QUIC listener: one UDP socket, many connections.

Only shard 0 has the socket, as in Apache Iggy. The datagrams of a connection must reach the process
that has its keys, even after the client changes its address. The kernel distributes UDP by address,
so with several sockets shards would have to forward datagrams by connection id. Partitions of other
shards are reached through the shard channel, as from any other connection.

Owns the socket, the table from connection ids to connections, and admission. An attacker can leave
many handshakes unfinished. When half of the limit is in use, new clients must prove their address
(stateless retry); at the limit the oldest handshake is closed. Packets with an unknown connection
id, such as from before a crash, get a stateless reset. All other unknown datagrams are dropped. An
error of one connection ends only that connection, and no error here reaches the shard.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import trio
from aioquic._buffer import Buffer
from aioquic.quic.configuration import SMALLEST_MAX_DATAGRAM_SIZE, QuicConfiguration
from aioquic.quic.packet import (
    QuicErrorCode,
    QuicHeader,
    QuicPacketType,
    encode_quic_retry,
    encode_quic_version_negotiation,
    pull_quic_header,
)
from aioquic.quic.retry import QuicRetryTokenHandler

from iggy_protocol import Transport, client_id
from iggy_protocol.quic import LONG_HEADER, QuicServerCore
from iggy_ref_server.client_limits import BufferBudget
from iggy_ref_server.clients import ClientTable
from iggy_ref_server.config.syntax import SocketAddress
from iggy_ref_server.net.pipeline import DRAIN_TIMEOUT_S
from iggy_ref_server.net.quic.connection import QuicServerConnection
from iggy_ref_server.net.quic.limits import (
    QuicConnectionLimits,
    connection_limits,
    is_local,
    make_configuration,
)
from iggy_ref_server.net.quic.stateless import StatelessResets, build_refusal
from iggy_ref_server.net.quic.udp_socket import Datagram, DatagramSocket, UdpSocket
from iggy_ref_server.net.scheduler import RequestScheduler
from iggy_ref_server.session import ClientSession

if TYPE_CHECKING:
    import socket

    from iggy_ref_server.certificates import CertificateFiles
    from iggy_ref_server.config.schema import QuicListenerConfig, ServerConfig
    from iggy_ref_server.net.socket_connection import SocketLimits


LOGGER = logging.getLogger(__name__)


# The library logs every malformed packet of an unknown peer; this module logs what matters.
logging.getLogger("quic").setLevel(logging.CRITICAL)

CONNECTION_ID_BYTES: Final = 8
# How long clients have to acknowledge their last replies when the server stops. Then the server
# sends CONNECTION_CLOSE.
ACKNOWLEDGE_S: Final = 1.5


@dataclass(slots=True, kw_only=True)
class QuicListener:
    """Serves all QUIC connections of the server.

    Attributes:
        socket: sends and receives datagrams.
        local: the library's configuration for clients on this machine.
        remote: the configuration for all other clients.
        limits: the limits of each connection.
        scheduler: handles requests.
        connections_max: the limit of connections, handshakes included.
        handshakes_max: the limit of unfinished handshakes.
        on_connect: called with each new session and a function that closes its connection.
        on_disconnect: called with each session that has ended.
        budget: the memory budget of all connections.
        clients: the table of clients; limits those without a login.
        resets: makes stateless resets.
    """

    socket: DatagramSocket
    local: QuicConfiguration
    remote: QuicConfiguration
    limits: QuicConnectionLimits
    scheduler: RequestScheduler
    connections_max: int
    handshakes_max: int
    on_connect: Callable[[ClientSession, Callable[[], None]], None]
    on_disconnect: Callable[[ClientSession], None]
    clients: ClientTable
    resets: StatelessResets
    budget: BufferBudget
    _connections: dict[QuicServerConnection, None] = field(default_factory=dict)
    _handshakes: dict[QuicServerConnection, None] = field(default_factory=dict)
    _routes: dict[bytes, QuicServerConnection] = field(default_factory=dict)
    _tokens: QuicRetryTokenHandler = field(default_factory=QuicRetryTokenHandler)
    _nursery: trio.Nursery | None = None
    _is_closing: bool = False
    _closed: trio.Event = field(default_factory=trio.Event)

    # Start and stop

    async def serve(self) -> None:
        """Receive until cancelled; no error leaves this task."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                while True:
                    for conn in self._deliver(await self.socket.receive()):
                        conn.step_inline()
        except Exception:
            LOGGER.exception("the QUIC listener stopped with an unexpected error")
        finally:
            self.socket.close()

    async def drain(self) -> None:
        """Refuse new clients, send the pending replies, and close all connections."""
        self._is_closing = True
        with trio.CancelScope(shield=True), trio.move_on_after(DRAIN_TIMEOUT_S):
            for conn in list(self._connections):
                conn.close_gracefully()
            with trio.move_on_after(ACKNOWLEDGE_S):
                await self._wait_until_empty()
            for conn in list(self._connections):
                conn.close_now()
            await self._wait_until_empty()

    async def _wait_until_empty(self) -> None:
        while self._connections:
            await self._closed.wait()

    async def _run(self, conn: QuicServerConnection, connection_ids: tuple[bytes, ...]) -> None:
        """Serve one client; no error leaves this task."""
        try:
            await conn.run()
        except Exception:
            LOGGER.exception("the QUIC connection of %s failed with an unexpected error", conn.peer)
        finally:
            self._remove(conn, connection_ids)

    def _remove(self, conn: QuicServerConnection, connection_ids: tuple[bytes, ...]) -> None:
        self._connections.pop(conn, None)
        self._handshakes.pop(conn, None)
        for connection_id in (*connection_ids, *conn.connection_ids):
            self._routes.pop(connection_id, None)
        self._closed.set()
        self._closed = trio.Event()

    # What connections call

    def send(self, datagrams: list[Datagram]) -> None:
        """Send datagrams."""
        self.socket.send(datagrams)

    def route(self, connection_id: bytes, conn: QuicServerConnection | None) -> None:
        """Set the connection of a connection id, or remove the id."""
        if conn is None:
            self._routes.pop(connection_id, None)
        else:
            self._routes[connection_id] = conn

    def on_handshake(self, conn: QuicServerConnection) -> ClientSession | None:
        """Admit a client after its handshake; None if a limit is reached."""
        self._handshakes.pop(conn, None)
        host, port = conn.peer[:2]
        address = str(SocketAddress(host, port))
        if self._is_closing or not self.clients.admit_unauthenticated(address):
            return None
        session = ClientSession(self._choose_client_id(address), address, Transport.QUIC)
        self.on_connect(session, conn.close_gracefully)
        return session

    def _choose_client_id(self, address: str) -> int:
        """Choose the client id for an address.

        A client that reconnects from the same port replaces its old connection. A TCP connection
        with the same port keeps its id.
        """
        number = client_id(address)
        earlier = self.clients.get(number)
        if earlier is None:
            return number
        if earlier.session.transport is not Transport.QUIC:
            return client_id(f"{address}/udp")
        earlier.close()
        self.on_disconnect(earlier.session)
        return number

    def on_session_end(self, session: ClientSession) -> None:
        """Report a session that has ended."""
        self.on_disconnect(session)

    # Datagrams

    def _deliver(self, datagrams: list[Datagram]) -> Iterable[QuicServerConnection]:
        """Pass datagrams to their connections, and return these; an Initial may start a new one."""
        received: dict[QuicServerConnection, None] = {}
        for datagram in datagrams:
            conn = self._find_connection(datagram)
            if conn is not None:
                conn.receive(datagram)
                received[conn] = None
        return received

    def _find_connection(self, datagram: Datagram) -> QuicServerConnection | None:
        """Find the connection of a datagram, or reply to one of an unknown connection."""
        data, address = datagram
        if not data:
            return None
        if not data[0] & LONG_HEADER:
            connection_id = data[1 : 1 + CONNECTION_ID_BYTES]
            conn = self._routes.get(connection_id)
            if conn is None:
                reset = self.resets.build_reset(connection_id, len(data), trio.current_time())
                self.socket.send([(reset, address)] if reset else [])
            return conn
        try:
            header = pull_quic_header(Buffer(data=data), host_cid_length=CONNECTION_ID_BYTES)
        except ValueError:
            return None
        conn = self._routes.get(header.destination_cid)
        if conn is None and len(data) >= SMALLEST_MAX_DATAGRAM_SIZE:
            self._on_initial(header, datagram)
        return conn

    def _on_initial(self, header: QuicHeader, datagram: Datagram) -> None:
        """Handle a long-header packet of an unknown connection."""
        _, address = datagram
        version = header.version
        if version is None or header.packet_type == QuicPacketType.VERSION_NEGOTIATION:
            return
        if version not in self.remote.supported_versions:
            offer = encode_quic_version_negotiation(
                source_cid=header.destination_cid,
                destination_cid=header.source_cid,
                supported_versions=self.remote.supported_versions,
            )
            self.socket.send([(offer, address)])
        elif header.packet_type == QuicPacketType.INITIAL:
            if self._is_closing or len(self._connections) >= self.connections_max:
                refusal = build_refusal(header, QuicErrorCode.CONNECTION_REFUSED)
                self.socket.send([(refusal, address)])
            elif header.token or len(self._handshakes) * 2 >= self.handshakes_max:
                self._check_retry_token(header, datagram)
            else:
                self._start_connection(
                    header.destination_cid, None, header.destination_cid, datagram
                )

    def _check_retry_token(self, header: QuicHeader, datagram: Datagram) -> None:
        """Send a retry, or validate the token that the client has sent."""
        _, address = datagram
        if not header.token:
            self.socket.send([(self._build_retry(header, address), address)])
            return
        try:
            original_cid = self._tokens.validate_token(
                address=address,
                destination_cid=header.destination_cid,
                token=header.token,
                now=trio.current_time(),
            )
        except ValueError:
            refusal = build_refusal(header, QuicErrorCode.INVALID_TOKEN)
            self.socket.send([(refusal, address)])
            return
        self._start_connection(
            original_cid, header.destination_cid, header.destination_cid, datagram
        )

    def _build_retry(self, header: QuicHeader, address: object) -> bytes:
        assert header.version is not None
        own_cid = os.urandom(CONNECTION_ID_BYTES)
        return encode_quic_retry(
            version=header.version,
            source_cid=own_cid,
            destination_cid=header.source_cid,
            original_destination_cid=header.destination_cid,
            retry_token=self._tokens.create_token(
                address=address,
                original_destination_connection_id=header.destination_cid,
                retry_source_connection_id=own_cid,
                now=trio.current_time(),
            ),
        )

    def _start_connection(
        self, original_cid: bytes, retry_cid: bytes | None, first: bytes, datagram: Datagram
    ) -> None:
        """Start a connection; at the limit of handshakes the oldest is closed."""
        assert self._nursery is not None
        if len(self._handshakes) >= self.handshakes_max:
            oldest = next(iter(self._handshakes))
            del self._handshakes[oldest]
            oldest.abort("the limit of unfinished handshakes is reached")
        core = QuicServerCore(
            self.local if is_local(datagram[1]) else self.remote,
            streams_max=self.limits.unauthenticated_streams_max,
            original_cid=original_cid,
            retry_cid=retry_cid,
            reset_token=self.resets.token,
        )
        conn = QuicServerConnection(core, self, trio.current_time())
        self._connections[conn] = self._handshakes[conn] = None
        self._routes[first] = self._routes[core.host_cid] = conn
        conn.receive(datagram)
        self._nursery.start_soon(self._run, conn, (first, core.host_cid))


# Makes the QUIC listener from the configuration of the server.


UNBOUNDED_BYTES: Final = 1 << 63


def configure_udp_socket(bound: socket.socket, config: QuicListenerConfig) -> UdpSocket:
    """Wrap a bound UDP socket, with the buffer sizes of the configuration."""
    udp, chosen = UdpSocket(bound), config.socket
    if chosen.override_defaults:
        udp.set_options(
            receive_bytes=chosen.recv_buffer_size_bytes,
            send_bytes=chosen.send_buffer_size_bytes,
            keepalive=chosen.keepalive,
        )
    else:
        udp.set_options()
    return udp


def make_quic_listener(
    datagrams: DatagramSocket,
    certificate: CertificateFiles,
    *,
    config: ServerConfig,
    bounds: SocketLimits,
    scheduler: RequestScheduler,
    clients: ClientTable,
    on_connect: Callable[[ClientSession, Callable[[], None]], None],
    on_disconnect: Callable[[ClientSession], None],
    reset_key: bytes,
    budget: BufferBudget | None = None,
) -> QuicListener:
    """Make the listener; its ``serve`` runs it."""
    quic, limits = config.quic, config.limits
    return QuicListener(
        socket=datagrams,
        local=make_configuration(quic, certificate, is_local=True),
        remote=make_configuration(quic, certificate, is_local=False),
        limits=connection_limits(
            quic,
            request=bounds.connection,
            request_bytes_max=limits.quic.max_request_backlog_bytes,
            reply_bytes_max=bounds.output_bytes_max,
            handshake_timeout_s=limits.quic.handshake_timeout_us / 1e6,
            stall_timeout_s=bounds.stall_timeout_s,
            idle_timeout_s=bounds.idle_timeout_s,
        ),
        scheduler=scheduler,
        connections_max=limits.quic.max_connections,
        handshakes_max=limits.quic.max_handshakes,
        on_connect=on_connect,
        on_disconnect=on_disconnect,
        clients=clients,
        resets=StatelessResets(reset_key),
        budget=budget or BufferBudget(UNBOUNDED_BYTES),
    )

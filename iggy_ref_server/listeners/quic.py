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
from typing import Final

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
from iggy_ref_server.clients import Clients
from iggy_ref_server.config import Address
from iggy_ref_server.data_plane.budget import BufferBudget
from iggy_ref_server.data_plane.lingering import STOP_CLIENTS_S
from iggy_ref_server.data_plane.plane import DataPlane
from iggy_ref_server.listeners.quic_core import ServerCore
from iggy_ref_server.listeners.quic_line import Line
from iggy_ref_server.listeners.quic_refusal import refuse
from iggy_ref_server.listeners.quic_reset import StatelessResets
from iggy_ref_server.listeners.quic_settings import LineLimits, is_local
from iggy_ref_server.listeners.quic_socket import Datagram, DatagramSocket
from iggy_ref_server.session import Session

__all__ = ["QuicDoor"]

LOGGER = logging.getLogger(__name__)

# The library logs every malformed packet of an unknown peer; this module logs what matters.
logging.getLogger("quic").setLevel(logging.CRITICAL)

CONNECTION_ID_BYTES: Final = 8
LONG_HEADER: Final = 0x80
# How long clients have to acknowledge their last replies when the server stops. Then the server
# sends CONNECTION_CLOSE.
ACKNOWLEDGE_S: Final = 1.5


@dataclass(slots=True, kw_only=True)
class QuicDoor:
    """Serves all QUIC connections of the server.

    Attributes:
        socket: sends and receives datagrams.
        local: the library's configuration for clients on this machine.
        remote: the configuration for all other clients.
        limits: the limits of each connection.
        plane: handles requests.
        connections_max: the limit of connections, handshakes included.
        handshakes_max: the limit of unfinished handshakes.
        connected: called with each new session and a function that closes its connection.
        gone: called with each session that has ended.
        budget: the memory budget of all connections.
        clients: the table of clients; limits those without a login.
        resets: makes stateless resets.
    """

    socket: DatagramSocket
    local: QuicConfiguration
    remote: QuicConfiguration
    limits: LineLimits
    plane: DataPlane
    connections_max: int
    handshakes_max: int
    connected: Callable[[Session, Callable[[], None]], None]
    gone: Callable[[Session], None]
    clients: Clients
    resets: StatelessResets
    budget: BufferBudget
    _lines: dict[Line, None] = field(default_factory=dict)
    _handshakes: dict[Line, None] = field(default_factory=dict)
    _routes: dict[bytes, Line] = field(default_factory=dict)
    _tokens: QuicRetryTokenHandler = field(default_factory=QuicRetryTokenHandler)
    _nursery: trio.Nursery | None = None
    _is_closing: bool = False
    _change: trio.Event = field(default_factory=trio.Event)

    # Start and stop

    async def serve(self) -> None:
        """Receive until cancelled; no error leaves this task."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                while True:
                    for line in self._take_all(await self.socket.receive()):
                        line.attend()
        except Exception:
            LOGGER.exception("the QUIC listener stopped with an unexpected error")
        finally:
            self.socket.close()

    async def drain(self) -> None:
        """Refuse new clients, send the pending replies, and close all connections."""
        self._is_closing = True
        with trio.CancelScope(shield=True), trio.move_on_after(STOP_CLIENTS_S):
            for line in list(self._lines):
                line.leave()
            with trio.move_on_after(ACKNOWLEDGE_S):
                await self._until_empty()
            for line in list(self._lines):
                line.close_now()
            await self._until_empty()

    async def _until_empty(self) -> None:
        while self._lines:
            await self._change.wait()

    async def _run(self, line: Line, connection_ids: tuple[bytes, ...]) -> None:
        """Serve one client; no error leaves this task."""
        try:
            await line.run()
        except Exception:
            LOGGER.exception("the QUIC connection of %s failed with an unexpected error", line.peer)
        finally:
            self._forget(line, connection_ids)

    def _forget(self, line: Line, connection_ids: tuple[bytes, ...]) -> None:
        self._lines.pop(line, None)
        self._handshakes.pop(line, None)
        for connection_id in (*connection_ids, *line.connection_ids):
            self._routes.pop(connection_id, None)
        self._change.set()
        self._change = trio.Event()

    # What connections call

    def send(self, datagrams: list[Datagram]) -> None:
        """Send datagrams."""
        self.socket.send(datagrams)

    def route(self, connection_id: bytes, line: Line | None) -> None:
        """Set the connection of a connection id, or remove the id."""
        if line is None:
            self._routes.pop(connection_id, None)
        else:
            self._routes[connection_id] = line

    def greet(self, line: Line) -> Session | None:
        """Admit a client after its handshake; None if a limit is reached."""
        self._handshakes.pop(line, None)
        host, port = line.peer[:2]
        address = str(Address(host, port))
        if self._is_closing or not self.clients.make_room(address):
            return None
        session = Session(self._number(address), address, Transport.QUIC)
        self.connected(session, line.leave)
        return session

    def _number(self, address: str) -> int:
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
        self.gone(earlier.session)
        return number

    def part(self, session: Session) -> None:
        """Report a session that has ended."""
        self.gone(session)

    # Datagrams

    def _take_all(self, datagrams: list[Datagram]) -> Iterable[Line]:
        """Pass datagrams to their connections, and return these; an Initial may start a new one."""
        heard: dict[Line, None] = {}
        for datagram in datagrams:
            line = self._take(datagram)
            if line is not None:
                line.hear(datagram)
                heard[line] = None
        return heard

    def _take(self, datagram: Datagram) -> Line | None:
        """Find the connection of a datagram, or reply to one of an unknown connection."""
        data, address = datagram
        if not data:
            return None
        if not data[0] & LONG_HEADER:
            connection_id = data[1 : 1 + CONNECTION_ID_BYTES]
            line = self._routes.get(connection_id)
            if line is None:
                reset = self.resets.answer(connection_id, len(data), trio.current_time())
                self.socket.send([(reset, address)] if reset else [])
            return line
        try:
            header = pull_quic_header(Buffer(data=data), host_cid_length=CONNECTION_ID_BYTES)
        except ValueError:
            return None
        line = self._routes.get(header.destination_cid)
        if line is None and len(data) >= SMALLEST_MAX_DATAGRAM_SIZE:
            self._meet(header, datagram)
        return line

    def _meet(self, header: QuicHeader, datagram: Datagram) -> None:
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
            if self._is_closing or len(self._lines) >= self.connections_max:
                refusal = refuse(header, QuicErrorCode.CONNECTION_REFUSED)
                self.socket.send([(refusal, address)])
            elif header.token or len(self._handshakes) * 2 >= self.handshakes_max:
                self._examine(header, datagram)
            else:
                self._begin(header.destination_cid, None, header.destination_cid, datagram)

    def _examine(self, header: QuicHeader, datagram: Datagram) -> None:
        """Send a retry, or validate the token that the client has sent."""
        _, address = datagram
        if not header.token:
            self.socket.send([(self._invite_back(header, address), address)])
            return
        try:
            original = self._tokens.validate_token(
                address=address,
                destination_cid=header.destination_cid,
                token=header.token,
                now=trio.current_time(),
            )
        except ValueError:
            refusal = refuse(header, QuicErrorCode.INVALID_TOKEN)
            self.socket.send([(refusal, address)])
            return
        self._begin(original, header.destination_cid, header.destination_cid, datagram)

    def _invite_back(self, header: QuicHeader, address: object) -> bytes:
        assert header.version is not None
        own_number = os.urandom(CONNECTION_ID_BYTES)
        return encode_quic_retry(
            version=header.version,
            source_cid=own_number,
            destination_cid=header.source_cid,
            original_destination_cid=header.destination_cid,
            retry_token=self._tokens.create_token(
                address=address,
                original_destination_connection_id=header.destination_cid,
                retry_source_connection_id=own_number,
                now=trio.current_time(),
            ),
        )

    def _begin(
        self, original: bytes, retried: bytes | None, first: bytes, datagram: Datagram
    ) -> None:
        """Start a connection; at the limit of handshakes the oldest is closed."""
        assert self._nursery is not None
        if len(self._handshakes) >= self.handshakes_max:
            oldest = next(iter(self._handshakes))
            del self._handshakes[oldest]
            oldest.give_up("the limit of unfinished handshakes is reached")
        core = ServerCore(
            self.local if is_local(datagram[1]) else self.remote,
            streams_max=self.limits.stranger_streams_max,
            original_cid=original,
            retry_cid=retried,
            reset_token=self.resets.token,
        )
        line = Line(core, self, trio.current_time())
        self._lines[line] = self._handshakes[line] = None
        self._routes[first] = self._routes[core.host_cid] = line
        line.hear(datagram)
        self._nursery.start_soon(self._run, line, (first, core.host_cid))

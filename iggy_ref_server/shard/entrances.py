"""The table of listeners: name, shards, socket kind and start function of each.

    tcp         every shard accepts
    http        shard 0
    quic        shard 0
    websocket   every shard accepts

The supervisor binds the sockets of all enabled rows. Each shard starts its listeners. To add a
listener, add a row with its start function.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import trio

from iggy_protocol import Transport, record
from iggy_ref_server.certificates import CERTIFICATES, CertificateFiles
from iggy_ref_server.clients import Client, Clients
from iggy_ref_server.config import ServerConfig
from iggy_ref_server.data_plane.budget import BufferBudget
from iggy_ref_server.data_plane.link import Link
from iggy_ref_server.data_plane.plane import Appends, DataPlane
from iggy_ref_server.data_plane.sockets import SocketRoom
from iggy_ref_server.data_plane.streams import StreamRoom
from iggy_ref_server.handlers.office import Office
from iggy_ref_server.listeners.tcp import TcpDoor
from iggy_ref_server.session import Session
from iggy_ref_server.shard.settings import (
    quic_limits,
    websocket_limits,
    websocket_receive_bytes,
)
from iggy_ref_server.storage.interface import Storage

__all__ = ["DOORS", "DoorKind", "Entrance", "Rooms", "open_entrances"]


@record(kw_only=True)
class Entrance:
    """The sockets of one listener on one shard.

    Attributes:
        sockets: bound; TCP sockets listen already.
        tls: the TLS context, or None.
        certificate: the certificate files, for QUIC, which does not use the context.
    """

    sockets: tuple[socket.socket, ...]
    tls: ssl.SSLContext | None = None
    certificate: CertificateFiles | None = None


@record(kw_only=True)
class Rooms:
    """The parts of a shard that listeners use.

    Attributes:
        config: the configuration of the server.
        storage: the data directory.
        plane: handles requests.
        room: serves TCP and WebSocket connections without TLS.
        streams: serves TCP connections with TLS.
        websockets: serves WebSocket connections with TLS.
        office: what handlers work with.
        appends: takes batches.
        clients: the table of clients of this shard.
        budget: the memory budget of all connections.
        nursery: runs connections, which outlive the accept loops.
        connected: called with each new pipeline of a socket without TLS.
        gone: called with each session that has ended.
    """

    config: ServerConfig
    storage: Storage
    plane: DataPlane
    room: SocketRoom
    streams: StreamRoom
    websockets: StreamRoom
    office: Office
    appends: Appends
    clients: Clients
    budget: BufferBudget
    nursery: trio.Nursery
    connected: Callable[[Link], None]
    gone: Callable[[Session], None]

    def has_room_for_websocket(self, address: str) -> bool:
        """Return whether another WebSocket connection may be accepted."""
        connections = self.room.enveloped_count + len(self.websockets)
        return (
            connections < self.config.limits.websocket.max_connections
            or self.clients.make_room_at(
                Transport.WEBSOCKET, address, "limits.websocket.max_connections"
            )
        )


Open: TypeAlias = Callable[[Rooms, Entrance, trio.Nursery], Awaitable[None]]


class DoorKind(NamedTuple):
    """A row of the table.

    Attributes:
        name: the name of its configuration section.
        open: starts to serve in a nursery, and returns when it serves.
        is_everywhere: whether every shard accepts, or only shard 0.
        kind: the kind of its sockets.
    """

    name: str
    open: Open | None
    is_everywhere: bool = False
    kind: socket.SocketKind = socket.SOCK_STREAM


async def open_entrances(
    entrances: Mapping[str, Entrance], rooms: Rooms, nursery: trio.Nursery
) -> None:
    """Start all listeners of a shard.

    Args:
        entrances: the sockets of this shard by listener name.
        rooms: the parts of the shard that listeners use.
        nursery: runs the accept loops; cancel it to stop accepting.
    """
    for door in DOORS:
        if door.open is not None and door.name in entrances:
            await door.open(rooms, entrances[door.name], nursery)


async def _open_tcp(rooms: Rooms, entrance: Entrance, nursery: trio.Nursery) -> None:
    door = TcpDoor(
        config=rooms.config.tcp,
        tls=entrance.tls,
        room=rooms.room,
        streams=rooms.streams,
        nursery=rooms.nursery,
        connections_max=rooms.config.limits.max_connections,
        clients=rooms.clients,
        connected=rooms.connected,
        gone=rooms.gone,
    )
    for listener in entrance.sockets:
        nursery.start_soon(door.serve, trio.socket.from_stdlib_socket(listener))


async def _open_http(rooms: Rooms, entrance: Entrance, nursery: trio.Nursery) -> None:
    # A key that is not a plain secret may be unusable. Load it now, so that the server does not
    # start with it.
    if rooms.config.http.jwt.algorithm.startswith("HS"):
        nursery.start_soon(_serve_http_when_called, rooms, entrance)
    else:
        await nursery.start(_serve_http, rooms, entrance)


async def _first_call(entrance: Entrance) -> None:
    """Wait for the first client of a listener whose libraries are loaded on demand.

    Those of HTTP and QUIC take longer to load than all the rest of the server, those of WebSocket
    a tenth of it, and many servers never need them. The sockets are bound, so whoever comes first
    waits there, and nobody else.
    """

    async def wait_at(bound: socket.socket, scope: trio.CancelScope) -> None:
        await trio.lowlevel.wait_readable(bound)
        scope.cancel()

    async with trio.open_nursery() as nursery:
        for bound in entrance.sockets:
            nursery.start_soon(wait_at, bound, nursery.cancel_scope)


async def _serve_http_when_called(rooms: Rooms, entrance: Entrance) -> None:
    await _first_call(entrance)
    await _serve_http(rooms, entrance)


async def _serve_http(
    rooms: Rooms,
    entrance: Entrance,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    await trio.to_thread.run_sync(import_module, "iggy_ref_server.listeners.http")
    from iggy_ref_server.listeners.http import HttpDoor, serve_http

    door = HttpDoor(
        config=rooms.config.http,
        limits=rooms.config.limits,
        office=rooms.office,
        appends=rooms.appends,
        storage=rooms.storage,
        tls=entrance.tls,
        budget=rooms.budget,
    )
    listeners = [trio.socket.from_stdlib_socket(listener) for listener in entrance.sockets]
    await serve_http(door, listeners, task_status=task_status)


async def _open_quic(rooms: Rooms, entrance: Entrance, nursery: trio.Nursery) -> None:
    nursery.start_soon(_serve_quic, rooms, entrance)


async def _serve_quic(rooms: Rooms, entrance: Entrance) -> None:
    """Serve QUIC until cancelled, then drain its connections."""
    await _first_call(entrance)
    await trio.to_thread.run_sync(import_module, "iggy_ref_server.listeners.quic")
    from iggy_ref_server.listeners.quic_opening import open_quic_door, use_socket
    from iggy_ref_server.listeners.quic_reset import load_reset_key

    assert entrance.certificate is not None, "QUIC is always encrypted"
    (bound,) = entrance.sockets
    directory = Path(rooms.config.system.path) / CERTIFICATES
    reset_key = await trio.to_thread.run_sync(load_reset_key, directory)

    def connected(session: Session, close: Callable[[], None]) -> None:
        rooms.clients.add(Client(session, close, rooms.office.clock.now_us()))

    door = open_quic_door(
        use_socket(bound, rooms.config.quic),
        entrance.certificate,
        config=rooms.config,
        bounds=quic_limits(rooms.config, rooms.budget.limit_bytes),
        plane=rooms.plane,
        clients=rooms.clients,
        connected=connected,
        gone=rooms.gone,
        reset_key=reset_key,
        budget=rooms.budget,
    )
    rooms.nursery.start_soon(door.serve)
    try:
        await trio.sleep_forever()
    finally:
        await door.drain()


async def _open_websocket(rooms: Rooms, entrance: Entrance, nursery: trio.Nursery) -> None:
    nursery.start_soon(_serve_websocket, rooms, entrance)


async def _serve_websocket(rooms: Rooms, entrance: Entrance) -> None:
    await _first_call(entrance)
    await trio.to_thread.run_sync(import_module, "iggy_ref_server.listeners.websocket")
    from iggy_ref_server.listeners.websocket import WebSocketDoor

    limits = rooms.config.limits.websocket
    door = WebSocketDoor(
        config=rooms.config.websocket,
        tls=entrance.tls,
        room=rooms.room,
        streams=rooms.websockets,
        limits=websocket_limits(rooms.config, rooms.budget.limit_bytes),
        receive_bytes=websocket_receive_bytes(rooms.config),
        nursery=rooms.nursery,
        handshakes_max=limits.max_handshakes,
        handshake_s=limits.handshake_timeout_us / 1e6,
        has_room=rooms.has_room_for_websocket,
        clients=rooms.clients,
        connected=rooms.connected,
        gone=rooms.gone,
    )
    async with trio.open_nursery() as nursery:
        for listener in entrance.sockets:
            nursery.start_soon(door.serve, trio.socket.from_stdlib_socket(listener))


DOORS: Final = (
    DoorKind("tcp", _open_tcp, is_everywhere=True),
    DoorKind("http", _open_http),
    DoorKind("quic", _open_quic, kind=socket.SOCK_DGRAM),
    DoorKind("websocket", _open_websocket, is_everywhere=True),
)

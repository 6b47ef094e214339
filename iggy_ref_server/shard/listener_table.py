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
from iggy_ref_server.certificates import CERTIFICATES_DIRECTORY, CertificateFiles
from iggy_ref_server.client_limits import BufferBudget
from iggy_ref_server.clients import ClientEntry, ClientTable
from iggy_ref_server.config.schema import ServerConfig
from iggy_ref_server.dispatch.context import HandlerContext
from iggy_ref_server.net.handshakes import Handshakes
from iggy_ref_server.net.pipeline import RequestPipeline
from iggy_ref_server.net.scheduler import RequestScheduler
from iggy_ref_server.net.socket_server import SocketServer
from iggy_ref_server.net.tcp import TcpListener
from iggy_ref_server.session import ClientSession
from iggy_ref_server.shard.settings import (
    quic_limits,
    websocket_limits,
    websocket_receive_bytes,
)
from iggy_ref_server.storage.interface import Storage


@record(kw_only=True)
class BoundSockets:
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
class ListenerContext:
    """The parts of a shard that listeners use.

    Attributes:
        config: the configuration of the server.
        storage: the data directory.
        scheduler: handles requests.
        socket_server: serves TCP and WebSocket connections.
        handler_context: what handlers work with.
        clients: the table of clients of this shard.
        budget: the memory budget of all connections.
        nursery: runs connections, which outlive the accept loops.
        on_connect: called with each new pipeline of a socket.
        on_disconnect: called with each session that has ended.
    """

    config: ServerConfig
    storage: Storage
    scheduler: RequestScheduler
    socket_server: SocketServer
    handler_context: HandlerContext
    clients: ClientTable
    budget: BufferBudget
    nursery: trio.Nursery
    on_connect: Callable[[RequestPipeline], None]
    on_disconnect: Callable[[ClientSession], None]

    def can_accept_websocket(self, address: str) -> bool:
        """Return whether another WebSocket connection may be accepted."""
        return (
            self.socket_server.codec_count < self.config.limits.websocket.max_connections
            or self.clients.evict_unauthenticated_of(
                Transport.WEBSOCKET, address, "limits.websocket.max_connections"
            )
        )


StartListener: TypeAlias = Callable[[ListenerContext, BoundSockets, trio.Nursery], Awaitable[None]]


class ListenerKind(NamedTuple):
    """A row of the table.

    Attributes:
        name: the name of its configuration section.
        start: starts to serve in a nursery, and returns when it serves.
        is_on_every_shard: whether every shard accepts, or only shard 0.
        kind: the kind of its sockets.
    """

    name: str
    start: StartListener
    is_on_every_shard: bool = False
    kind: socket.SocketKind = socket.SOCK_STREAM


async def start_listeners(
    bound_by_listener: Mapping[str, BoundSockets], context: ListenerContext, nursery: trio.Nursery
) -> None:
    """Start all listeners of a shard.

    Args:
        bound_by_listener: the sockets of this shard by listener name.
        context: the parts of the shard that listeners use.
        nursery: runs the accept loops; cancel it to stop accepting.
    """
    for transport in LISTENERS:
        if transport.name in bound_by_listener:
            await transport.start(context, bound_by_listener[transport.name], nursery)


async def _start_tcp(
    context: ListenerContext, bound_sockets: BoundSockets, nursery: trio.Nursery
) -> None:
    transport = TcpListener(
        config=context.config.tcp,
        tls=bound_sockets.tls,
        socket_server=context.socket_server,
        nursery=context.nursery,
        connections_max=context.config.limits.max_connections,
        clients=context.clients,
        on_connect=context.on_connect,
    )
    for listener in bound_sockets.sockets:
        nursery.start_soon(transport.serve, trio.socket.from_stdlib_socket(listener))


async def _start_http(
    context: ListenerContext, bound_sockets: BoundSockets, nursery: trio.Nursery
) -> None:
    # A key that is not a plain secret may be unusable. Load it now, so that the server does not
    # start with it.
    if context.config.http.jwt.algorithm.startswith("HS"):
        nursery.start_soon(_serve_http_on_demand, context, bound_sockets)
    else:
        await nursery.start(_serve_http, context, bound_sockets)


async def _wait_for_first_client(bound_sockets: BoundSockets) -> None:
    """Wait for the first client of a listener whose libraries are loaded on demand.

    Those of HTTP and QUIC take longer to load than all the rest of the server, those of WebSocket
    a tenth of it, and many servers never need them. The sockets are bound, so only the first
    client of such a listener waits.
    """

    async def wait_at(bound: socket.socket, scope: trio.CancelScope) -> None:
        await trio.lowlevel.wait_readable(bound)
        scope.cancel()

    async with trio.open_nursery() as nursery:
        for bound in bound_sockets.sockets:
            nursery.start_soon(wait_at, bound, nursery.cancel_scope)


async def _serve_http_on_demand(context: ListenerContext, bound_sockets: BoundSockets) -> None:
    await _wait_for_first_client(bound_sockets)
    await _serve_http(context, bound_sockets)


async def _serve_http(
    context: ListenerContext,
    bound_sockets: BoundSockets,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    await trio.to_thread.run_sync(import_module, "iggy_ref_server.web.http_listener")
    from iggy_ref_server.web.http_listener import HttpListenerSpec, serve_http

    transport = HttpListenerSpec(
        config=context.config.http,
        limits=context.config.limits,
        handler_context=context.handler_context,
        storage=context.storage,
        tls=bound_sockets.tls,
        budget=context.budget,
    )
    listeners = [trio.socket.from_stdlib_socket(listener) for listener in bound_sockets.sockets]
    await serve_http(transport, listeners, task_status=task_status)


async def _start_quic(
    context: ListenerContext, bound_sockets: BoundSockets, nursery: trio.Nursery
) -> None:
    nursery.start_soon(_serve_quic, context, bound_sockets)


async def _serve_quic(context: ListenerContext, bound_sockets: BoundSockets) -> None:
    """Serve QUIC until cancelled, then drain its connections."""
    await _wait_for_first_client(bound_sockets)
    await trio.to_thread.run_sync(import_module, "iggy_ref_server.net.quic.listener")
    from iggy_ref_server.net.quic.listener import configure_udp_socket, make_quic_listener
    from iggy_ref_server.net.quic.stateless import load_reset_key

    assert bound_sockets.certificate is not None, "QUIC is always encrypted"
    (bound,) = bound_sockets.sockets
    directory = Path(context.config.system.path) / CERTIFICATES_DIRECTORY
    reset_key = await trio.to_thread.run_sync(load_reset_key, directory)

    def on_connect(session: ClientSession, close: Callable[[], None]) -> None:
        context.clients.add(ClientEntry(session, close, context.handler_context.clock.now_us()))

    transport = make_quic_listener(
        configure_udp_socket(bound, context.config.quic),
        bound_sockets.certificate,
        config=context.config,
        bounds=quic_limits(context.config, context.budget.limit_bytes),
        scheduler=context.scheduler,
        clients=context.clients,
        on_connect=on_connect,
        on_disconnect=context.on_disconnect,
        reset_key=reset_key,
        budget=context.budget,
    )
    context.nursery.start_soon(transport.serve)
    try:
        await trio.sleep_forever()
    finally:
        await transport.drain()


async def _start_websocket(
    context: ListenerContext, bound_sockets: BoundSockets, nursery: trio.Nursery
) -> None:
    nursery.start_soon(_serve_websocket, context, bound_sockets)


async def _serve_websocket(context: ListenerContext, bound_sockets: BoundSockets) -> None:
    await _wait_for_first_client(bound_sockets)
    await trio.to_thread.run_sync(import_module, "iggy_ref_server.net.websocket")
    from iggy_ref_server.net.websocket import WebSocketListener

    limits = context.config.limits.websocket
    transport = WebSocketListener(
        config=context.config.websocket,
        tls=bound_sockets.tls,
        socket_server=context.socket_server,
        limits=websocket_limits(context.config, context.budget.limit_bytes),
        receive_bytes=websocket_receive_bytes(context.config),
        nursery=context.nursery,
        handshakes=Handshakes(
            name="WebSocket",
            count_max=limits.max_handshakes,
            timeout_s=limits.handshake_timeout_us / 1e6,
        ),
        can_accept=context.can_accept_websocket,
        clients=context.clients,
        on_connect=context.on_connect,
    )
    async with trio.open_nursery() as nursery:
        for listener in bound_sockets.sockets:
            nursery.start_soon(transport.serve, trio.socket.from_stdlib_socket(listener))


LISTENERS: Final = (
    ListenerKind("tcp", _start_tcp, is_on_every_shard=True),
    ListenerKind("http", _start_http),
    ListenerKind("quic", _start_quic, kind=socket.SOCK_DGRAM),
    ListenerKind("websocket", _start_websocket, is_on_every_shard=True),
)

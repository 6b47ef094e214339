"""The HTTP listener, with or without TLS, in front of the REST API.

hypercorn implements HTTP on each connection. This module does accepting, limits and handshakes,
so that no HTTP client can harm the shard: each connection has its own nursery, and an error that
escapes from it, or from the accept loop, is logged and goes no further.

When the server stops, requests in progress are finished first, within a timeout.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import socket
import ssl
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.worker_context import WorkerContext

from iggy_protocol import record
from iggy_ref_server.client_limits import BufferBudget
from iggy_ref_server.clients import network_of
from iggy_ref_server.config.schema import HttpListenerConfig, LimitsConfig
from iggy_ref_server.dispatch.context import HandlerContext
from iggy_ref_server.net.pipeline import DRAIN_TIMEOUT_S
from iggy_ref_server.net.tcp import ACCEPT_PAUSE_S, accept_next
from iggy_ref_server.storage.interface import Storage, StorageError
from iggy_ref_server.web.app import make_app
from iggy_ref_server.web.context import WebContext, open_context
from iggy_ref_server.web.http_connection import HttpServerConnection, TimeoutStream

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from iggy_ref_server.identity.jwt import AccessTokens


LOGGER = logging.getLogger(__name__)

# mallopt: how much free memory the C library keeps, and from which size on it uses mmap.
M_TRIM_THRESHOLD, KEPT_FREE_BYTES = -1, 32 << 20
M_MMAP_THRESHOLD, MMAP_BYTES_MIN = -3, 4 << 20

MICROSECONDS: Final = 1_000_000
# Chunks of a body, up to 64 KiB each, that wait for the application.
PIECES_MAX: Final = 4
HTTP2_STREAMS_MAX: Final = 32
REVOCATION_SWEEP_S: Final = 300.0
# One log line per interval for connections that are closed or refused at the limit.
LOG_INTERVAL_S: Final = 10.0


@record(kw_only=True)
class HttpListenerSpec:
    """The parts of the HTTP listener.

    Attributes:
        config: the section ``[http]``.
        limits: the section ``[limits]``.
        handler_context: what handlers work with, on shard 0.
        storage: the data directory.
        tls: the TLS context, or None for plain HTTP.
        budget: the memory budget of the shard; None is no limit.
    """

    config: HttpListenerConfig
    limits: LimitsConfig
    handler_context: HandlerContext
    storage: Storage
    tls: ssl.SSLContext | None = None
    budget: BufferBudget | None = None


async def serve_http(
    spec: HttpListenerSpec,
    sockets: Sequence[trio.socket.SocketType],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve HTTP until cancelled.

    Args:
        spec: the parts of the listener.
        sockets: listening sockets.
        task_status: started when requests are served.

    Raises:
        ConfigError: the JWT configuration is unusable.
        StorageError: the list of revoked tokens cannot be read.
    """
    _keep_freed_memory()
    web_context = await open_context(
        spec.config,
        handler_context=spec.handler_context,
        storage=spec.storage,
        budget=spec.budget,
    )
    server = _HttpServer(spec, web_context)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.close_when_cancelled)
        nursery.start_soon(_restart_on_error, lambda: _sweep_revocations(web_context.tokens))
        for listener in sockets:
            nursery.start_soon(
                _restart_on_error, lambda listener=listener: server.accept(listener, nursery)
            )
        task_status.started()


def _keep_freed_memory() -> None:
    """Make the C library keep the memory of a large request or reply for the next one.

    By default it returns such memory to the kernel each time. The kernel then clears new pages,
    which takes longer than filling them with JSON. It is set only when HTTP is used: the buffers of
    the other transports are reused anyway and stay in the processor's cache.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(M_MMAP_THRESHOLD, MMAP_BYTES_MIN)
        library.mallopt(M_TRIM_THRESHOLD, KEPT_FREE_BYTES)


async def _restart_on_error(work: Callable[[], Awaitable[None]]) -> None:
    """Restart ``work`` whenever it fails."""
    while True:
        try:
            await work()
        except* Exception as group:
            LOGGER.error("a task of the HTTP listener failed and was restarted", exc_info=group)
        await trio.sleep(ACCEPT_PAUSE_S)


async def _sweep_revocations(tokens: AccessTokens) -> None:
    """Remove expired tokens from the revocation list periodically."""
    while True:
        await trio.sleep(REVOCATION_SWEEP_S)
        try:
            await tokens.sweep()
        except StorageError as error:
            LOGGER.error("cannot remove expired tokens from the revocation list: %s", error)


class _HttpServer:
    """All connections of the HTTP listener.

    Args:
        spec: the parts of the listener.
        web_context: what operations of the REST API work with.
    """

    def __init__(self, spec: HttpListenerSpec, web_context: WebContext) -> None:
        self._web_context = web_context
        app: Any = make_app(web_context)
        self._app = ASGIWrapper(app)
        self._tls = spec.tls
        if self._tls is not None:
            self._tls.set_alpn_protocols(["h2", "http/1.1"])
        self._limits = spec.limits.http
        self._per_address_max = spec.limits.max_unauthenticated_connections_per_address
        self._config = _hypercorn_config(spec.limits)
        self._stall_timeout_s = spec.limits.stall_timeout_us / MICROSECONDS
        self._first_request_timeout_s = spec.limits.login_timeout_us / MICROSECONDS
        self._context = WorkerContext(None)
        self._scopes: dict[trio.CancelScope, TimeoutStream] = {}
        self._per_network: Counter[str] = Counter()
        self._drain_waiters = trio.lowlevel.ParkingLot()
        self._handshakes: dict[trio.CancelScope, None] = {}
        self._warned_at = -float("inf")

    async def accept(self, listener: trio.socket.SocketType, nursery: trio.Nursery) -> None:
        """Accept until cancelled."""
        while True:
            accepted, address = await accept_next(listener, "HTTP")
            network = network_of(f"{address[0]}:{address[1]}")
            if not self._make_room(network, address):
                accepted.close()
                continue
            # Registered before its task starts, so that a stop cannot miss it.
            scope = trio.CancelScope(shield=True)
            timed = self._scopes[scope] = TimeoutStream(
                trio.SocketStream(accepted),
                stall_timeout_s=self._stall_timeout_s,
                first_request_timeout_s=self._first_request_timeout_s,
                network=network,
            )
            self._per_network[network] += 1
            nursery.start_soon(self._serve, accepted, scope, timed)

    def _make_room(self, network: str, new_address: object) -> bool:
        """Make room for a connection, at the cost of one that is idle.

        Returns:
            False where there is none to be had.
        """
        if self._per_network[network] >= self._per_address_max:
            unauthenticated = {
                scope: timed
                for scope, timed in self._scopes.items()
                if timed.network == network and not timed.is_authenticated
            }
            if len(unauthenticated) >= self._per_address_max and not self._close_idle(
                unauthenticated, new_address, "limits.max_unauthenticated_connections_per_address"
            ):
                return False
        return len(self._scopes) < self._limits.max_connections or self._close_idle(
            self._scopes, new_address, "limits.http.max_connections"
        )

    def _close_idle(
        self, among: Mapping[trio.CancelScope, TimeoutStream], new_address: object, key: str
    ) -> bool:
        """Close the connection that is idle for longest, one without a login first.

        Returns:
            False if no connection is idle.
        """
        idle = min(
            (one for one, timed in among.items() if timed.can_give_way),
            key=lambda one: (among[one].is_authenticated, among[one].idle_since),
            default=None,
        )
        now = trio.current_time()
        if now >= self._warned_at + LOG_INTERVAL_S:
            self._warned_at = now
            LOGGER.warning(
                "%s = %d is reached: %s for %s and others",
                key,
                len(among),
                "no connection is idle, no room" if idle is None else "idle connections give way",
                new_address,
            )
        if idle is None:
            return False
        self._forget(idle)
        idle.cancel()
        return True

    def _forget(self, scope: trio.CancelScope) -> None:
        """Count a connection no more; may be said twice."""
        timed = self._scopes.pop(scope, None)
        if timed is not None:
            self._per_network[timed.network] -= 1
            if not self._per_network[timed.network]:
                del self._per_network[timed.network]

    async def close_when_cancelled(self) -> None:
        """Wait for the cancellation, then let requests in progress finish, within a timeout."""
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await self._context.terminated.set()
                with trio.move_on_after(DRAIN_TIMEOUT_S):
                    while self._scopes:
                        await self._drain_waiters.park()
                self._web_context.cancel_commands()
                for scope in self._scopes:
                    scope.cancel()

    async def _serve(
        self, accepted: trio.socket.SocketType, scope: trio.CancelScope, timed: TimeoutStream
    ) -> None:
        """Serve one connection; no error leaves this task."""
        try:
            with scope:
                await self._serve_http(accepted, timed)
        except* OSError as group:
            LOGGER.debug("lost an HTTP connection: %s", group.exceptions[0])
        except* Exception as group:
            LOGGER.error("an HTTP connection failed with an unexpected error", exc_info=group)
        finally:
            accepted.close()
            self._forget(scope)
            self._drain_waiters.unpark_all()

    async def _serve_http(self, accepted: trio.socket.SocketType, timed: TimeoutStream) -> None:
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream: Any = timed
        if self._tls is not None:
            stream = await self._start_tls(timed)
            if stream is None:
                return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_close_when_cancelled, accepted)
            await HttpServerConnection(
                self._app, self._config, self._context, {}, stream, timed
            ).run()
            nursery.cancel_scope.cancel()

    async def _start_tls(self, timed: TimeoutStream) -> trio.SSLStream[TimeoutStream] | None:
        assert self._tls is not None
        if len(self._handshakes) >= self._limits.max_handshakes:
            next(iter(self._handshakes)).cancel()
        stream = trio.SSLStream(timed, self._tls, server_side=True, https_compatible=True)
        reason: object = "timed out, or cancelled for newer handshakes"
        with trio.move_on_after(self._limits.handshake_timeout_us / MICROSECONDS) as timeout:
            self._handshakes[timeout] = None
            try:
                await stream.do_handshake()
                return stream
            except (trio.BrokenResourceError, ssl.SSLError, OSError) as error:
                reason = error.__cause__ or error
            finally:
                del self._handshakes[timeout]
        LOGGER.info("the TLS handshake with an HTTP client failed: %s", reason)
        return None


async def _close_when_cancelled(accepted: trio.socket.SocketType) -> None:
    """Close the socket on cancellation, because hypercorn's sends cannot be cancelled."""
    try:
        await trio.sleep_forever()
    finally:
        accepted.close()


def _hypercorn_config(limits: LimitsConfig) -> Config:
    config, http = Config(), limits.http
    idle_us = min(limits.idle_timeout_us or http.idle_timeout_us, http.idle_timeout_us)
    config.keep_alive_timeout = idle_us / MICROSECONDS
    config.h11_max_incomplete_size = http.max_head_bytes
    config.h2_max_header_list_size = http.max_head_bytes
    config.h2_max_concurrent_streams = HTTP2_STREAMS_MAX
    config.max_app_queue_size = PIECES_MAX
    config.include_server_header = False
    config.errorlog = LOGGER
    config.accesslog = None
    # hypercorn would close a connection after a number of requests, which gains nothing here.
    config.keep_alive_max_requests = 1 << 62
    return config

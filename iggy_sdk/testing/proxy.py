"""A proxy between clients and one server, on its own thread with its own event loop.

Clients of any kind may use it: asyncio, trio, blocking, other processes. Its port stays the same
while the server behind it restarts on another one. When connections are refused, the listening
socket is closed, so that the operating system refuses them as it does without a server.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, TypeVar

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from iggy_sdk.testing.faults import FaultRules
from iggy_sdk.testing.proxy_connection import ProxyConnection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyio.abc import Listener, SocketStream


HOST = "127.0.0.1"

CONNECT_SECONDS_MAX = 5.0
"""A server on this machine that takes longer to accept is not running."""

R = TypeVar("R")


def reserve_port() -> socket.socket:
    """Reserve a port with a socket that is bound and does not listen."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    holder.bind((HOST, 0))
    return holder


class Proxy:
    """The proxy; ``open()`` starts its thread and ``close()`` ends it.

    Every public method may be called from any thread, and has taken effect when it returns.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None
        self._holder: socket.socket | None = None
        self._upstream: tuple[str, int] | None = None
        self._is_refusing = False
        self._rules = FaultRules()
        self._connections: set[ProxyConnection] = set()
        self._listener: Listener[SocketStream] | None = None
        self._healed: anyio.Event

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        assert self._holder is not None, "the proxy is not open"
        port: int = self._holder.getsockname()[1]
        return port

    def open(self) -> None:
        """Reserve a port and start the thread; no connection is accepted before ``attach``."""
        self._holder = self._stack.enter_context(reserve_port())
        self._portal = self._stack.enter_context(start_blocking_portal("asyncio"))
        self._call(self._begin)

    def close(self) -> None:
        """Cut every connection and end the thread."""
        if self._portal is None:
            return
        self.detach()
        self.cut()
        self._portal = None
        self._stack.close()

    def attach(self, upstream: tuple[str, int]) -> None:
        """Accept connections and forward them to this address."""
        self._upstream = upstream
        self._start_accepting()

    def detach(self) -> None:
        """Stop accepting, because the server stops; open connections end with the server."""
        self._upstream = None
        self._call(self._close_listener)

    # Faults

    def rule(self, change: Callable[[FaultRules], R]) -> R:
        """Read or change the rules between two commands."""

        async def apply() -> R:
            return change(self._rules)

        return self._call(apply)

    def refuse(self) -> None:
        """Refuse new connections until ``heal``."""
        self._is_refusing = True
        self._call(self._close_listener)

    def admit(self) -> None:
        """Accept connections again; other faults stay."""
        self._is_refusing = False
        self._start_accepting()

    def cut(self) -> int:
        """End all connections and return how many there were."""
        return self._call(self._cut_connections, self._connections)

    def heal(self) -> None:
        """Remove every fault; connections with a swallowed reply cannot continue and are cut."""
        self._is_refusing = False
        self._call(self._heal)
        self._start_accepting()

    def connections(self) -> int:
        """Return how many clients are connected."""
        return len(self._connections)

    def _start_accepting(self) -> None:
        if self._listener is not None or self._is_refusing or self._upstream is None:
            return
        assert self._portal is not None, "the proxy is not open"
        self._portal.start_task_soon(self._serve, self._call(self._open_listener))

    def _call(self, function: Callable[..., Awaitable[R]], *arguments: object) -> R:
        assert self._portal is not None, "the proxy is not open"
        return self._portal.call(function, *arguments)

    # On the thread of the proxy

    async def _begin(self) -> None:
        self._healed = anyio.Event()

    async def _heal(self) -> None:
        self._rules.clear()
        self._healed.set()
        self._healed = anyio.Event()
        await self._cut_connections(
            {
                proxy_connection
                for proxy_connection in self._connections
                if proxy_connection.is_silenced
            }
        )

    async def _cut_connections(self, connections: set[ProxyConnection]) -> int:
        to_cut = list(connections)
        for proxy_connection in to_cut:
            proxy_connection.cut()
        for proxy_connection in to_cut:
            await proxy_connection.gone.wait()
        return len(to_cut)

    async def _open_listener(self) -> Listener[SocketStream]:
        bound = await anyio.create_tcp_listener(
            local_host=HOST, local_port=self.port, reuse_port=True
        )
        [self._listener] = bound.listeners
        return self._listener

    async def _close_listener(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.aclose()

    async def _serve(self, listener: Listener[SocketStream]) -> None:
        # Open connections outlive the listener: the task group waits for them.
        async with anyio.create_task_group() as connections:
            with suppress(anyio.ClosedResourceError):
                await listener.serve(self._accept, connections)

    async def _accept(self, client: SocketStream) -> None:
        upstream = self._upstream
        try:
            if upstream is None:
                raise ConnectionRefusedError
            with anyio.fail_after(CONNECT_SECONDS_MAX):
                server = await anyio.connect_tcp(*upstream)
        except OSError:
            await anyio.aclose_forcefully(client)
            return
        proxy_connection = ProxyConnection(
            client, server, decide=self._rules.decide, hold=self._hold
        )
        self._connections.add(proxy_connection)
        try:
            await proxy_connection.run()
        finally:
            self._connections.discard(proxy_connection)

    async def _hold(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await self._healed.wait()

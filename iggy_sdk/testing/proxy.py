"""A proxy between clients and one server, on its own thread with its own event loop.

Clients of any kind may use it: asyncio, trio, blocking, other processes. Its port stays the same
while the server behind it restarts on another one. When connections are refused, the listening
socket is closed, so that the operating system refuses them as it does without a server.
"""

from __future__ import annotations

import socket
from collections import deque
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from iggy_sdk.testing.faults import FaultAction, FaultEffect, FaultRules
from iggy_sdk.testing.frames import CLASSIC_PROXY_FRAMING, UNANSWERED_CODES, proxy_framing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyio.abc import Listener, SocketStream

    from iggy_sdk.testing.frames import FramePiece, ProxyFraming


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


# One connection through the proxy: a task for each direction, and the queue of pending requests.
#
# Replies of 0.8 match requests by their order alone. So a reply that the proxy makes waits behind
# those of the server, and after a swallowed reply no later one may pass: the client would match it
# to the wrong request. From 0.9 on replies have numbers; a swallowed one silences all others, too.

READ_BYTES = 262_144
"""One read: large enough that a batch of a megabyte is not cut into hundreds of pieces."""

PENDING_REQUESTS_MAX = 8_192
"""Requests without a reply; twice what a server accepts, so the proxy is never the limit."""

STREAM_ENDS = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)


class WaitingRequest(NamedTuple):
    """A request without a reply.

    Attributes:
        number: what it shares with its reply.
        effect: that of the faults on it.
        refusal: the reply of the proxy, if the server does not get it.
    """

    number: int | None
    effect: FaultEffect
    refusal: bytes = b""


class ProxyConnection:
    """A pair of sockets.

    Args:
        decide: returns the effect of the faults on a command, by its code.
        hold: waits the given seconds, or less when the faults are healed.
    """

    def __init__(
        self,
        client: SocketStream,
        server: SocketStream,
        *,
        decide: Callable[[int], FaultEffect],
        hold: Callable[[float], Awaitable[None]],
    ) -> None:
        self._client = client
        self._server = server
        self._decide_effect = decide
        self._hold = hold
        self._first = b""
        self._is_detected = False
        self._use(CLASSIC_PROXY_FRAMING)
        self._is_forwarding = True
        self._is_cutting = False
        self._waiting: deque[WaitingRequest] = deque()
        self._capacity = anyio.Semaphore(PENDING_REQUESTS_MAX)
        self._writing = anyio.Lock()
        self._scope = anyio.CancelScope()
        self.gone: anyio.Event = anyio.Event()
        self.is_silenced: bool = False

    async def run(self) -> None:
        """Forward bytes both ways until one end closes or the connection is cut."""
        try:
            with self._scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._pump, self._client, self._carry_requests)
                    tasks.start_soon(self._pump, self._server, self._carry_replies)
        finally:
            await anyio.aclose_forcefully(self._server)
            await anyio.aclose_forcefully(self._client)
            self.gone.set()

    def cut(self) -> None:
        """End the connection at once, for both ends."""
        self._scope.cancel()

    async def _pump(self, source: SocketStream, carry: Callable[[bytes], Awaitable[None]]) -> None:
        try:
            while True:
                await carry(await source.receive(READ_BYTES))
        except STREAM_ENDS:
            self.cut()

    def _use(self, framing: ProxyFraming) -> None:
        self._framing = framing
        self._request_splitter = framing.requests()
        self._reply_splitter = framing.replies()

    # From the client

    async def _carry_requests(self, data: bytes) -> None:
        if not self._is_detected:
            data = self._first = self._first + data
            framing = proxy_framing(data)
            if framing is None:
                return
            self._is_detected = True
            if framing is not self._framing:
                self._use(framing)
        outgoing = bytearray()
        for piece in self._request_splitter.feed(data):
            if piece.begins:
                await self._decide(piece, outgoing)
            if self._is_forwarding:
                outgoing += piece.data
        await self._send(self._server, outgoing)

    async def _decide(self, piece: FramePiece, outgoing: bytearray) -> None:
        if self._is_cutting:
            # Read and drop: a close with unread bytes sends a reset, which discards replies.
            return
        effect = self._decide_effect(piece.head.code)
        if effect.delay_s or effect.action is FaultAction.CUT:
            # Earlier commands are not affected: they are forwarded first.
            await self._send(self._server, outgoing)
            outgoing.clear()
            await self._hold(effect.delay_s)
        self._is_cutting = effect.action is FaultAction.CUT
        self._is_forwarding = not self._is_cutting and effect.action is not FaultAction.ANSWER
        if effect.action is FaultAction.PASS and piece.head.code in UNANSWERED_CODES:
            return
        await self._capacity.acquire()
        refusal = b""
        if effect.action is FaultAction.ANSWER:
            refusal = self._framing.refuse(bytes(piece.data), effect.status)
        self._waiting.append(WaitingRequest(piece.head.number, effect, refusal))
        if not self._is_forwarding:
            async with self._writing:
                await self._send(self._client, b"" if self.is_silenced else self._due_answers())
                self._cut_if_due()

    # From the server

    async def _carry_replies(self, data: bytes) -> None:
        if self.is_silenced:
            return
        async with self._writing:
            outgoing, lost = bytearray(), FaultAction.PASS
            for piece in self._reply_splitter.feed(data):
                if piece.begins and (lost := self._reply_action(piece)) is not FaultAction.PASS:
                    break
                outgoing += piece.data
                if piece.ends:
                    self._finish(piece, outgoing)
            await self._send(self._client, outgoing)
            self.is_silenced = lost is FaultAction.SWALLOW
            if lost is FaultAction.CUT_AT_REPLY:
                self.cut()
            self._cut_if_due()

    def _request_of(self, piece: FramePiece) -> WaitingRequest | None:
        """Return the oldest request that a reply may answer."""
        number = piece.head.number
        return next((request for request in self._waiting if request.number == number), None)

    def _reply_action(self, piece: FramePiece) -> FaultAction:
        """Return the action for the reply that begins; PASS for one without a request."""
        request = self._request_of(piece)
        return FaultAction.PASS if request is None else request.effect.action

    def _finish(self, piece: FramePiece, outgoing: bytearray) -> None:
        """Finish a reply; the next one may have to come from the proxy."""
        request = self._request_of(piece)
        if request is not None:
            self._waiting.remove(request)
            self._capacity.release()
        outgoing += self._due_answers()

    def _due_answers(self) -> bytes:
        """Return the replies of the proxy, in order: those without an older pending request."""
        frames = b""
        for request in list(self._waiting):
            if request.effect.action is FaultAction.ANSWER:
                frames += request.refusal
                self._waiting.remove(request)
                self._capacity.release()
            elif self._framing.is_ordered:
                break
        return frames

    def _cut_if_due(self) -> None:
        """Cut the connection if its fault is next and all earlier commands have replies."""
        if self._waiting and self._waiting[0].effect.action is FaultAction.CUT:
            self.cut()

    @staticmethod
    async def _send(target: SocketStream, data: bytes | bytearray) -> None:
        if data:
            await target.send(bytes(data))

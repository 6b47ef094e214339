"""A session on one byte stream (TCP, TLS, WebSocket): replies come in the order of requests.

There is no reader task between a request and its reply. Where the event loop calls a function when
the socket is readable, that function decodes replies and wakes the tasks they belong to. Elsewhere
a task that awaits a reply reads the socket itself, for all pending requests; when it has its reply,
it wakes the next pending task to go on, and ``run`` reads while no request is pending. Both ways
save a single request a task switch, and the end of a connection is noticed at once.

This module decides the order of writes, which task reads, and deadlines. Logins, addresses and
other connections belong to the modules above.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeVar

import anyio

from iggy_protocol import (
    NEED_DATA,
    ClientConnection,
    ConnectionClosed,
    Limits,
    LocalProtocolError,
    RemoteProtocolError,
)
from iggy_sdk.engine import wake_of_engine
from iggy_sdk.errors import (
    ClientClosedError,
    ConnectionFailedError,
    DisconnectedError,
    IggyError,
    RequestTimeoutError,
    describe_command,
    error_from_protocol,
)
from iggy_sdk.session_line import WaitingLine
from iggy_sdk.session_statistics import SessionStatistics
from iggy_sdk.session_waiter import Waiter, is_farewell, read_outcome, too_late, verdict
from iggy_sdk.session_writing import write_rest
from iggy_sdk.transport import open_transport

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iggy_protocol import Buffer, Command
    from iggy_sdk.options import ClientOptions, Endpoint
    from iggy_sdk.transport import Dial, Transport

__all__ = ["Session"]

R = TypeVar("R")

WATCH_AFTER_SECONDS = 0.1
"""How long no request is sent before ``run`` reads the socket itself. Short enough to notice the
end of the connection at once, and long enough not to interfere between two requests in a row."""

KEPT_SECONDS_MIN = 1.0
"""The shortest timeout that ``run`` may track. It checks deadlines every ``WATCH_AFTER_SECONDS``,
which saves most requests a timer; shorter timeouts need an exact one."""

READ_ON_BYTES_MIN = 16_384
"""How much of a reply must be missing to read the socket again before the event loop polls it. The
rest of a large reply has mostly arrived by then; a small reply arrives whole."""

READS_MAX = 16
"""How many reads follow each other before other tasks run."""

CLOCK_SLACK_SECONDS = 0.001
"""Timers may fire early by the resolution of the clock."""


class Session:
    """One connection to one server; many tasks may send requests at the same time."""

    def __init__(self, transport: Transport, options: ClientOptions) -> None:
        """Take a connected transport; the session closes it."""
        self._transport = transport
        self._options = options
        self._connection = ClientConnection(limits=Limits(outstanding_max=options.max_outstanding))
        self._line = WaitingLine(options.max_outstanding)
        self._writing = anyio.Lock()
        self._is_closing = False
        self._doom: IggyError | None = None
        self._watch_call: anyio.Event | None = None
        self._reader: Waiter | None = None
        self._keeps_time = False
        self._timeouts_count = 0
        self.failure: IggyError | None = None
        self.is_ended_by_peer = False
        self.on_end: Callable[[], None] | None = None
        self._new_wake = wake_of_engine()
        self._is_pushed = transport.watch(self._on_bytes)
        self._is_read = self._is_pushed

    @classmethod
    async def open(
        cls, endpoint: Endpoint, options: ClientOptions, *, dial: Dial = open_transport
    ) -> Session:
        """Connect to a server within ``connect_timeout``, without a login.

        Raises:
            ConnectionFailedError: no server answers at the endpoint, or the handshake failed.
        """
        with anyio.move_on_after(options.connect_timeout):
            return cls(await dial(endpoint, options), options)
        secured = " or did not finish the TLS handshake" if options.tls else ""
        raise ConnectionFailedError(
            f"{endpoint.host}:{endpoint.port} did not answer{secured}"
            f" within {options.connect_timeout:g} s"
        )

    @property
    def is_closed(self) -> bool:
        """Whether the connection has ended."""
        return self.failure is not None or self._doom is not None

    @property
    def peer(self) -> str:
        """Where the server is."""
        return self._transport.peer

    def statistics(self) -> SessionStatistics:
        """Return what the session has done so far."""
        return SessionStatistics(
            connection=self._connection.statistics(),
            answers=self._line.told_count,
            timeouts=self._timeouts_count,
            abandoned=self._line.abandoned_count,
            waiting=self._line.waiting_count,
        )

    # Requests

    async def request(self, command: Command[R], *, timeout: float) -> R:
        """Send a command and wait for the reply; see ``Conversation.request``."""
        return await self.ask(command, seconds=timeout, deadline=anyio.current_time() + timeout)

    async def ask(self, command: Command[R], *, seconds: float, deadline: float) -> R:
        """Do what ``request`` does, for a caller that has computed the deadline already."""
        waiter = Waiter(command, deadline)
        if self._doom is not None:
            self._settle()
        try:
            if self._keeps_time and seconds >= KEPT_SECONDS_MIN and not self._is_busy():
                waiter.is_kept = True
                rest = self._begin(waiter)
                if not rest:
                    await self._await_outcome(waiter, is_kept=True)
                if waiter.outcome is None:
                    await self._go_on_alone(waiter, rest)
            else:
                self._wake_keeper()
                with anyio.CancelScope(deadline=deadline):
                    await self._exchange(waiter)
        finally:
            if waiter.outcome is None:
                self._settle()
                self._abandon(waiter, seconds)
        if waiter.outcome is None:
            self._timeouts_count += 1
            raise too_late(command, is_sent=waiter.is_sent, seconds=seconds, peer=self.peer)
        reply: R = read_outcome(waiter)
        return reply

    def _is_busy(self) -> bool:
        """Say whether a new request has to wait, or cannot be sent at all."""
        return (
            self._line.is_full
            or self._writing.locked()
            or self.failure is not None
            or self._is_closing
        )

    async def _exchange(self, waiter: Waiter) -> None:
        """Send a request and wait for the reply, inside a scope with its deadline."""
        if self._is_busy():
            await self._write_in_turn(waiter)
        else:
            rest = self._begin(waiter)
            if rest:
                await self._finish(waiter, rest)
        await self._await_outcome(waiter, is_kept=False)

    async def _go_on_alone(self, waiter: Waiter, rest: Sequence[Buffer]) -> None:
        """Wait with an own timer, once ``run`` no longer tracks the deadline."""
        waiter.is_kept = False
        if anyio.current_time() < waiter.deadline:
            with anyio.CancelScope(deadline=waiter.deadline):
                if rest:
                    await self._finish(waiter, rest)
                await self._await_outcome(waiter, is_kept=False)

    # Writing

    async def _write_in_turn(self, waiter: Waiter) -> None:
        async with self._writing:
            while self._line.is_full and self.failure is None:
                await self._await_room()
            self._check_open()
            rest = self._begin(waiter)
            if rest:
                await self._write_rest(waiter, rest)

    async def _await_room(self) -> None:
        """Wait until any reply makes space; read it here if no pending task does."""
        if self._is_read:
            await self._line.await_change()
            self._settle()
        else:
            self._is_read = True
            try:
                await self._read_once()
            finally:
                self._stop_reading()

    async def _finish(self, waiter: Waiter, rest: Sequence[Buffer]) -> None:
        self._writing.acquire_nowait()
        try:
            await self._write_rest(waiter, rest)
        finally:
            self._writing.release()

    def _begin(self, waiter: Waiter) -> list[Buffer]:
        """Register a request, write what the socket takes at once, and return the rest."""
        try:
            buffers = self._connection.send(waiter.command)
        except LocalProtocolError as error:
            raise error_from_protocol(error, command=waiter.command) from error
        self._line.waiters.append(waiter)
        try:
            rest = self._transport.send_nowait(buffers)
        except OSError as error:
            self.abort(self._lost(error), by_peer=True)
            return []
        waiter.is_sent = not rest
        return rest

    async def _write_rest(self, waiter: Waiter, rest: Sequence[Buffer]) -> None:
        """Write the rest of a frame; a torn frame ends the connection."""
        left = list(rest)
        try:
            await write_rest(self._transport, left)
        except OSError as error:
            self.abort(self._lost(error), by_peer=True)
        finally:
            waiter.is_sent = not left
            if left:
                self.abort(DisconnectedError("a request was cancelled while it was being written"))

    # Reading

    async def _await_outcome(self, waiter: Waiter, *, is_kept: bool) -> None:
        """Wait for the outcome, or until the deadline is tracked in another way."""
        while waiter.outcome is None and waiter.is_kept is is_kept:
            if self._is_read:
                waiter.wake = wake = self._new_wake()
                try:
                    await wake.wait()
                finally:
                    waiter.wake = None
                if self._doom is not None:
                    self._settle()
            else:
                self._is_read = True
                self._reader = waiter
                try:
                    while waiter.outcome is None and waiter.is_kept is is_kept:
                        await self._read_once()
                finally:
                    self._reader = None
                    self._stop_reading()

    def _stop_reading(self) -> None:
        self._is_read = False
        if self._line.waiters:
            self._wake_reader()

    def _wake_reader(self) -> None:
        """Have another pending task, or ``run``, go on reading."""
        if not self._line.wake_next() and self._watch_call is not None:
            self._watch_call.set()

    async def _read_once(self) -> None:
        try:
            count = await self._transport.receive_into(self._connection.get_buffer())
            if self.failure is None:
                self._take(count)
        except InterruptedError:
            return
        except OSError as error:
            self.abort(self._lost(error), by_peer=True)
            return
        self._settle()

    def _on_bytes(self) -> None:
        """Read what has arrived. The event loop calls this outside of any task, without anyio."""
        try:
            self._take(self._transport.receive_nowait(self._connection.get_buffer()))
        except OSError as error:
            self._doom = self._lost(error)
        if self._doom is not None:
            self._transport.unwatch()
            self._line.wake_all()
            if self._watch_call is not None:
                self._watch_call.set()

    def _take(self, count: int | None) -> None:
        """Process bytes that were read, and read on while a large reply is incomplete.

        Raises:
            OSError: the connection broke.
        """
        connection = self._connection
        reads = 0
        while count is not None:
            connection.buffer_updated(count)
            self._deliver()
            reads += 1
            is_over = not self._line.waiters or self._doom is not None
            if is_over or reads == READS_MAX or connection.missing_bytes < READ_ON_BYTES_MIN:
                return
            count = self._transport.receive_nowait(connection.get_buffer())

    def _deliver(self) -> None:
        """Match decoded replies to pending requests, in their order."""
        try:
            while (event := self._connection.next_event()) is not NEED_DATA:
                if isinstance(event, ConnectionClosed) or is_farewell(event):
                    self._doom = DisconnectedError(f"{self.peer} has closed the connection")
                    break
                self._line.tell(event)
        except RemoteProtocolError as error:
            self._doom = error_from_protocol(error)
            self._doom.__cause__ = error
        self._line.notify()

    def _settle(self) -> None:
        """End the session, if the callback has found its end; that needs a task."""
        if self._doom is not None:
            self.abort(self._doom, by_peer=True)

    def _wake_keeper(self) -> None:
        """Have ``run`` track the deadlines of the next requests."""
        if self._is_pushed and not self._keeps_time and self._watch_call is not None:
            self._watch_call.set()

    # The background task

    async def run(self) -> None:
        """Read while no task does; return when the connection has ended."""
        try:
            while self.failure is None:
                await self._nap()
                if self._is_pushed:
                    await self._sleep()
                elif not self._is_read:
                    await self._watch()
                self._settle()
        finally:
            self._watch_call = None
            self._keeps_time = False
            self._release_kept(math.inf)

    async def _nap(self) -> None:
        """Wait until no request was sent for some time, or until this task is woken."""
        self._keeps_time = True
        while self.failure is None:
            told_count = self._line.told_count
            self._watch_call = anyio.Event()
            with anyio.move_on_after(WATCH_AFTER_SECONDS):
                await self._watch_call.wait()
                return
            self._release_kept(anyio.current_time())
            if told_count == self._line.told_count and not self._line.waiters:
                return

    async def _sleep(self) -> None:
        """Wait for the next request, or the end of the connection."""
        if not self.is_closed and not self._line.waiters:
            self._keeps_time = False
            self._watch_call = anyio.Event()
            await self._watch_call.wait()

    async def _watch(self) -> None:
        """Read until every request that was sent meanwhile has its reply."""
        self._is_read = True
        # Requests from here on need their own timer, because only bytes end this wait.
        self._keeps_time = False
        self._release_kept(math.inf)
        try:
            while self.failure is None:
                await self._read_once()
                if not self._line.waiters:
                    return
        finally:
            self._stop_reading()

    def _release_kept(self, now: float) -> None:
        """Hand expired deadlines back to the tasks of their requests."""
        if self._reader in self._line.release_expired(now):
            self._transport.interrupt()

    # The end

    def _abandon(self, waiter: Waiter, seconds: float) -> None:
        """Stop waiting for a reply; the request stays in the order of replies."""
        waiters = self._line.waiters
        if waiter not in waiters:
            return
        self._line.leave(waiter)
        # A cancelled caller may have waited briefly; the server gets the full request timeout.
        waiter.deadline += max(0.0, self._options.request_timeout - seconds)
        oldest = waiters[0]
        if oldest.is_abandoned and anyio.current_time() + CLOCK_SLACK_SECONDS >= oldest.deadline:
            what = describe_command(oldest.command)
            self.abort(
                RequestTimeoutError(f"{self.peer} did not answer {what} within the request timeout")
            )
        elif not self._is_read:
            self._wake_reader()

    def _check_open(self) -> None:
        if self._is_closing:
            raise ClientClosedError("the client was closed before the request was sent")
        if self.failure is not None:
            raise verdict(self.failure, is_sent=False)

    def _lost(self, error: OSError) -> DisconnectedError:
        lost = DisconnectedError(f"the connection to {self.peer} broke: {error}")
        lost.__cause__ = error
        return lost

    def abort(self, error: IggyError, *, by_peer: bool = False) -> None:
        """End the session at once and fail all pending requests; the first reason counts."""
        if self.failure is not None:
            return
        self.failure = error
        self.is_ended_by_peer = by_peer
        self._transport.abort()
        self._line.fail(error)
        if self._watch_call is not None:
            self._watch_call.set()
        if self.on_end is not None:
            self.on_end()

    async def aclose(self) -> None:
        """Refuse new requests, let pending ones finish within ``close_timeout``, and close."""
        self._is_closing = True
        self._settle()
        with anyio.move_on_after(self._options.close_timeout, shield=True):
            while self.failure is None and self._line.waiting_count:
                await self._line.await_drained()
                self._settle()
        if self.failure is None:
            with anyio.move_on_after(self._options.close_timeout, shield=True):
                await self._transport.aclose()
        self.abort(ClientClosedError())

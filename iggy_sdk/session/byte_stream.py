"""A session on one byte stream (TCP, TLS, WebSocket), whatever its framing.

There is no reader task between a request and its reply. Where the event loop calls a function when
the socket is readable, that function decodes replies and wakes the tasks they belong to. Elsewhere
a task that awaits a reply reads the socket itself, for all pending requests; when it has its reply,
it wakes the next pending task to go on, and ``run`` reads while no request is pending. Both ways
save a single request a task switch, and the end of a connection is noticed at once.

This module decides the order of writes, which task reads, and deadlines. The subclasses for a
framing, ``stream`` and ``vsr_stream``, write requests and match replies to them. Logins, addresses
and other connections belong to the modules above.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import anyio

from iggy_protocol import (
    Buffer,
    ClientConnection,
    LocalProtocolError,
    VsrClientConnection,
)
from iggy_sdk.deadline import Deadline
from iggy_sdk.errors import (
    ClientClosedError,
    ConnectionFailedError,
    DisconnectedError,
    IggyError,
    RequestTimeoutError,
    describe_command,
    error_from_protocol,
)
from iggy_sdk.event_loop import wake_event_factory
from iggy_sdk.session.interface import OPEN, SHARED_TIMER_SECONDS_MIN, Session, SocketReader
from iggy_sdk.session.pending_requests import (
    PendingRequest,
    PendingRequests,
    request_timeout_error,
)
from iggy_sdk.session.states import SessionEvent
from iggy_sdk.statistics import SessionStatistics
from iggy_sdk.transport import HandshakeEndedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iggy_sdk.connection_string import Endpoint
    from iggy_sdk.options import ClientOptions
    from iggy_sdk.transport import Dial, StreamTransport


IDLE_AFTER_SECONDS = 0.1
"""How long no request is sent before ``run`` reads the socket itself. Short enough to notice the
end of the connection at once, and long enough not to interfere between two requests in a row."""

NO_SHARED_TIMER: Final = math.inf
"""The shortest timeout that ``run`` tracks while it tracks none."""

NOT_READ: Final = SocketReader.NONE

READ_ON_BYTES_MIN = 16_384
"""How much of a reply must be missing to read the socket again before the event loop polls it. The
rest of a large reply has mostly arrived by then; a small reply arrives whole."""

READS_MAX = 16
"""How many reads follow each other before other tasks run."""

CLOCK_SLACK_SECONDS = 0.001
"""Timers may fire early by the resolution of the clock."""


class ByteStreamSession(Session):
    """One connection to one server; many tasks may send requests at the same time."""

    def __init__(
        self,
        transport: StreamTransport,
        options: ClientOptions,
        *,
        codec: ClientConnection | VsrClientConnection,
        pending: PendingRequests,
    ) -> None:
        """Take a connected transport, which the session closes, and what depends on the framing."""
        super().__init__()
        self._transport = transport
        self._options = options
        self._codec = codec
        self._pending = pending
        self._writing = anyio.Lock()
        self._run_wakeup: anyio.Event | None = None
        self._reading_request: PendingRequest | None = None
        # ``run`` checks deadlines every ``IDLE_AFTER_SECONDS``, but only in some of its waits.
        self._shared_timer_seconds_min = NO_SHARED_TIMER
        self._timeouts_count = 0
        self._new_wake = wake_event_factory()
        # The event loop reads for the whole life of the session, or never.
        self._reader = NOT_READ
        if transport.add_reader(self._on_bytes):
            self._reader = SocketReader.EVENT_LOOP

    @property
    def peer(self) -> str:
        """Where the server is."""
        return self._transport.peer

    def statistics(self) -> SessionStatistics:
        """Return what the session has done so far."""
        return SessionStatistics(
            connection=self._codec.statistics(),
            answers=self._pending.answered_count,
            timeouts=self._timeouts_count,
            abandoned=self._pending.abandoned_count,
            waiting=self._pending.waiting_count,
        )

    # Requests

    async def _carry(self, pending: PendingRequest, seconds: float) -> None:
        """Send a request and wait for its outcome; ``seconds`` is what its caller wanted to wait.

        Raises:
            RequestTimeoutError: there was none in time.
            IggyError: it cannot be sent.
        """
        deadline = pending.deadline
        if self.state is not OPEN:
            self._report_loss()
        try:
            if seconds >= self._shared_timer_seconds_min and not self._is_busy():
                pending.is_timed_by_session = True
                rest = self._start_request(pending)
                if not rest:
                    await self._await_outcome(pending, is_timed_by_session=True)
                if pending.outcome is None:
                    await self._await_with_own_timer(pending, rest)
            else:
                self._wake_timer_task()
                with anyio.CancelScope(deadline=deadline):
                    await self._exchange(pending)
        finally:
            if pending.outcome is None:
                self._report_loss()
                self._abandon(pending, seconds)
        if pending.outcome is None:
            self._timeouts_count += 1
            raise request_timeout_error(
                pending.command, is_sent=pending.is_sent, seconds=seconds, peer=self.peer
            )

    def _is_busy(self) -> bool:
        """Say whether a new request has to wait, or cannot be sent at all."""
        return self._pending.is_full or self._writing.locked() or self.state is not OPEN

    async def _exchange(self, pending: PendingRequest) -> None:
        """Send a request and wait for the reply, inside a scope with its deadline."""
        if self._is_busy():
            await self._write_in_turn(pending)
        else:
            rest = self._start_request(pending)
            if rest:
                await self._finish_write(pending, rest)
        await self._await_outcome(pending, is_timed_by_session=False)

    async def _await_with_own_timer(self, pending: PendingRequest, rest: Sequence[Buffer]) -> None:
        """Wait with an own timer, once ``run`` no longer tracks the deadline."""
        pending.is_timed_by_session = False
        if anyio.current_time() < pending.deadline:
            with anyio.CancelScope(deadline=pending.deadline):
                if rest:
                    await self._finish_write(pending, rest)
                await self._await_outcome(pending, is_timed_by_session=False)

    # Writing

    async def _write_in_turn(self, pending: PendingRequest) -> None:
        async with self._writing:
            while self._pending.is_full and self.failure is None:
                await self._await_capacity()
            self._check_open()
            rest = self._start_request(pending)
            if rest:
                await self._write_rest(pending, rest)

    async def _await_capacity(self) -> None:
        """Wait until any reply makes space; read it here if no pending task does."""
        if self._reader is not NOT_READ:
            await self._pending.await_change()
            self._report_loss()
        else:
            self._reader = SocketReader.TASK
            try:
                await self._read_once()
            finally:
                self._stop_reading()

    async def _finish_write(self, pending: PendingRequest, rest: Sequence[Buffer]) -> None:
        self._writing.acquire_nowait()
        try:
            await self._write_rest(pending, rest)
        finally:
            self._writing.release()

    def _start_request(self, pending: PendingRequest) -> list[Buffer]:
        """Register a request, write what the socket takes at once, and return the rest."""
        try:
            buffers = self._register(pending)
        except LocalProtocolError as error:
            raise error_from_protocol(error, command=pending.command) from error
        try:
            rest = self._transport.send_nowait(buffers)
        except OSError as error:
            self.abort(self._connection_lost_error(error), by_peer=True)
            return []
        pending.is_sent = not rest
        return rest

    @abstractmethod
    def _register(self, pending: PendingRequest) -> list[Buffer]:
        """Make a request one of the pending ones, and return its frame.

        Raises:
            LocalProtocolError: it cannot be written.
        """

    async def _write_rest(self, pending: PendingRequest, rest: Sequence[Buffer]) -> None:
        """Write the rest of a frame; a torn frame ends the connection."""
        left = list(rest)
        try:
            await send_rest_shielded(self._transport, left)
        except OSError as error:
            self.abort(self._connection_lost_error(error), by_peer=True)
        finally:
            pending.is_sent = not left
            if left:
                self.abort(DisconnectedError("a request was cancelled while it was being written"))

    # Reading

    async def _await_outcome(self, pending: PendingRequest, *, is_timed_by_session: bool) -> None:
        """Wait for the outcome, or until the deadline is tracked in another way."""
        while pending.outcome is None and pending.is_timed_by_session is is_timed_by_session:
            if self._reader is not NOT_READ:
                pending.wake = wake = self._new_wake()
                try:
                    await wake.wait()
                finally:
                    pending.wake = None
                if self.state is not OPEN:
                    self._report_loss()
            else:
                self._reader = SocketReader.TASK
                self._reading_request = pending
                try:
                    while (
                        pending.outcome is None
                        and pending.is_timed_by_session is is_timed_by_session
                    ):
                        await self._read_once()
                finally:
                    self._reading_request = None
                    self._stop_reading()

    def _stop_reading(self) -> None:
        self._reader = NOT_READ
        if self._pending.requests:
            self._wake_reader()

    def _wake_reader(self) -> None:
        """Have another pending task, or ``run``, go on reading."""
        if not self._pending.wake_next_reader() and self._run_wakeup is not None:
            self._run_wakeup.set()

    async def _read_once(self) -> None:
        try:
            count = await self._transport.receive_into(self._codec.get_buffer())
            if self.failure is None:
                self._feed(count)
        except InterruptedError:
            return
        except OSError as error:
            self.abort(self._connection_lost_error(error), by_peer=True)
            return
        self._report_loss()

    def _on_bytes(self) -> None:
        """Read what has arrived. The event loop calls this outside of any task, without anyio."""
        try:
            self._feed(self._transport.receive_nowait(self._codec.get_buffer()))
        except OSError as error:
            self._note_loss(self._connection_lost_error(error))
        if self._found_loss is not None:
            self._transport.remove_reader()
            self._pending.wake_all()
            if self._run_wakeup is not None:
                self._run_wakeup.set()

    def _feed(self, count: int | None) -> None:
        """Process bytes that were read, and read on while a large reply is incomplete."""
        codec = self._codec
        reads = 0
        while count is not None:
            codec.buffer_updated(count)
            self._dispatch_replies()
            reads += 1
            is_over = not self._pending.requests or self._found_loss is not None
            if is_over or reads == READS_MAX or codec.missing_bytes < READ_ON_BYTES_MIN:
                return
            count = self._transport.receive_nowait(codec.get_buffer())

    @abstractmethod
    def _dispatch_replies(self) -> None:
        """Match decoded replies to pending requests; note the end of the connection."""

    def _wake_timer_task(self) -> None:
        """Have ``run`` track the deadlines of the next requests."""
        is_untracked = self._shared_timer_seconds_min == NO_SHARED_TIMER
        if is_untracked and self._is_read_by_event_loop() and self._run_wakeup is not None:
            self._run_wakeup.set()

    def _is_read_by_event_loop(self) -> bool:
        return self._reader is SocketReader.EVENT_LOOP

    # The background task

    async def run(self) -> None:
        """Read while no task does; return when the connection has ended."""
        try:
            while self.failure is None:
                await self._wait_until_idle()
                if self._is_read_by_event_loop():
                    await self._wait_for_activity()
                elif self._reader is NOT_READ:
                    await self._read_while_idle()
                self._report_loss()
        finally:
            self._run_wakeup = None
            self._shared_timer_seconds_min = NO_SHARED_TIMER
            self._release_expired(math.inf)

    async def _wait_until_idle(self) -> None:
        """Wait until no request was sent for some time, or until this task is woken."""
        self._shared_timer_seconds_min = SHARED_TIMER_SECONDS_MIN
        while self.failure is None:
            answered_count = self._pending.answered_count
            self._run_wakeup = anyio.Event()
            with anyio.move_on_after(IDLE_AFTER_SECONDS):
                await self._run_wakeup.wait()
                return
            self._release_expired(anyio.current_time())
            if answered_count == self._pending.answered_count and self._pending.is_quiet:
                return

    async def _wait_for_activity(self) -> None:
        """Wait for the next request, or the end of the connection."""
        if not self.is_closed and self._pending.is_quiet:
            self._shared_timer_seconds_min = NO_SHARED_TIMER
            self._run_wakeup = anyio.Event()
            await self._run_wakeup.wait()

    async def _read_while_idle(self) -> None:
        """Read until every request that was sent meanwhile has its reply."""
        self._reader = SocketReader.TASK
        # Requests from here on need their own timer, because only bytes end this wait.
        self._shared_timer_seconds_min = NO_SHARED_TIMER
        self._release_expired(math.inf)
        try:
            while self.failure is None:
                await self._read_once()
                if not self._pending.requests:
                    return
        finally:
            self._stop_reading()

    def _release_expired(self, now: float) -> None:
        """Hand expired deadlines back to the tasks of their requests."""
        if self._reading_request in self._pending.release_expired(now):
            self._transport.interrupt()

    # The end

    def _abandon(self, pending: PendingRequest, seconds: float) -> None:
        """Stop waiting for a reply; the request stays in the order of replies."""
        if pending not in self._pending.requests:
            return
        self._pending.abandon(pending)
        # A cancelled caller may have waited briefly; the server gets the full request timeout.
        pending.deadline += max(0.0, self._options.request_timeout - seconds)
        if not self._abort_if_unanswered() and self._reader is NOT_READ:
            self._wake_reader()

    def _abort_if_unanswered(self) -> bool:
        """End a connection whose oldest request was given up, and not answered in time either."""
        oldest = self._pending.requests[0]
        if not oldest.is_abandoned or anyio.current_time() + CLOCK_SLACK_SECONDS < oldest.deadline:
            return False
        what = describe_command(oldest.command)
        self.abort(
            RequestTimeoutError(f"{self.peer} did not answer {what} within the request timeout")
        )
        return True

    def _release(self, error: IggyError) -> None:
        self._transport.abort()
        self._pending.fail(error, self.state)
        if self._run_wakeup is not None:
            self._run_wakeup.set()

    async def aclose(self, timeout: float | None = None) -> None:
        """Refuse new requests, let pending ones finish within ``close_timeout``, and close."""
        deadline = Deadline(self._options.close_timeout if timeout is None else timeout)
        self._advance(SessionEvent.CLOSE)
        self._report_loss()
        with anyio.move_on_after(deadline.rest(), shield=True):
            while self.failure is None and self._pending.waiting_count:
                await self._pending.await_drained()
                self._report_loss()
        if self.failure is None:
            with anyio.move_on_after(deadline.rest(), shield=True):
                await self._say_goodbye()
                await self._transport.aclose()
        self.abort(ClientClosedError())

    async def _say_goodbye(self) -> None:
        """Tell the server that the client closes, where that means more than the end of bytes."""


# Writing the rest of a frame that the socket did not take at once.
#
# After a torn frame no other can be sent on the connection. So a cancelled sender still writes a
# small rest; a large rest costs more than a new connection.


SHIELDED_BYTES_MAX = 65_536
"""The largest rest of a frame that a cancelled sender still writes."""

SHIELDED_SECONDS_MAX = 2.0
"""How long a cancelled sender may take to write that rest."""


async def send_rest_shielded(transport: StreamTransport, left: list[Buffer]) -> None:
    """Write buffers; what stays in the list was not written."""
    try:
        await transport.send(left)
    except OSError:
        raise
    except BaseException:
        if sum(map(len, left)) <= SHIELDED_BYTES_MAX:
            with anyio.move_on_after(SHIELDED_SECONDS_MAX, shield=True), suppress(OSError):
                await transport.send(left)
        raise


async def dial_within_timeout(
    endpoint: Endpoint, options: ClientOptions, *, dial: Dial, deadline: float | None = None
) -> StreamTransport:
    """Connect to a server within ``connect_timeout``, or until an earlier deadline.

    Raises:
        ConnectionFailedError: no server answers at the endpoint, or the handshake failed.
    """
    with anyio.move_on_after(options.connect_timeout) as scope:
        if deadline is not None:
            scope.deadline = min(scope.deadline, deadline)
        return await dial(endpoint, options)
    secured = " or did not finish the TLS handshake" if options.tls else ""
    kind = HandshakeEndedError if options.tls else ConnectionFailedError
    raise kind(
        f"{endpoint.host}:{endpoint.port} did not answer{secured}"
        f" within {options.connect_timeout:g} s"
    )

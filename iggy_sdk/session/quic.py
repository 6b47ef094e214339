"""A session on one QUIC connection: every request has its own stream.

Requests are in flight side by side and replies come in any order. A request waits only while the
streams or bytes in flight are at their limit, in order of arrival. A cancelled request resets its
stream and affects no other.

``run`` reads datagrams for all requests. Where the event loop calls a function when the socket is
readable, that function reads and ``run`` only serves timers. Without ``run``, a task that awaits a
reply reads for all pending requests, and passes that on when it has its reply.
"""

from __future__ import annotations

import math
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

import anyio
from aioquic.quic.events import StreamDataReceived, StreamReset
from anyio.lowlevel import checkpoint

from iggy_protocol import Command, Limits
from iggy_sdk.deadline import Deadline
from iggy_sdk.errors import (
    ClientClosedError,
    ConnectionFailedError,
    DisconnectedError,
    IggyError,
    ServerError,
    describe_command,
)
from iggy_sdk.event_loop import (
    WakeEvent,
    event_loop_call_soon,
    event_loop_clock,
    wake_event_factory,
)
from iggy_sdk.session.interface import SHARED_TIMER_SECONDS_MIN, Session, SocketReader
from iggy_sdk.session.pending_requests import (
    PendingRequest,
    read_outcome,
    request_timeout_error,
    session_ended_error,
)
from iggy_sdk.session.quic_exchange import QuicExchange, QuicExchangePool, TrafficCounters
from iggy_sdk.session.states import SessionEvent, SessionState
from iggy_sdk.statistics import SessionStatistics
from iggy_sdk.transport.quic import SILENCE_ADVICE, TICK_SECONDS, QuicTransport, open_quic
from iggy_sdk.transport.quic_settings import QuicSettings, parse_quic_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from aioquic.quic.events import QuicEvent

    from iggy_protocol import ClientConnection, VsrClientConnection
    from iggy_sdk.connection_string import Endpoint
    from iggy_sdk.options import ClientOptions


R = TypeVar("R")


class QuicSession(Session):
    """One connection to one server; many tasks may send requests at the same time."""

    def __init__(
        self, transport: QuicTransport, options: ClientOptions, settings: QuicSettings
    ) -> None:
        """Take a connection whose handshake is done; the session closes it."""
        super().__init__()
        self._transport = transport
        self._options = options
        self._exchange_pool = QuicExchangePool(
            Limits(outstanding_max=1, response_bytes_max=settings.response_bytes_max)
        )
        self._streams_max = min(options.max_outstanding, settings.streams_max)
        self._send_window_bytes = settings.send_window_bytes
        self._exchanges: dict[int, QuicExchange] = {}
        self._in_flight_bytes = 0
        self._traffic = TrafficCounters()
        self._reader = SocketReader.NONE
        self._is_collecting_sends = False
        self._run_wakeup: anyio.Event | None = None
        self._run_deadline = math.inf
        self._new_wake = wake_event_factory()
        self._clock = event_loop_clock()
        self._call_soon = event_loop_call_soon()
        self._reply_waiters: dict[WakeEvent, None] = {}
        self._capacity_waiters: dict[WakeEvent, None] = {}
        self._admission_queue: dict[QuicExchange, None] = {}

    @classmethod
    async def open(cls, endpoint: Endpoint, options: ClientOptions) -> QuicSession:
        """Connect to a server within ``connect_timeout``, without a login.

        Raises:
            ConnectionFailedError: no server answers at the endpoint, or the handshake failed.
            ConfigurationError: a setting of the connection string or a file is not valid.
        """
        transport, settings = await connect_quic(endpoint, options)
        return cls(transport, options, settings)

    @property
    def peer(self) -> str:
        """Where the server is."""
        return self._transport.peer

    def statistics(self) -> SessionStatistics:
        """Return what the session has done so far."""
        return self._statistics([one.connection for one in self._exchanges.values()])

    def _statistics(
        self, codecs: Iterable[ClientConnection | VsrClientConnection]
    ) -> SessionStatistics:
        traffic = self._traffic
        return SessionStatistics(
            connection=traffic.statistics(codecs),
            answers=traffic.frames_in,
            timeouts=traffic.timeouts_count,
            abandoned=traffic.abandoned_count,
            waiting=len(self._exchanges),
        )

    # Requests

    async def request_until(self, command: Command[R], *, seconds: float, deadline: float) -> R:
        """Do what ``request`` does, for a caller that has computed the deadline already."""
        pending = PendingRequest(command, deadline)
        await self._carry(pending, seconds)
        reply: R = read_outcome(pending)
        return reply

    async def _carry(self, pending: PendingRequest, seconds: float) -> None:
        """Send a request and wait for its outcome; ``seconds`` is what its caller wanted to wait.

        Raises:
            RequestTimeoutError: there was none in time.
            IggyError: it cannot be sent.
        """
        deadline = pending.deadline
        self._read_available()
        self._report_loss()
        self._check_open()
        exchange = self._begin_exchange(pending)
        try:
            if self._is_read_by_event_loop() and seconds >= SHARED_TIMER_SECONDS_MIN:
                pending.is_timed_by_session = True
                self._schedule_run(deadline)
                await self._exchange(exchange)
            if pending.outcome is None and self._clock() < deadline:
                pending.is_timed_by_session = False
                with anyio.CancelScope(deadline=deadline):
                    await self._exchange(exchange)
        finally:
            self._finish_exchange(exchange)
        if pending.outcome is None:
            self._traffic.timeouts_count += 1
            raise request_timeout_error(
                pending.command, is_sent=pending.is_sent, seconds=seconds, peer=self.peer
            )

    def _begin_exchange(self, pending: PendingRequest) -> QuicExchange:
        """Make what sends a request and takes its reply; nothing is sent yet.

        Raises:
            InvalidRequestError: a field does not fit the wire, or the request is too large.
        """
        return self._exchange_pool.begin(pending)

    async def _exchange(self, exchange: QuicExchange) -> None:
        """Send a request and wait for the reply, or until its deadline is tracked otherwise."""
        pending, is_timed_by_session = exchange.pending, exchange.pending.is_timed_by_session
        if exchange.stream_id is None:
            if self._admission_queue or not self._has_capacity_for(exchange):
                await self._await_admission(exchange)
            if pending.is_timed_by_session is not is_timed_by_session:
                return
            self._open_stream(exchange)
        while pending.outcome is None and pending.is_timed_by_session is is_timed_by_session:
            await self._read_or_wait(self._reply_waiters, pending)

    def _has_capacity_for(self, exchange: QuicExchange) -> bool:
        if len(self._exchanges) >= self._streams_max or not self._transport.core.may_open_stream:
            return False
        total = self._in_flight_bytes + exchange.size_bytes
        return not self._in_flight_bytes or total <= self._send_window_bytes

    async def _await_admission(self, exchange: QuicExchange) -> None:
        """Wait for a free stream, in order of arrival, so that a busy task cannot starve others."""
        pending, is_timed_by_session = exchange.pending, exchange.pending.is_timed_by_session
        self._admission_queue.setdefault(exchange)
        while next(iter(self._admission_queue)) is not exchange or not self._has_capacity_for(
            exchange
        ):
            await self._read_or_wait(self._capacity_waiters, pending)
            self._check_open()
            if pending.is_timed_by_session is not is_timed_by_session:
                return
        del self._admission_queue[exchange]

    def _open_stream(self, exchange: QuicExchange) -> None:
        """Open a stream for a request, and send what flow control allows."""
        core = self._transport.core
        exchange.stream_id = stream_id = core.get_next_available_stream_id()
        *parts, last = exchange.take_parts()
        for part in parts:
            core.send_stream_data(stream_id, part)  # type: ignore[arg-type]
        core.send_stream_data(stream_id, last, end_stream=True)  # type: ignore[arg-type]
        core.acknowledge(self._clock())
        self._exchanges[stream_id] = exchange
        self._in_flight_bytes += exchange.size_bytes
        self._traffic.frames_out += 1
        self._traffic.bytes_out += exchange.size_bytes
        if not self._is_collecting_sends:
            self._flush()
        self._admit_next()

    def _finish_exchange(self, exchange: QuicExchange) -> None:
        """Forget a request; a stream without a reply is reset."""
        stream_id, pending = exchange.stream_id, exchange.pending
        self._admission_queue.pop(exchange, None)
        self._exchange_pool.end(exchange)
        if stream_id is not None:
            del self._exchanges[stream_id]
            self._in_flight_bytes -= exchange.size_bytes
            if pending.outcome is None:
                pending.is_sent = self._transport.core.is_flushed(stream_id)
                self._transport.core.cancel_stream(stream_id)
                self._flush()
        if pending.outcome is None:
            self._traffic.abandoned_count += 1
        if self.state is SessionState.CLOSING:
            self._wake_all()
        self._admit_next()
        self._pass_reading_on()

    def _flush(self) -> None:
        self._send()
        self._report_loss()

    def _send(self) -> None:
        """Send what is queued. May run outside of any task, so it only notes a failure."""
        if self.failure is None:
            try:
                self._transport.flush(self._clock())
            except OSError as error:
                self._note_loss(self._connection_lost_error(error))
            else:
                self._schedule_run(self._transport.due_at())

    # Reading

    async def _read_or_wait(
        self, waiters: dict[WakeEvent, None], pending: PendingRequest | None = None
    ) -> None:
        """Read once for all requests, or sleep while another task reads."""
        if self._reader is SocketReader.NONE:
            if self._run_wakeup is None or self._call_soon is None:
                await self._read_once()
                return
            self._run_wakeup.set()
        wakeup = self._new_wake()
        waiters[wakeup] = None
        if pending is not None:
            pending.wake = wakeup
        try:
            await wakeup.wait()
        finally:
            waiters.pop(wakeup, None)
        self._report_loss()

    async def _read_once(self) -> None:
        """Wait for datagrams and process them."""
        self._reader = SocketReader.TASK
        try:
            await self._transport.wait()
        except OSError as error:
            self.abort(self._connection_lost_error(error), by_peer=True)
        finally:
            self._reader = SocketReader.NONE
        frames_before = self._traffic.frames_in
        self._read_available()
        has_replies = self._traffic.frames_in > frames_before
        if has_replies and len(self._exchanges) > 1 and self.failure is None:
            await self._collect_sends()

    async def _collect_sends(self) -> None:
        """Let tasks with new replies run, and send their next requests together."""
        self._reader, self._is_collecting_sends = SocketReader.TASK, True
        try:
            # trio runs tasks that were woken together in random order; two checkpoints let all run.
            await checkpoint()
            await checkpoint()
        finally:
            self._reader, self._is_collecting_sends = SocketReader.NONE, False
            self._flush()

    def _read_available(self) -> None:
        """Process what has arrived, unless another task reads."""
        if self.failure is None and self._reader is SocketReader.NONE:
            self._process_events(self._transport.process)
            self._report_loss()

    def _process_events(self, take: Callable[[], list[QuicEvent]]) -> None:
        """Process what has arrived. May run outside of any task, so it only notes a failure."""
        try:
            events = take()
        except OSError as error:
            self._note_loss(self._connection_lost_error(error))
            return
        for event in events:
            self._handle_event(event)
        core = self._transport.core
        if core.termination is not None:
            reason = core.termination.reason_phrase
            text = f"{self.peer} has closed the connection" if core.is_ended_by_peer else ""
            text = text or f"the connection to {self.peer} is lost"
            self._note_loss(DisconnectedError(f"{text}: {reason}" if reason else text))
        else:
            self._admit_next()

    def _is_read_by_event_loop(self) -> bool:
        return self._reader is SocketReader.EVENT_LOOP

    # Called by the event loop

    def _on_datagrams(self) -> None:
        """Process what has arrived. The event loop calls this outside of any task."""
        assert self._call_soon is not None
        frames_before = self._traffic.frames_in
        self._process_events(self._transport.receive)
        self._wake_on_end()
        # Tasks with new replies run before the rest, and their next requests are sent together.
        self._is_collecting_sends |= (
            self._traffic.frames_in > frames_before and len(self._exchanges) > 1
        )
        self._call_soon(self._after_woken_tasks)

    def _after_woken_tasks(self) -> None:
        if self._is_collecting_sends:
            self._is_collecting_sends = False
            self._send()
        elif self.failure is None:
            self._schedule_run(self._transport.due_at())
        self._wake_on_end()

    def _wake_on_end(self) -> None:
        if self._found_loss is not None:
            self._transport.remove_reader()
            self._wake_all()
            self._schedule_run(-math.inf)

    def _schedule_run(self, due_at: float) -> None:
        """Wake ``run`` if it would serve this timer too late."""
        if due_at < self._run_deadline and self._run_wakeup is not None:
            self._run_deadline = due_at
            self._run_wakeup.set()

    async def _run_timers(self) -> None:
        """Serve timers, while the event loop calls a function for datagrams."""
        self._reader = SocketReader.EVENT_LOOP
        try:
            while self.failure is None:
                self._process_events(self._transport.process)
                self._report_loss()
                self._release_expired(now := self._clock())
                self._run_wakeup = anyio.Event()
                deadlines = [one.deadline for one in self._waiters() if one.is_timed_by_session]
                self._run_deadline = min(self._run_deadline, self._transport.due_at(), *deadlines)
                with anyio.CancelScope(deadline=max(self._run_deadline, now + TICK_SECONDS)):
                    await self._run_wakeup.wait()
                    # The timer may be obsolete by now and another one due a little later. Waking
                    # at the same time once more costs less than being woken for each change.
                    continue
                self._run_deadline = math.inf
        finally:
            self._transport.remove_reader()
            self._reader = SocketReader.NONE
            self._run_deadline = math.inf
            self._release_expired(math.inf)

    def _waiters(self) -> Iterator[PendingRequest]:
        for exchange in chain(self._exchanges.values(), self._admission_queue):
            yield exchange.pending

    def _release_expired(self, now: float) -> None:
        """Hand expired deadlines back to the tasks of their requests."""
        for pending in self._waiters():
            if pending.is_timed_by_session and pending.deadline <= now:
                pending.is_timed_by_session = False
                if pending.wake is not None:
                    pending.wake.set()

    def _pass_reading_on(self) -> None:
        """Have ``run`` or another pending task go on reading."""
        if self._reader is not SocketReader.NONE or self.failure is not None:
            return
        if self._run_wakeup is not None:
            self._run_wakeup.set()
        elif self._reply_waiters or self._capacity_waiters:
            next(iter(self._reply_waiters or self._capacity_waiters)).set()
        else:
            # No task reads from here on, so pending acknowledgements are sent now.
            self._transport.core.acknowledge(self._clock())
            self._flush()

    def _wake_all(self) -> None:
        for wakeup in chain(self._reply_waiters, self._capacity_waiters):
            wakeup.set()

    def _admit_next(self) -> None:
        """Wake the oldest request that waits for a stream, if one is free."""
        if self._admission_queue and len(self._exchanges) < self._streams_max:
            wake = next(iter(self._admission_queue)).pending.wake
            if wake is not None:
                wake.set()

    def _handle_event(self, event: QuicEvent) -> None:
        if not isinstance(event, StreamDataReceived | StreamReset):
            return
        exchange = self._exchanges.get(event.stream_id)
        if exchange is None or exchange.pending.outcome is not None:
            return
        if isinstance(event, StreamReset):
            command = describe_command(exchange.pending.command)
            exchange.resolve(ServerError(f"{command}: {self.peer} reset the stream of its reply"))
            return
        self._traffic.bytes_in += len(event.data)
        outcome = exchange.receive(event.data, is_last=event.end_stream, peer=self.peer)
        if outcome is not None:
            self._traffic.frames_in += not isinstance(outcome, IggyError)
            exchange.resolve(outcome)

    async def run(self) -> None:
        """Read for all requests; return when the connection has ended."""
        try:
            while self.failure is None:
                self._run_wakeup = anyio.Event()
                if self._reader is not SocketReader.NONE:
                    await self._run_wakeup.wait()
                elif self._transport.add_reader(self._on_datagrams):
                    await self._run_timers()
                else:
                    await self._read_once()
        finally:
            self._run_wakeup = None
            self._pass_reading_on()

    # The end

    def _release(self, error: IggyError) -> None:
        core = self._transport.core
        for stream_id, exchange in self._exchanges.items():
            exchange.pending.is_sent = is_sent = core.is_flushed(stream_id)
            exchange.resolve(session_ended_error(error, self.state, is_sent=is_sent))
        self._transport.abort()
        self._wake_all()
        if self._run_wakeup is not None:
            self._run_wakeup.set()

    async def aclose(self, timeout: float | None = None) -> None:
        """Refuse new requests, let pending ones finish within ``close_timeout``, and close."""
        deadline = Deadline(self._options.close_timeout if timeout is None else timeout)
        self._advance(SessionEvent.CLOSE)
        self._wake_all()
        self._read_available()
        with anyio.move_on_after(deadline.rest(), shield=True):
            while self.failure is None and self._exchanges:
                await self._read_or_wait(self._reply_waiters)
        if self.failure is None:
            with anyio.move_on_after(deadline.rest(), shield=True):
                await self._say_goodbye()
        self._pass_reading_on()
        self.abort(ClientClosedError())

    async def _say_goodbye(self) -> None:
        """Tell the server that the client closes, where that means more than the end of bytes."""


async def connect_quic(
    endpoint: Endpoint, options: ClientOptions
) -> tuple[QuicTransport, QuicSettings]:
    """Connect to a server within ``connect_timeout``.

    Raises:
        ConnectionFailedError: no server answers at the endpoint, or the handshake failed.
        ConfigurationError: a setting of the connection string or a file is not valid.
    """
    settings = parse_quic_settings(options.transport_settings)
    with anyio.move_on_after(options.connect_timeout):
        return await open_quic(endpoint, options, settings), settings
    raise ConnectionFailedError(
        f"{endpoint} did not answer over UDP within {options.connect_timeout:g} s",
        advice=SILENCE_ADVICE,
    )

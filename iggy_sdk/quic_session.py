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

from iggy_protocol import Limits
from iggy_sdk.engine import clock_of_engine, soon_of_engine, wake_of_engine
from iggy_sdk.errors import (
    ClientClosedError,
    ConnectionFailedError,
    DisconnectedError,
    IggyError,
    ServerError,
    describe_command,
)
from iggy_sdk.quic_exchange import Exchange, Exchanges
from iggy_sdk.quic_traffic import Traffic
from iggy_sdk.session_statistics import SessionStatistics
from iggy_sdk.session_waiter import Waiter, read_outcome, too_late, verdict
from iggy_sdk.transport.quic import TICK_SECONDS, open_quic
from iggy_sdk.transport.quic_failures import SILENCE_ADVICE
from iggy_sdk.transport.quic_settings import quic_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioquic.quic.events import QuicEvent

    from iggy_protocol import Command
    from iggy_sdk.engine import Wake
    from iggy_sdk.options import ClientOptions, Endpoint
    from iggy_sdk.transport.quic import QuicTransport
    from iggy_sdk.transport.quic_settings import QuicSettings

__all__ = ["QuicSession"]

R = TypeVar("R")

KEPT_SECONDS_MIN = 1.0
"""The shortest timeout that ``run`` may track; shorter ones get their own timer."""


class QuicSession:
    """One connection to one server; many tasks may send requests at the same time."""

    def __init__(
        self, transport: QuicTransport, options: ClientOptions, settings: QuicSettings
    ) -> None:
        """Take a connection whose handshake is done; the session closes it."""
        self._transport = transport
        self._options = options
        self._prepared = Exchanges(
            Limits(outstanding_max=1, response_bytes_max=settings.response_bytes_max)
        )
        self._streams_max = min(options.max_outstanding, settings.streams_max)
        self._send_window_bytes = settings.send_window_bytes
        self._exchanges: dict[int, Exchange] = {}
        self._under_way_bytes = 0
        self._traffic = Traffic()
        self._is_closing = False
        self._is_pumped = self._is_gathering = self._is_pushed = False
        self._doom: IggyError | None = None
        self._host_call: anyio.Event | None = None
        self._host_until = math.inf
        self._new_wake = wake_of_engine()
        self._clock = clock_of_engine()
        self._soon = soon_of_engine()
        self._sleepers: dict[Wake, None] = {}
        self._queue: dict[Wake, None] = {}
        self._turns: dict[Exchange, None] = {}
        self.failure: IggyError | None = None
        self.is_ended_by_peer = False
        self.on_end: Callable[[], None] | None = None

    @classmethod
    async def open(cls, endpoint: Endpoint, options: ClientOptions) -> QuicSession:
        """Connect to a server within ``connect_timeout``, without a login.

        Raises:
            ConnectionFailedError: no server answers at the endpoint, or the handshake failed.
            ConfigurationError: a setting of the connection string or a file is not valid.
        """
        settings = quic_settings(options.transport_settings)
        with anyio.move_on_after(options.connect_timeout):
            return cls(await open_quic(endpoint, options, settings), options, settings)
        raise ConnectionFailedError(
            f"{endpoint} did not answer over UDP within {options.connect_timeout:g} s",
            advice=SILENCE_ADVICE,
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
        traffic = self._traffic
        return SessionStatistics(
            connection=traffic.statistics([one.connection for one in self._exchanges.values()]),
            answers=traffic.frames_in,
            timeouts=traffic.timeouts_count,
            abandoned=traffic.abandoned_count,
            waiting=len(self._exchanges),
        )

    # Requests

    async def request(self, command: Command[R], *, timeout: float) -> R:
        """Send a command and wait for the reply; see ``Conversation.request``."""
        return await self.ask(command, seconds=timeout, deadline=anyio.current_time() + timeout)

    async def ask(self, command: Command[R], *, seconds: float, deadline: float) -> R:
        """Do what ``request`` does, for a caller that has computed the deadline already."""
        waiter = Waiter(command, deadline)
        self._look()
        self._settle()
        self._check_open()
        exchange = self._prepared.begin(waiter)
        try:
            if self._is_pushed and seconds >= KEPT_SECONDS_MIN:
                waiter.is_kept = True
                self._note_time(deadline)
                await self._exchange(exchange)
            if waiter.outcome is None and self._clock() < deadline:
                waiter.is_kept = False
                with anyio.CancelScope(deadline=deadline):
                    await self._exchange(exchange)
        finally:
            self._leave(exchange)
        if waiter.outcome is None:
            self._traffic.timeouts_count += 1
            raise too_late(command, is_sent=waiter.is_sent, seconds=seconds, peer=self.peer)
        reply: R = read_outcome(waiter)
        return reply

    async def _exchange(self, exchange: Exchange) -> None:
        """Send a request and wait for the reply, or until its deadline is tracked otherwise."""
        waiter, is_kept = exchange.waiter, exchange.waiter.is_kept
        if exchange.stream_id is None:
            if self._turns or not self._has_room_for(exchange):
                await self._await_turn(exchange)
            if waiter.is_kept is not is_kept:
                return
            self._begin(exchange)
        while waiter.outcome is None and waiter.is_kept is is_kept:
            await self._take_part(self._sleepers, waiter)

    def _check_open(self) -> None:
        if self._is_closing:
            raise ClientClosedError("the client was closed before the request was sent")
        if self.failure is not None:
            raise verdict(self.failure, is_sent=False)

    def _has_room_for(self, exchange: Exchange) -> bool:
        if len(self._exchanges) >= self._streams_max or not self._transport.core.may_open_stream:
            return False
        total = self._under_way_bytes + exchange.size_bytes
        return not self._under_way_bytes or total <= self._send_window_bytes

    async def _await_turn(self, exchange: Exchange) -> None:
        """Wait for a free stream, in order of arrival, so that a busy task cannot starve others."""
        waiter, is_kept = exchange.waiter, exchange.waiter.is_kept
        self._turns.setdefault(exchange)
        while next(iter(self._turns)) is not exchange or not self._has_room_for(exchange):
            await self._take_part(self._queue, waiter)
            self._check_open()
            if waiter.is_kept is not is_kept:
                return
        del self._turns[exchange]

    def _begin(self, exchange: Exchange) -> None:
        """Open a stream for a request, and send what flow control allows."""
        core = self._transport.core
        exchange.stream_id = stream_id = core.get_next_available_stream_id()
        *parts, last = exchange.parts
        for part in parts:
            core.send_stream_data(stream_id, part)  # type: ignore[arg-type]
        core.send_stream_data(stream_id, last, end_stream=True)  # type: ignore[arg-type]
        core.acknowledge(self._clock())
        exchange.parts = ()
        self._exchanges[stream_id] = exchange
        self._under_way_bytes += exchange.size_bytes
        self._traffic.frames_out += 1
        self._traffic.bytes_out += exchange.size_bytes
        if not self._is_gathering:
            self._flush()
        self._call_next()

    def _leave(self, exchange: Exchange) -> None:
        """Forget a request; a stream without a reply is reset."""
        stream_id, waiter = exchange.stream_id, exchange.waiter
        self._turns.pop(exchange, None)
        self._prepared.end(exchange)
        if stream_id is not None:
            del self._exchanges[stream_id]
            self._under_way_bytes -= exchange.size_bytes
            if waiter.outcome is None:
                waiter.is_sent = self._transport.core.has_left(stream_id)
                self._transport.core.give_up(stream_id)
                self._flush()
        if waiter.outcome is None:
            self._traffic.abandoned_count += 1
        if self._is_closing:
            self._wake_all()
        self._call_next()
        self._hand_over()

    def _flush(self) -> None:
        self._send()
        self._settle()

    def _send(self) -> None:
        """Send what is queued. May run outside of any task, so it only notes a failure."""
        if self.failure is None:
            try:
                self._transport.flush(self._clock())
            except OSError as error:
                self._doom = self._lost(error)
            else:
                self._note_time(self._transport.due_at())

    # Reading

    async def _take_part(self, place: dict[Wake, None], waiter: Waiter | None = None) -> None:
        """Read once for all requests, or sleep while another task reads."""
        if not self._is_pumped:
            if self._host_call is None or self._soon is None:
                await self._pump()
                return
            self._host_call.set()
        call = self._new_wake()
        place[call] = None
        if waiter is not None:
            waiter.wake = call
        try:
            await call.wait()
        finally:
            place.pop(call, None)
        self._settle()

    async def _pump(self) -> None:
        """Wait for datagrams and process them."""
        self._is_pumped = True
        try:
            await self._transport.wait()
        except OSError as error:
            self.abort(self._lost(error), by_peer=True)
        finally:
            self._is_pumped = False
        told_count = self._traffic.frames_in
        self._look()
        has_told = self._traffic.frames_in > told_count
        if has_told and len(self._exchanges) > 1 and self.failure is None:
            await self._gather()

    async def _gather(self) -> None:
        """Let tasks with new replies run, and send their next requests together."""
        self._is_pumped = self._is_gathering = True
        try:
            # trio runs tasks that were woken together in random order; two checkpoints let all run.
            await checkpoint()
            await checkpoint()
        finally:
            self._is_pumped = self._is_gathering = False
            self._flush()

    def _look(self) -> None:
        """Process what has arrived, unless another task reads."""
        if self.failure is None and not self._is_pumped:
            self._take_in(self._transport.step)
            self._settle()

    def _take_in(self, take: Callable[[], list[QuicEvent]]) -> None:
        """Process what has arrived. May run outside of any task, so it only notes a failure."""
        try:
            happened = take()
        except OSError as error:
            self._doom = self._lost(error)
            return
        for event in happened:
            self._note(event)
        core = self._transport.core
        if core.verdict is not None:
            reason = core.verdict.reason_phrase
            text = f"{self.peer} has closed the connection" if core.is_ended_by_peer else ""
            text = text or f"the connection to {self.peer} is lost"
            self._doom = DisconnectedError(f"{text}: {reason}" if reason else text)
        else:
            self._call_next()

    def _settle(self) -> None:
        """End the session, if its end was noted; that needs a task."""
        if self._doom is not None:
            self.abort(self._doom, by_peer=True)

    # Called by the event loop

    def _on_datagrams(self) -> None:
        """Process what has arrived. The event loop calls this outside of any task."""
        assert self._soon is not None
        told_count = self._traffic.frames_in
        self._take_in(self._transport.hear)
        self._wake_if_doomed()
        # Tasks with new replies run before the rest, and their next requests are sent together.
        self._is_gathering |= self._traffic.frames_in > told_count and len(self._exchanges) > 1
        self._soon(self._see_to_the_rest)

    def _see_to_the_rest(self) -> None:
        if self._is_gathering:
            self._is_gathering = False
            self._send()
        elif self.failure is None:
            self._note_time(self._transport.due_at())
        self._wake_if_doomed()

    def _wake_if_doomed(self) -> None:
        if self._doom is not None:
            self._transport.unwatch()
            self._wake_all()
            self._note_time(-math.inf)

    def _note_time(self, due_at: float) -> None:
        """Wake ``run`` if it would serve this timer too late."""
        if due_at < self._host_until and self._host_call is not None:
            self._host_until = due_at
            self._host_call.set()

    async def _keep_time(self) -> None:
        """Serve timers, while the event loop calls a function for datagrams."""
        self._is_pumped = self._is_pushed = True
        try:
            while self.failure is None:
                self._take_in(self._transport.step)
                self._settle()
                self._release_kept(now := self._clock())
                self._host_call = anyio.Event()
                deadlines = [one.deadline for one in self._waiters() if one.is_kept]
                self._host_until = min(self._host_until, self._transport.due_at(), *deadlines)
                with anyio.CancelScope(deadline=max(self._host_until, now + TICK_SECONDS)):
                    await self._host_call.wait()
                    # The timer may be obsolete by now and another one due a little later. Waking
                    # at the same time once more costs less than being woken for each change.
                    continue
                self._host_until = math.inf
        finally:
            self._transport.unwatch()
            self._is_pumped = self._is_pushed = False
            self._host_until = math.inf
            self._release_kept(math.inf)

    def _waiters(self) -> Iterator[Waiter]:
        for exchange in chain(self._exchanges.values(), self._turns):
            yield exchange.waiter

    def _release_kept(self, now: float) -> None:
        """Hand expired deadlines back to the tasks of their requests."""
        for waiter in self._waiters():
            if waiter.is_kept and waiter.deadline <= now:
                waiter.is_kept = False
                if waiter.wake is not None:
                    waiter.wake.set()

    def _hand_over(self) -> None:
        """Have ``run`` or another pending task go on reading."""
        if self._is_pumped or self.failure is not None:
            return
        if self._host_call is not None:
            self._host_call.set()
        elif self._sleepers or self._queue:
            next(iter(self._sleepers or self._queue)).set()
        else:
            # No task reads from here on, so pending acknowledgements are sent now.
            self._transport.core.acknowledge(self._clock())
            self._flush()

    def _wake_all(self) -> None:
        for call in chain(self._sleepers, self._queue):
            call.set()

    def _call_next(self) -> None:
        """Wake the oldest request that waits for a stream, if one is free."""
        if self._turns and len(self._exchanges) < self._streams_max:
            wake = next(iter(self._turns)).waiter.wake
            if wake is not None:
                wake.set()

    def _note(self, event: QuicEvent) -> None:
        if not isinstance(event, StreamDataReceived | StreamReset):
            return
        exchange = self._exchanges.get(event.stream_id)
        if exchange is None or exchange.waiter.outcome is not None:
            return
        if isinstance(event, StreamReset):
            command = describe_command(exchange.waiter.command)
            exchange.tell(ServerError(f"{command}: {self.peer} reset the stream of its reply"))
            return
        self._traffic.bytes_in += len(event.data)
        outcome = exchange.hear(event.data, is_last=event.end_stream, peer=self.peer)
        if outcome is not None:
            self._traffic.frames_in += not isinstance(outcome, IggyError)
            exchange.tell(outcome)

    async def run(self) -> None:
        """Read for all requests; return when the connection has ended."""
        try:
            while self.failure is None:
                self._host_call = anyio.Event()
                if self._is_pumped:
                    await self._host_call.wait()
                elif self._transport.watch(self._on_datagrams):
                    await self._keep_time()
                else:
                    await self._pump()
        finally:
            self._host_call = None
            self._hand_over()

    # The end

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
        core = self._transport.core
        for stream_id, exchange in self._exchanges.items():
            exchange.waiter.is_sent = core.has_left(stream_id)
            exchange.tell(verdict(error, is_sent=exchange.waiter.is_sent))
        self._transport.abort()
        self._wake_all()
        if self._host_call is not None:
            self._host_call.set()
        if self.on_end is not None:
            self.on_end()

    async def aclose(self) -> None:
        """Refuse new requests, let pending ones finish within ``close_timeout``, and close."""
        self._is_closing = True
        self._wake_all()
        self._look()
        with anyio.move_on_after(self._options.close_timeout, shield=True):
            while self.failure is None and self._exchanges:
                await self._take_part(self._sleepers)
        self._hand_over()
        self.abort(ClientClosedError())

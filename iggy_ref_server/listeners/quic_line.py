"""One QUIC connection and the task that owns it.

    listener    ── datagrams ──►  inbox ─┐
    scheduler   ── replies ────►  ready ─┤   one step: receive, serve, write, send
    clock       ── timers ─────►         ┘

Only steps touch the state of the connection; other tasks queue their input here and set the event.
A step never waits, so all queued input is processed together and leaves in as few datagrams as
possible.

Memory is bounded: an unprocessed stream holds at most one window, long requests share
``request_bytes_max`` in order of arrival, and no request is processed while more than
``reply_bytes_max`` of replies are unsent. A stalled request or reply ends the connection.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio
from aioquic.quic import events
from aioquic.quic.packet import QuicErrorCode

from iggy_ref_server.data_plane.budget import SMALL_BYTES_MAX
from iggy_ref_server.listeners.quic_exchange import Exchange
from iggy_ref_server.listeners.quic_long import LongRequests
from iggy_ref_server.listeners.quic_replies import Replies
from iggy_ref_server.listeners.quic_stalls import StallWatch

if TYPE_CHECKING:
    from iggy_ref_server.data_plane.budget import BufferAccount, BufferBudget
    from iggy_ref_server.data_plane.plane import DataPlane
    from iggy_ref_server.listeners.quic_core import ServerCore
    from iggy_ref_server.listeners.quic_settings import LineLimits
    from iggy_ref_server.listeners.quic_socket import Datagram
    from iggy_ref_server.session import Session

__all__ = ["Line", "LineHost"]

LOGGER = logging.getLogger(__name__)

# The limit of queued datagrams; flow control keeps a regular client below it.
INBOX_DATAGRAMS_MAX: Final = 512
# The limit of requests of one client that tasks handle at the same time: the size of their replies
# is not known yet.
BUSY_MAX: Final = 64
# The limit of requests per step: about a millisecond of small ones. The next step continues.
REQUESTS_PER_STEP_MAX: Final = 256
FOREVER: Final = float("inf")
# Timers are sums of floats: a timer that has fired may still be slightly ahead of the clock.
TICK_S: Final = 1e-6
# The application error code; Apache Iggy uses only 0.
NO_ERROR: Final = 0


class LineHost(Protocol):
    """What a connection needs of its listener."""

    @property
    def plane(self) -> DataPlane:
        """Handles requests."""

    @property
    def budget(self) -> BufferBudget:
        """The memory budget of all connections."""

    @property
    def limits(self) -> LineLimits:
        """The limits of each connection."""

    def send(self, datagrams: list[Datagram]) -> None:
        """Send datagrams."""

    def greet(self, line: Line) -> Session | None:
        """Admit a client after its handshake; None if a limit is reached."""

    def part(self, session: Session) -> None:
        """Report a session that has ended."""

    def route(self, connection_id: bytes, line: Line | None) -> None:
        """Set the connection of a connection id, or remove the id."""


class Line:
    """A connection, from its first datagram to its last.

    Args:
        core: the QUIC state machine.
        host: the listener.
        now: the time.

    Attributes:
        session: the client, once the handshake is done.
        is_ended: whether the connection is over.
        connection_ids: ids that were issued to the client.
    """

    def __init__(self, core: ServerCore, host: LineHost, now: float) -> None:
        self.session: Session | None = None
        self.is_ended = False
        self.connection_ids: set[bytes] = set()
        self._core = core
        self._host = host
        self._limits = limits = host.limits
        self._inbox: list[Datagram] = []
        self._bell = trio.Event()
        self._until = -FOREVER
        self._is_stepping = False
        self._failure: Exception | None = None
        self._exchanges: dict[int, Exchange] = {}
        # Streams whose reply is written although the client has not finished its side.
        self._spent: set[int] = set()
        self._unserved: deque[Exchange] = deque()
        self._ready: dict[Exchange, None] = {}
        self._replies = Replies(core, limits.send_window_bytes, self._ring_for)
        self._stalls = StallWatch(core, limits.stalled_s, now)
        self._long = LongRequests(core, limits.window_bytes, limits.request_bytes_max)
        self._begun_at = self._active_at = self._asked_at = now
        self._is_leaving = self._is_wide = False
        self._pings_count = 0
        self._address: Any = None
        self._account: BufferAccount | None = None

    @property
    def peer(self) -> Any:
        """The current address of the client."""
        return self._core.get_peer_address()

    @property
    def verdict(self) -> str:
        """Why the connection ended."""
        verdict = self._core.verdict
        return "" if verdict is None else verdict.reason_phrase

    # Called by other tasks

    def hear(self, datagram: Datagram) -> None:
        """Queue a datagram; above the limit it is dropped, as a network would."""
        if len(self._inbox) < INBOX_DATAGRAMS_MAX:
            self._inbox.append(datagram)

    def attend(self) -> None:
        """Process queued datagrams in the listener's task; wake the own task only if needed.

        Waking a second task would cost more than the reply to a small request.
        """
        if self._until == -FOREVER or self.is_ended:
            # The own task has not started, or is awake already.
            return
        try:
            self._step(trio.current_time(), is_timely=False)
        except Exception as error:
            self._failure = error
        if (
            self._failure is not None
            or self.is_ended
            or self._replies.has_unread
            or self._deadline() < self._until
        ):
            self._bell.set()

    def leave(self) -> None:
        """Accept no more requests, send the pending replies, and close."""
        self._is_leaving = True
        self._bell.set()

    def close_now(self) -> None:
        """Send CONNECTION_CLOSE now and drop unsent replies."""
        self._is_leaving = True
        if self._core.verdict is None:
            self._close(NO_ERROR, "the server has closed the connection")
        self._bell.set()

    def give_up(self, reason: str) -> None:
        """Close with an error at once."""
        self._core.close(QuicErrorCode.CONNECTION_REFUSED, reason_phrase=reason)
        self._bell.set()

    def _wake(self) -> None:
        self._bell.set()

    def _note_held(self) -> None:
        """Say what is held for this client, and let in what there is room for."""
        account = self._account
        if account is None:
            return
        held_bytes = self._core.buffered_bytes
        for exchange in self._exchanges.values():
            held_bytes += exchange.link.held_bytes + len(exchange.loaded)
        account.hold(held_bytes, self._long.wanted_bytes)
        self._long.let_in(account)
        if self._host.budget.is_over:
            self._host.budget.relieve()

    @property
    def _is_paused(self) -> bool:
        """Whether nothing shall be read, because this client holds much and room is scarce.

        Its first large request that waits for room is no reason: small ones go on meanwhile.
        """
        account = self._account
        if account is None or not account.is_held_back:
            return False
        return account.size_bytes - self._long.waiting_bytes > SMALL_BYTES_MAX

    def _ring_for(self, exchange: Exchange) -> None:
        """Mark a stream that needs processing."""
        self._ready[exchange] = None
        if not self._is_stepping:
            self._bell.set()

    # The task of the connection

    async def run(self) -> None:
        """Serve the client to the end of the connection."""
        try:
            async with trio.open_nursery() as nursery:
                while not self.is_ended:
                    if self._failure is not None:
                        raise self._failure
                    self._bell = trio.Event()
                    now = trio.current_time()
                    self._step(now)
                    self._replies.load(nursery)
                    if not self.is_ended:
                        self._until = max(self._deadline(), now + TICK_S)
                        with trio.CancelScope(deadline=self._until):
                            await self._bell.wait()
                nursery.cancel_scope.cancel()
        finally:
            self.is_ended = True
            self._depart()

    def _deadline(self) -> float:
        """Return when the next timer fires."""
        limits, core_due_at = self._limits, self._core.get_timer() or FOREVER
        if self._core.verdict is not None:
            return core_due_at
        if self.session is None:
            return min(core_due_at, self._begun_at + limits.handshake_s)
        times = [core_due_at, self._stalls.due_at]
        if limits.keep_alive_s:
            times.append(self._active_at + limits.keep_alive_s)
        if limits.idle_s and not self._exchanges:
            times.append(self._asked_at + limits.idle_s)
        return min(times)

    def _step(self, now: float, *, is_timely: bool = True) -> None:
        """Process all queued input; ``is_timely`` includes expired timers."""
        core = self._core
        datagrams, self._inbox = self._inbox, []
        self._hear(datagrams, now, is_timely=is_timely)
        if self.is_ended:
            return
        self._is_stepping = True
        self._serve()
        has_written = self._write()
        self._is_stepping = False
        self._note_held()
        if self._ready or (self._unserved and has_written):
            # They may fit into the limits now, and nothing else would wake this task.
            self._bell.set()
        self._look_at_clock(now, has_heard=bool(datagrams))
        core.note_heard(len(datagrams), now, has_written=has_written)
        if not self._is_paused:
            core.slide_window()
        sent = core.datagrams_to_send(now)
        if sent or datagrams:
            self._active_at = now
            self._host.send(sent)
        if core.verdict is not None:
            self._depart()
            # When the server stops, nothing can repeat the close for the client: end now.
            self.is_ended = self._is_leaving

    def _hear(self, datagrams: list[Datagram], now: float, *, is_timely: bool) -> None:
        """Process datagrams, expired timers and the events of the core."""
        core = self._core
        for data, address in datagrams:
            core.receive_datagram(data, address, now)
        if not core.has_begun:
            # The datagram was no valid Initial packet, so no state is kept for it.
            self.is_ended = True
            return
        if is_timely and (due_at := core.get_timer()) is not None and due_at <= now:
            core.handle_timer(now)
        while (event := core.next_event()) is not None:
            self._note(event, now)
        if core.verdict is not None:
            self._depart()

    def _look_at_clock(self, now: float, *, has_heard: bool) -> None:
        limits, core = self._limits, self._core
        if core.verdict is not None:
            return
        if self.session is None:
            if self._is_leaving or now >= self._begun_at + limits.handshake_s:
                self._close(QuicErrorCode.CONNECTION_REFUSED, "the handshake timed out")
            return
        if has_heard and self.peer != self._address:
            self._address = self.peer
            core.fit(limits.datagram_bytes_to(self._address))
        if self._is_leaving and not self._exchanges and not core.undelivered[0]:
            self._close(NO_ERROR, "the server has closed the connection")
        elif self._stalls.is_stalled(self._exchanges.values(), now):
            self._close(NO_ERROR, "a request or a reply has stalled")
        elif limits.idle_s and not self._exchanges and now >= self._asked_at + limits.idle_s:
            self._close(NO_ERROR, "the client was idle for too long")
        elif limits.keep_alive_s and now >= self._active_at + limits.keep_alive_s:
            self._active_at = now
            self._pings_count += 1
            core.send_ping(self._pings_count)

    def _close(self, code: int, reason: str) -> None:
        self._core.close(code, reason_phrase=reason)

    def _depart(self) -> None:
        """Release everything; the session ends when its last request is done."""
        session, self.session = self.session, None
        if self._account is not None:
            self._account.close()
            self._account = None
        busy = [one.link for one in self._exchanges.values() if one.link.is_busy]
        for exchange in self._exchanges.values():
            exchange.link.is_hearing = False
            exchange.link.outbox.clear()
        self._exchanges.clear()
        self._unserved.clear()
        self._ready.clear()
        if session is None:
            return
        part, left = self._host.part, len(busy)

        def done() -> None:
            nonlocal left
            left -= 1
            if not left:
                part(session)

        for link in busy:
            link.when_idle = done
        if not busy:
            part(session)

    # Events of the core

    def _note(self, event: events.QuicEvent, now: float) -> None:
        if isinstance(event, events.StreamDataReceived):
            self._note_data(event, now)
        elif isinstance(event, events.StreamReset):
            self._note_reset(event.stream_id)
        elif isinstance(event, events.StopSendingReceived):
            self._note_unwanted(event.stream_id)
        elif isinstance(event, events.HandshakeCompleted):
            self._greet()
        elif isinstance(event, events.ConnectionIdIssued):
            self.connection_ids.add(event.connection_id)
            self._host.route(event.connection_id, self)
        elif isinstance(event, events.ConnectionIdRetired):
            self.connection_ids.discard(event.connection_id)
            self._host.route(event.connection_id, None)
        elif isinstance(event, events.ConnectionTerminated):
            self.is_ended = True

    def _greet(self) -> None:
        self._address = self.peer
        self._core.fit(self._limits.datagram_bytes_to(self._address))
        self.session = self._host.greet(self)
        if self.session is None:
            self._close(QuicErrorCode.CONNECTION_REFUSED, "a connection limit is reached")
            return
        reason = "the buffers of this client exceed the memory budget"
        self._account = self._host.budget.open(
            self.session.address, partial(self.give_up, reason), self._wake
        )

    def _note_data(self, event: events.StreamDataReceived, now: float) -> None:
        stream_id = event.stream_id
        if stream_id in self._spent:
            if event.end_stream:
                self._spent.discard(stream_id)
            return
        exchange = self._exchanges.get(stream_id)
        if exchange is None:
            if self.session is None or self._is_leaving:
                # The connection is closing; the CONNECTION_CLOSE that follows tells the client.
                return
            exchange = Exchange(stream_id, self.session, self._limits.request, self._ring_for, now)
            self._exchanges[stream_id] = exchange
        self._asked_at = now
        if event.data:
            self._stalls.heard_bytes += len(event.data)
            exchange.feed(event.data, now)
            self._long.begin(exchange)
        if event.end_stream:
            exchange.finish()
        if not exchange.was_taken:
            self._unserved.append(exchange)
        self._ready[exchange] = None

    def _note_reset(self, stream_id: int) -> None:
        """Cancel a request whose stream the client has reset."""
        self._spent.discard(stream_id)
        exchange = self._exchanges.get(stream_id)
        if exchange is None:
            return
        exchange.is_sent_off = True
        if not exchange.is_heard:
            exchange.is_heard = exchange.was_taken = exchange.is_unwanted = True
        self._ready[exchange] = None

    def _note_unwanted(self, stream_id: int) -> None:
        """Cancel a reply that the client does not want (STOP_SENDING)."""
        exchange = self._exchanges.get(stream_id)
        if exchange is not None:
            exchange.is_unwanted = True
            self._ready[exchange] = None

    # Requests in, replies out

    def _serve(self) -> None:
        """Have the scheduler handle new requests, unless too many replies are unsent."""
        plane, owed_bytes = self._host.plane, self._replies.owed_bytes
        busy_count = 0
        if self._is_paused:
            plane.finish()
            return
        if self._unserved:
            busy_count = sum(one.link.is_busy for one in self._exchanges.values())
        for _ in range(REQUESTS_PER_STEP_MAX):
            has_room = owed_bytes < self._limits.reply_bytes_max and busy_count < BUSY_MAX
            if not self._unserved or not has_room:
                break
            exchange = self._unserved.popleft()
            if exchange.was_taken:
                continue
            plane.serve(exchange.link)
            exchange.note_served()
            owed_bytes += exchange.link.outbox.size_bytes
            busy_count += exchange.link.is_busy
            if exchange.is_heard:
                self._long.end(exchange)
        else:
            self._bell.set()
        plane.finish()

    def _write(self) -> bool:
        """Write known replies to their streams; return whether anything was written."""
        ready, self._ready = self._ready, {}
        has_written = False
        for exchange in ready:
            if exchange.stream_id in self._exchanges:
                exchange.link.settle()
                has_written |= self._replies.offer(exchange)
        has_written |= self._replies.go_on()
        for exchange in self._replies.take_finished():
            self._forget(exchange)
        return has_written

    def _forget(self, exchange: Exchange) -> None:
        """Finish a stream; STOP_SENDING tells the client that further data is ignored."""
        stream_id = exchange.stream_id
        del self._exchanges[stream_id]
        self._long.end(exchange)
        if not exchange.is_sent_off:
            self._spent.add(stream_id)
            self._core.stop_stream(stream_id, NO_ERROR)
        if self.session is not None and self.session.user_id is not None:
            self._widen()

    def _widen(self) -> None:
        """Raise the limit of open streams once the client has logged in."""
        limits = self._limits
        if not self._is_wide:
            self._core.allow_streams(limits.streams_max - limits.stranger_streams_max)
        self._is_wide = True

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

from iggy_ref_server.client_limits import SMALL_BYTES_MAX, BufferAccount, BufferBudget
from iggy_ref_server.net.detached import DetachedRequests
from iggy_ref_server.net.quic.limits import QuicConnectionLimits, StallDetector
from iggy_ref_server.net.quic.stream import LongRequestQueue, QuicRequestStream, ReplyWriter

if TYPE_CHECKING:
    from iggy_protocol.quic import QuicServerCore
    from iggy_ref_server.net.quic.udp_socket import Datagram
    from iggy_ref_server.net.scheduler import RequestScheduler
    from iggy_ref_server.session import ClientSession


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


class QuicConnectionHost(Protocol):
    """What a connection needs of its listener."""

    @property
    def scheduler(self) -> RequestScheduler:
        """Handles requests."""

    @property
    def budget(self) -> BufferBudget:
        """The memory budget of all connections."""

    @property
    def limits(self) -> QuicConnectionLimits:
        """The limits of each connection."""

    def send(self, datagrams: list[Datagram]) -> None:
        """Send datagrams."""

    def on_handshake(self, conn: QuicServerConnection) -> ClientSession | None:
        """Admit a client after its handshake; None if a limit is reached."""

    def on_session_end(self, session: ClientSession) -> None:
        """Report a session that has ended."""

    def route(self, connection_id: bytes, conn: QuicServerConnection | None) -> None:
        """Set the connection of a connection id, or remove the id."""


class QuicServerConnection:
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

    def __init__(self, core: QuicServerCore, host: QuicConnectionHost, now: float) -> None:
        self.session: ClientSession | None = None
        self.is_ended = False
        self.connection_ids: set[bytes] = set()
        self._core = core
        self._host = host
        self._limits = limits = host.limits
        self._inbox: list[Datagram] = []
        self._wakeup = trio.Event()
        self._sleeps_until = -FOREVER
        self._is_stepping = False
        self._failure: Exception | None = None
        self._streams: dict[int, QuicRequestStream] = {}
        # Streams whose reply is written although the client has not finished its side.
        self._finished_streams: set[int] = set()
        self._unprocessed: deque[QuicRequestStream] = deque()
        self._detached = DetachedRequests()
        self._ready: dict[QuicRequestStream, None] = {}
        self._replies = ReplyWriter(core, limits.send_window_bytes, self._mark_ready)
        self._stalls = StallDetector(core, limits.stall_timeout_s, now)
        self._long_requests = LongRequestQueue(core, limits.window_bytes, limits.request_bytes_max)
        self._started_at = self._last_traffic_at = self._last_request_at = now
        self._is_closing = self._has_full_limit = False
        self._pings_count = 0
        self._address: Any = None
        self._account: BufferAccount | None = None

    @property
    def peer(self) -> Any:
        """The current address of the client."""
        return self._core.get_peer_address()

    @property
    def termination(self) -> str:
        """Why the connection ended."""
        termination = self._core.termination
        return "" if termination is None else termination.reason_phrase

    # Called by other tasks

    def receive(self, datagram: Datagram) -> None:
        """Queue a datagram; above the limit it is dropped, as a network would."""
        if len(self._inbox) < INBOX_DATAGRAMS_MAX:
            self._inbox.append(datagram)

    def step_inline(self) -> None:
        """Process queued datagrams in the listener's task; wake the own task only if needed.

        Waking a second task would cost more than the reply to a small request.
        """
        if self._sleeps_until == -FOREVER or self.is_ended:
            # The own task has not started, or is awake already.
            return
        try:
            self._step(trio.current_time(), handles_timers=False)
        except Exception as error:
            self._failure = error
        if (
            self._failure is not None
            or self.is_ended
            or self._replies.has_pending_reads
            or self._deadline() < self._sleeps_until
        ):
            self._wakeup.set()

    def close_gracefully(self) -> None:
        """Accept no more requests, send the pending replies, and close."""
        self._is_closing = True
        self._wakeup.set()

    def close_now(self) -> None:
        """Send CONNECTION_CLOSE now and drop unsent replies."""
        self._is_closing = True
        if self._core.termination is None:
            self._close(NO_ERROR, "the server has closed the connection")
        self._wakeup.set()

    def abort(self, reason: str) -> None:
        """Close with an error at once."""
        self._core.close(QuicErrorCode.CONNECTION_REFUSED, reason_phrase=reason)
        self._wakeup.set()

    def _wake(self) -> None:
        self._wakeup.set()

    def _update_account(self) -> None:
        """Say what is held for this client, and let in what there is room for."""
        account = self._account
        if account is None:
            return
        held_bytes = self._core.buffered_bytes
        for stream in self._streams.values():
            held_bytes += stream.pipeline.held_bytes + len(stream.loaded)
        account.hold(held_bytes, self._long_requests.wanted_bytes)
        self._long_requests.let_in(account)
        if self._host.budget.is_over:
            self._host.budget.evict_over_limit()

    @property
    def _is_paused(self) -> bool:
        """Whether nothing shall be read, because this client holds much and room is scarce.

        Its first large request that waits for room is no reason: small ones go on meanwhile.
        """
        account = self._account
        if account is None or not account.is_paused:
            return False
        return account.size_bytes - self._long_requests.waiting_bytes > SMALL_BYTES_MAX

    def _mark_ready(self, stream: QuicRequestStream) -> None:
        """Mark a stream that needs processing."""
        self._ready[stream] = None
        if not self._is_stepping:
            self._wakeup.set()

    # The task of the connection

    async def run(self) -> None:
        """Serve the client to the end of the connection."""
        try:
            async with trio.open_nursery() as nursery:
                while not self.is_ended:
                    if self._failure is not None:
                        raise self._failure
                    self._wakeup = trio.Event()
                    now = trio.current_time()
                    self._step(now)
                    self._replies.load(nursery)
                    if not self.is_ended:
                        self._sleeps_until = max(self._deadline(), now + TICK_S)
                        with trio.CancelScope(deadline=self._sleeps_until):
                            await self._wakeup.wait()
                nursery.cancel_scope.cancel()
        finally:
            self.is_ended = True
            self._release()

    def _deadline(self) -> float:
        """Return when the next timer fires."""
        limits, core_due_at = self._limits, self._core.get_timer() or FOREVER
        if self._core.termination is not None:
            return core_due_at
        if self.session is None:
            return min(core_due_at, self._started_at + limits.handshake_timeout_s)
        times = [core_due_at, self._stalls.due_at]
        if limits.keep_alive_s:
            times.append(self._last_traffic_at + limits.keep_alive_s)
        if limits.idle_timeout_s and not self._streams:
            times.append(self._last_request_at + limits.idle_timeout_s)
        return min(times)

    def _step(self, now: float, *, handles_timers: bool = True) -> None:
        """Process all queued input; ``handles_timers`` includes expired timers."""
        core = self._core
        datagrams, self._inbox = self._inbox, []
        self._process_datagrams(datagrams, now, handles_timers=handles_timers)
        if self.is_ended:
            return
        self._is_stepping = True
        self._serve()
        has_written = self._write()
        self._is_stepping = False
        self._update_account()
        if self._ready or (self._unprocessed and has_written):
            # They may fit into the limits now, and nothing else would wake this task.
            self._wakeup.set()
        self._check_timeouts(now, has_heard=bool(datagrams))
        core.schedule_acks(len(datagrams), now, has_written=has_written)
        if not self._is_paused:
            core.slide_window()
        sent = core.datagrams_to_send(now)
        if sent or datagrams:
            self._last_traffic_at = now
            self._host.send(sent)
        if core.termination is not None:
            self._release()
            # When the server stops, nothing can repeat the close for the client: end now.
            self.is_ended = self._is_closing

    def _process_datagrams(
        self, datagrams: list[Datagram], now: float, *, handles_timers: bool
    ) -> None:
        """Process datagrams, expired timers and the events of the core."""
        core = self._core
        for data, address in datagrams:
            core.receive_datagram(data, address, now)
        if not core.has_decrypted:
            # The datagram was no valid Initial packet, so no state is kept for it.
            self.is_ended = True
            return
        if handles_timers and (due_at := core.get_timer()) is not None and due_at <= now:
            core.handle_timer(now)
        while (event := core.next_event()) is not None:
            self._on_event(event, now)
        if core.termination is not None:
            self._release()

    def _check_timeouts(self, now: float, *, has_heard: bool) -> None:
        limits, core = self._limits, self._core
        if core.termination is not None:
            return
        if self.session is None:
            if self._is_closing or now >= self._started_at + limits.handshake_timeout_s:
                self._close(QuicErrorCode.CONNECTION_REFUSED, "the handshake timed out")
            return
        if has_heard and self.peer != self._address:
            self._address = self.peer
            core.set_datagram_size(limits.datagram_bytes_to(self._address))
        if self._is_closing and not self._streams and not core.undelivered[0]:
            self._close(NO_ERROR, "the server has closed the connection")
        elif self._stalls.is_stalled(self._streams.values(), now):
            self._close(NO_ERROR, "a request or a reply has stalled")
        elif (
            limits.idle_timeout_s
            and not self._streams
            and now >= self._last_request_at + limits.idle_timeout_s
        ):
            self._close(NO_ERROR, "the client was idle for too long")
        elif limits.keep_alive_s and now >= self._last_traffic_at + limits.keep_alive_s:
            self._last_traffic_at = now
            self._pings_count += 1
            core.send_ping(self._pings_count)

    def _close(self, code: int, reason: str) -> None:
        self._core.close(code, reason_phrase=reason)

    def _release(self) -> None:
        """Release everything; the session ends when its last request is done."""
        session, self.session = self.session, None
        if self._account is not None:
            self._account.close()
            self._account = None
        pipelines = [stream.pipeline for stream in self._streams.values()]
        self._streams.clear()
        self._unprocessed.clear()
        self._ready.clear()
        end_session, left = self._host.on_session_end, len(pipelines) + 1

        def dropped() -> None:
            nonlocal left
            left -= 1
            if not left and session is not None:
                end_session(session)

        for pipeline in pipelines:
            pipeline.drop(dropped)
        dropped()

    # Events of the core

    def _on_event(self, event: events.QuicEvent, now: float) -> None:
        if isinstance(event, events.StreamDataReceived):
            self._on_data(event, now)
        elif isinstance(event, events.StreamReset):
            self._on_reset(event.stream_id)
        elif isinstance(event, events.StopSendingReceived):
            self._on_stop_sending(event.stream_id)
        elif isinstance(event, events.HandshakeCompleted):
            self._on_handshake()
        elif isinstance(event, events.ConnectionIdIssued):
            self.connection_ids.add(event.connection_id)
            self._host.route(event.connection_id, self)
        elif isinstance(event, events.ConnectionIdRetired):
            self.connection_ids.discard(event.connection_id)
            self._host.route(event.connection_id, None)
        elif isinstance(event, events.ConnectionTerminated):
            self.is_ended = True

    def _on_handshake(self) -> None:
        self._address = self.peer
        self._core.set_datagram_size(self._limits.datagram_bytes_to(self._address))
        self.session = self._host.on_handshake(self)
        if self.session is None:
            self._close(QuicErrorCode.CONNECTION_REFUSED, "a connection limit is reached")
            return
        reason = "the buffers of this client exceed the memory budget"
        self._account = self._host.budget.open(
            self.session.address, partial(self.abort, reason), self._wake
        )

    def _on_data(self, event: events.StreamDataReceived, now: float) -> None:
        stream_id = event.stream_id
        if stream_id in self._finished_streams:
            if event.end_stream:
                self._finished_streams.discard(stream_id)
            return
        stream = self._streams.get(stream_id)
        if stream is None:
            if self.session is None or self._is_closing:
                # The connection is closing; the CONNECTION_CLOSE that follows tells the client.
                return
            stream = QuicRequestStream(
                stream_id,
                self.session,
                self._limits.request,
                self._detached,
                self._mark_ready,
                now,
            )
            self._streams[stream_id] = stream
        self._last_request_at = now
        if event.data:
            self._stalls.received_bytes += len(event.data)
            stream.feed(event.data, now)
            self._long_requests.begin(stream)
        if event.end_stream:
            stream.finish()
        if not stream.is_dispatched:
            self._unprocessed.append(stream)
        self._ready[stream] = None

    def _on_reset(self, stream_id: int) -> None:
        """Cancel a request whose stream the client has reset."""
        self._finished_streams.discard(stream_id)
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        stream.is_input_finished = True
        if not stream.is_complete:
            stream.is_complete = stream.is_dispatched = stream.is_cancelled = True
        self._ready[stream] = None

    def _on_stop_sending(self, stream_id: int) -> None:
        """Cancel a reply that the client does not want (STOP_SENDING)."""
        stream = self._streams.get(stream_id)
        if stream is not None:
            stream.is_cancelled = True
            self._ready[stream] = None

    # Requests in, replies out

    def _serve(self) -> None:
        """Have the scheduler handle new requests, unless too many replies are unsent."""
        scheduler, unsent_bytes = self._host.scheduler, self._replies.unsent_bytes
        busy_count = 0
        if self._is_paused:
            scheduler.flush()
            return
        if self._unprocessed:
            busy_count = sum(one.pipeline.is_busy for one in self._streams.values())
        for _ in range(REQUESTS_PER_STEP_MAX):
            has_room = unsent_bytes < self._limits.reply_bytes_max and busy_count < BUSY_MAX
            if not self._unprocessed or not has_room:
                break
            stream = self._unprocessed.popleft()
            if stream.is_dispatched:
                continue
            scheduler.serve(stream.pipeline)
            stream.note_served()
            unsent_bytes += stream.pipeline.output_buffer.size_bytes
            busy_count += stream.pipeline.is_busy
            if stream.is_complete:
                self._long_requests.end(stream)
        else:
            self._wakeup.set()
        scheduler.flush()

    def _write(self) -> bool:
        """Write known replies to their streams; return whether anything was written."""
        ready, self._ready = self._ready, {}
        has_written = False
        for stream in ready:
            if stream.stream_id in self._streams:
                stream.pipeline.encode_ready()
                has_written |= self._replies.write_short(stream)
        has_written |= self._replies.write_long()
        for stream in self._replies.take_finished():
            self._finish_stream(stream)
        return has_written

    def _finish_stream(self, stream: QuicRequestStream) -> None:
        """Finish a stream; STOP_SENDING tells the client that further data is ignored."""
        stream_id = stream.stream_id
        del self._streams[stream_id]
        self._long_requests.end(stream)
        if not stream.is_input_finished:
            self._finished_streams.add(stream_id)
            self._core.stop_stream(stream_id, NO_ERROR)
        if self.session is not None and self.session.user_id is not None:
            self._raise_stream_limit()

    def _raise_stream_limit(self) -> None:
        """Raise the limit of open streams once the client has logged in."""
        limits = self._limits
        if not self._has_full_limit:
            self._core.allow_streams(limits.streams_max - limits.unauthenticated_streams_max)
        self._has_full_limit = True

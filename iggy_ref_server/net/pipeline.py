"""The request pipeline: requests of one client in order, and their replies in order.

A TCP or WebSocket connection has one pipeline; a QUIC connection has one per stream. It holds the
protocol's state machine, the session, the reply queue and the output buffer, and the state of the
connection. One party works on a pipeline at a time: while a task handles one of its requests,
nothing more is read.

The first bytes of a client tell its framing. Until then the state machine is one that only finds
that out; limits, deadlines and the close are the same in this phase.
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import trio

from iggy_protocol import (
    DetectingConnection,
    Limits,
    ServerConnection,
    SessionBinding,
    VsrServerConnection,
)
from iggy_ref_server.client_limits import SMALL_BYTES_MAX, BufferAccount
from iggy_ref_server.dispatch.replies import CommandReply, OutputBuffer, ReplyQueue
from iggy_ref_server.net.connection_state import ConnectionEvent, ConnectionState, next_state
from iggy_ref_server.net.detached import DetachedRequest, DetachedRequests

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iggy_ref_server.completion import Completion
    from iggy_ref_server.session import ClientSession


# Sends of one client that wait for their commit. The send that exceeds the mark is still accepted.
UNCOMMITTED_BYTES_MAX = 32 << 20
# Smaller amounts are not counted: a client that sends small messages one by one would pay for two
# account updates per message. All 8,192 connections of a shard hold at most 32 MiB uncounted.
COUNTED_BYTES_MIN = 4 << 10

# As globals: the members of an enum are found by a slower lookup, and requests read these.
READING: Final = ConnectionState.READING
SERVING: Final = ConnectionState.SERVING
BUSY_STATES: Final = frozenset(
    {
        ConnectionState.HANDLING,
        ConnectionState.MIGRATING_HANDLING,
        ConnectionState.CLOSING_HANDLING,
        ConnectionState.ABANDONED,
    }
)
MIGRATING_STATES: Final = frozenset({ConnectionState.MIGRATING, ConnectionState.MIGRATING_HANDLING})
CLOSING_STATES: Final = frozenset({ConnectionState.CLOSING, ConnectionState.CLOSING_HANDLING})
OPEN_STATES: Final = frozenset({READING, SERVING, ConnectionState.HANDLING}) | MIGRATING_STATES


AnyServerConnection: TypeAlias = DetectingConnection | ServerConnection | VsrServerConnection


def _do_nothing() -> None:
    """Abort a pipeline that has no owner."""


class PipelineOwner(Protocol):
    """The server of a pipeline, which moves its bytes."""

    def wake(self, pipeline: RequestPipeline) -> None:
        """Schedule a pipeline that has output, can read again, or must be closed."""


class RequestPipeline:
    """Requests and replies of one client, from the first byte to the close.

    Attributes:
        state: where in its life the connection is; only ``advance`` changes it.
        connection: the protocol's state machine.
        session: the client.
        binding: what of the session the connection was told.
        output_buffer: encoded replies that are not sent.
        replies: the queue of pending replies.
        detached: the requests of the client that are answered out of order.
        backlogged_append: a send to a backlogged partition; nothing is read until its commit.
        closing_status: the status that is sent before the close, or 0.
        abort: closes at once and drops unsent replies.
        account: the buffer account; None where the owner keeps one for several pipelines.
    """

    __slots__ = (
        "_on_dropped",
        "abort",
        "account",
        "backlogged_append",
        "binding",
        "closing_status",
        "connection",
        "detached",
        "output_buffer",
        "output_bytes_max",
        "owner",
        "replies",
        "session",
        "state",
    )

    def __init__(
        self,
        session: ClientSession,
        owner: PipelineOwner,
        limits: Limits,
        *,
        output_bytes_max: int,
        output_buffer: OutputBuffer | None = None,
        state: ConnectionState = READING,
        detached: DetachedRequests | None = None,
    ) -> None:
        self.state = state
        self.connection: AnyServerConnection = DetectingConnection(limits=limits)
        self.session = session
        self.binding: SessionBinding | None = None
        self.owner = owner
        self.output_buffer = OutputBuffer() if output_buffer is None else output_buffer
        self.replies = ReplyQueue(self.output_buffer)
        self.detached = DetachedRequests() if detached is None else detached
        self.backlogged_append: Completion | None = None
        self.closing_status = 0
        self.output_bytes_max = output_bytes_max
        self.abort: Callable[[], None] = _do_nothing
        self.account: BufferAccount | None = None
        self._on_dropped: Callable[[], None] = _do_nothing

    # The connection

    def use(self, connection: ServerConnection | VsrServerConnection) -> None:
        """Go on with a connection of the client's framing."""
        self.connection = self.replies.connection = connection
        if isinstance(connection, VsrServerConnection):
            self.output_buffer.use_vsr_frames()
        self.tell_login()

    def resume(self, *, is_vsr: bool) -> None:
        """Begin with a framing that is known already, as that of a client that has migrated."""
        kind = VsrServerConnection if is_vsr else ServerConnection
        self.use(kind(limits=self.connection.limits))

    @property
    def is_vsr(self) -> bool:
        """Whether the client uses the framing from 0.9 on."""
        return isinstance(self.connection, VsrServerConnection)

    # The session owns the login, and its connections are told: that of TCP, those of all streams of
    # QUIC. The other way round, a connection ends the session when it sends an eviction.

    def tell_login(self) -> None:
        """Have the connection take what the session allows."""
        session, connection = self.session, self.connection
        if self.binding is not None and session.binding is None:
            self.detached.refuse_all()
        self.binding = session.binding
        if isinstance(connection, VsrServerConnection):
            connection.binding = session.binding
        else:
            connection.is_authenticated = session.user_id is not None

    def _note_eviction(self) -> None:
        """End the session if a reply was an eviction."""
        session, connection = self.session, self.connection
        if isinstance(connection, VsrServerConnection) and connection.binding is None:
            if session.binding is self.binding:
                session.log_out()
            self.tell_login()

    # The state

    def advance(self, event: ConnectionEvent) -> None:
        """Move to the state that follows an event.

        Raises:
            IllegalTransition: the event cannot happen in this state.
        """
        self.state = next_state(self.state, event)

    @property
    def is_busy(self) -> bool:
        """Whether a task handles a request of this client."""
        return self.state in BUSY_STATES

    @property
    def is_open(self) -> bool:
        """Whether requests are still read."""
        return self.state in OPEN_STATES

    @property
    def is_closing(self) -> bool:
        """Whether to close when all replies are sent."""
        return self.state in CLOSING_STATES

    @property
    def is_migrating(self) -> bool:
        """Whether another shard takes over as soon as all replies are sent."""
        return self.state in MIGRATING_STATES

    @property
    def is_ready(self) -> bool:
        """Whether the next request of this client may be handled now."""
        state = self.state
        return (state is READING or state is SERVING) and self._has_capacity

    @property
    def can_continue(self) -> bool:
        """Whether another turn would handle a received request, or find that none is left."""
        connection = self.connection
        return (
            self.state is SERVING
            and self._has_capacity
            # At the limit of pipelined requests another turn would change nothing, and repeating it
            # would spin.
            and connection.outstanding < connection.limits.pipelined_max
        )

    @property
    def can_read(self) -> bool:
        """Whether to receive more: all requests received so far were handled."""
        return self.state is READING and self._has_capacity

    @property
    def _has_capacity(self) -> bool:
        """Whether all that this client makes the server hold is within its limits."""
        return (
            self.output_buffer.size_bytes < self.output_bytes_max
            and self.replies.uncommitted_bytes < UNCOMMITTED_BYTES_MAX
            and (self.backlogged_append is None or self.backlogged_append.is_done)
            and (self.account is None or not self.account.is_paused)
        )

    # Amounts

    @property
    def held_bytes(self) -> int:
        """The memory used by unfinished requests and unsent replies."""
        return (
            self.connection.buffered_bytes
            + self.replies.uncommitted_bytes
            + self.output_buffer.held_bytes
        )

    def update_account(self) -> None:
        """Report held and missing bytes to the buffer account."""
        if self.account is not None:
            held_bytes = self.held_bytes
            if held_bytes < COUNTED_BYTES_MIN:
                held_bytes = 0
            self.account.hold(held_bytes, self.connection.missing_bytes)

    # Turns and tasks

    def note_requests_left(self) -> None:
        """Record that received requests may be left for the next turn."""
        if self.state is READING:
            self.advance(ConnectionEvent.REQUESTS_LEFT)

    def note_input_served(self) -> None:
        """Record that every received request was handled."""
        if self.state is SERVING:
            self.advance(ConnectionEvent.INPUT_SERVED)

    def begin_task(self) -> None:
        """Start no other request until ``end_task``."""
        self.advance(ConnectionEvent.TASK_STARTED)

    def end_task(self) -> None:
        """Continue after the task of a request, or end the session of a client that has gone."""
        is_abandoned = self.state is ConnectionState.ABANDONED
        self.advance(ConnectionEvent.TASK_DONE)
        if is_abandoned:
            self._on_dropped()
        self.owner.wake(self)

    def note_preference(self, *, wants_migration: bool) -> bool:
        """Record whether the client should be on another shard; return whether it migrates."""
        if wants_migration != self.is_migrating:
            event = ConnectionEvent
            self.advance(event.MIGRATION_WANTED if wants_migration else event.MIGRATION_CANCELLED)
        return wants_migration

    # Replies

    def encode_ready(self) -> None:
        """Encode the replies whose result is known."""
        if self.replies.encode_ready():
            self._end_input()
        elif self.closing_status and not self.is_busy and not self.replies:
            self.output_buffer.extend(self.connection.push_error(self.closing_status))
            self.closing_status = 0
        if self.binding is not None:
            self._note_eviction()
        if self.output_buffer.held_bytes > SMALL_BYTES_MAX:
            # Update the sum before the next client's reply is sized by the free budget.
            self.update_account()

    def answer_detached(self, detached: DetachedRequest, reply: CommandReply | None) -> None:
        """Send the reply to a detached request, or end it without one."""
        if not self.detached.settle(detached):
            return
        reply = detached.refusal if reply is None else reply
        if reply is None:
            assert isinstance(self.connection, VsrServerConnection)
            self.connection.drop_detached(detached.request)
        else:
            self.replies.encode_detached(detached.request, reply)
            self.update_account()
            if reply.close:
                self._end_input()
        self.owner.wake(self)

    @property
    def is_done(self) -> bool:
        """Whether nothing will be added to the output buffer."""
        return self.state is ConnectionState.CLOSING and not (self.replies or self.closing_status)

    @property
    def is_finished(self) -> bool:
        """Whether everything is sent and the connection can be closed."""
        return self.is_done and not self.output_buffer

    @property
    def has_unsent_replies(self) -> bool:
        """Whether replies are still pending or unsent."""
        return bool(self.is_busy or self.output_buffer or self.replies or self.closing_status)

    @property
    def has_detached(self) -> bool:
        """Whether requests of this pipeline are answered out of order, later."""
        return bool(self.detached) and self.detached.has_any_of(self)

    # The end

    def end(self) -> None:
        """Stop reading, and close when all replies are sent."""
        self._end_input()
        self.owner.wake(self)

    def _end_input(self) -> None:
        self.advance(ConnectionEvent.INPUT_ENDED)
        self.detached.drop(self)

    def close_with(self, status: int) -> None:
        """Stop reading, send all replies and then an unsolicited status, and close."""
        self.closing_status = status
        self.end()

    def drop(self, on_dropped: Callable[[], None]) -> None:
        """Drop unsent replies: the client has gone.

        Args:
            on_dropped: called when no task handles a request of this client any more.
        """
        self.advance(ConnectionEvent.DROPPED)
        self.detached.drop(self)
        self.output_buffer.clear()
        if self.is_busy:
            self._on_dropped = on_dropped
        else:
            on_dropped()


# Lingering close: the server closes a connection, and the client can still read its last replies.
#
# Closing a socket with unread input makes the kernel send a reset, and the client loses replies
# that it has not read yet. So the server half-closes the socket after the last reply and discards
# input until the client closes, is silent for a while, or the time is over (nginx:
# ``lingering_close``).


LINGERING_TIMEOUT_S = 0.25
# A client that is near, but has to wait for a processor.
SILENT_MIN_S = 0.05
ROUND_TRIPS = 4
# The smoothed round-trip time in microseconds, within what Linux tells of a TCP connection.
ROUND_TRIP = struct.Struct("68xI")
# A client that never stops sending does not keep us.
LINGERING_TIME_S = 1.0
DISCARD_BYTES = 1 << 16
# How long clients have for their last replies when the server stops, those of all listeners at the
# same time. Service managers and test harnesses kill after 5 s; the other half is for files.
DRAIN_TIMEOUT_S = 2.5


async def lingering_close(
    discard: Callable[[], Awaitable[bool]], silent_s: float = LINGERING_TIMEOUT_S
) -> None:
    """Discard what a client still sends, for a while.

    Args:
        discard: throws away what comes next; False when nothing will.
        silent_s: how long a client that says nothing is waited for.
    """
    with trio.move_on_after(LINGERING_TIME_S), trio.move_on_after(silent_s) as silence:
        while await discard():
            silence.deadline = trio.current_time() + silent_s


def silence_awaited(connected: socket.socket) -> float:
    """Return how many seconds to wait for a client that sends nothing.

    What it sent before it could know of the end arrives within one round trip. Within one machine
    that takes no time, and a restart should not wait for idle clients.
    """
    try:
        facts = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, ROUND_TRIP.size)
        (round_trip_us,) = ROUND_TRIP.unpack(facts)
    except (OSError, AttributeError, struct.error):
        return LINGERING_TIMEOUT_S
    return float(min(LINGERING_TIMEOUT_S, max(SILENT_MIN_S, ROUND_TRIPS * round_trip_us / 1e6)))

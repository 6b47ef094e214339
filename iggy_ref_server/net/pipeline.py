"""The request pipeline: requests of one client in order, and their replies in order.

A TCP or WebSocket connection has one pipeline; a QUIC connection has one per stream. It holds the
protocol's state machine, the session, the reply queue and the output buffer. One party works on a
pipeline at a time: while ``is_busy``, a task handles one of its requests and nothing more is read.
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Protocol

import trio

from iggy_protocol import Limits, ServerConnection
from iggy_ref_server.client_limits import SMALL_BYTES_MAX
from iggy_ref_server.dispatch.replies import OutputBuffer, ReplyQueue

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iggy_ref_server.client_limits import BufferAccount
    from iggy_ref_server.completion import Completion
    from iggy_ref_server.session import ClientSession

__all__ = [
    "DISCARD_BYTES",
    "DRAIN_TIMEOUT_S",
    "PipelineOwner",
    "RequestPipeline",
    "lingering_close",
    "silence_awaited",
]


# Sends of one client that wait for their commit. The send that exceeds the mark is still accepted.
UNCOMMITTED_BYTES_MAX = 32 << 20
# Smaller amounts are not counted: a client that sends small messages one by one would pay for two
# account updates per message. All 8,192 connections of a shard hold at most 32 MiB uncounted.
COUNTED_BYTES_MIN = 4 << 10


def _do_nothing() -> None:
    """Abort a pipeline that has no owner."""


class PipelineOwner(Protocol):
    """The server of a pipeline, which moves its bytes."""

    def wake(self, pipeline: RequestPipeline) -> None:
        """Schedule a pipeline that has output, can read again, or must be closed."""


class RequestPipeline:
    """Requests and replies of one client, from the first byte to the close.

    Attributes:
        connection: the protocol's state machine.
        session: the client.
        output_buffer: encoded replies that are not sent.
        replies: the queue of pending replies.
        backlogged_append: a send to a backlogged partition; nothing is read until its commit.
        is_busy: whether a task handles one of its requests.
        is_reading: whether input is still read.
        is_migrating: whether another shard takes over as soon as all replies are sent.
        has_unserved: whether received requests may wait for the next turn.
        on_idle: called when the task of a disconnected client is done.
        closing_status: the status that is sent before the close, or 0.
        is_closing: whether to close when all replies are sent.
        abort: closes at once and drops unsent replies.
        account: the buffer account; None where the owner keeps one for several pipelines.
    """

    __slots__ = (
        "abort",
        "account",
        "backlogged_append",
        "closing_status",
        "connection",
        "has_unserved",
        "is_busy",
        "is_closing",
        "is_migrating",
        "is_reading",
        "on_idle",
        "output_buffer",
        "output_bytes_max",
        "owner",
        "replies",
        "session",
    )

    def __init__(
        self,
        session: ClientSession,
        owner: PipelineOwner,
        limits: Limits,
        *,
        output_bytes_max: int,
        output_buffer: OutputBuffer | None = None,
    ) -> None:
        self.connection = ServerConnection(limits=limits, is_authenticated=False)
        self.session = session
        self.owner = owner
        self.output_buffer = OutputBuffer() if output_buffer is None else output_buffer
        self.replies = ReplyQueue(self.connection, self.output_buffer)
        self.backlogged_append: Completion | None = None
        self.is_busy = False
        self.is_reading = True
        self.has_unserved = False
        self.is_migrating = False
        self.is_closing = False
        self.closing_status = 0
        self.on_idle: Callable[[], None] | None = None
        self.output_bytes_max = output_bytes_max
        self.abort: Callable[[], None] = _do_nothing
        self.account: BufferAccount | None = None

    @property
    def is_ready(self) -> bool:
        """Whether the next request of this client may be handled now."""
        return (
            not self.is_busy
            and not self.is_migrating
            and self.is_reading
            and self.output_buffer.size_bytes < self.output_bytes_max
            and self.replies.uncommitted_bytes < UNCOMMITTED_BYTES_MAX
            and (self.backlogged_append is None or self.backlogged_append.is_done)
            and (self.account is None or not self.account.is_paused)
        )

    @property
    def can_continue(self) -> bool:
        """Whether another turn would handle a received request, or find that none is left."""
        connection = self.connection
        return (
            self.has_unserved
            and self.is_ready
            # At the limit of pipelined requests another turn would change nothing, and repeating it
            # would spin.
            and connection.outstanding < connection.limits.pipelined_max
        )

    @property
    def can_read(self) -> bool:
        """Whether to receive more: all requests received so far were handled."""
        return self.is_ready and not self.has_unserved

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

    def end(self) -> None:
        """Stop reading, and close when all replies are sent."""
        self.is_reading = False
        self.is_closing = True
        self.owner.wake(self)

    def close_with(self, status: int) -> None:
        """Stop reading, send all replies and then an unsolicited status, and close."""
        self.is_reading = False
        self.closing_status = status
        self.end()

    def encode_ready(self) -> None:
        """Encode the replies whose result is known."""
        if self.replies.encode_ready():
            self.is_reading = False
            self.is_closing = True
        elif self.closing_status and not self.is_busy and not self.replies:
            self.output_buffer.extend(self.connection.push_error(self.closing_status))
            self.closing_status = 0
        if self.output_buffer.held_bytes > SMALL_BYTES_MAX:
            # Update the sum before the next client's reply is sized by the free budget.
            self.update_account()

    @property
    def is_done(self) -> bool:
        """Whether nothing will be added to the output buffer."""
        return self.is_closing and not (self.is_busy or self.replies or self.closing_status)

    @property
    def is_finished(self) -> bool:
        """Whether everything is sent and the connection can be closed."""
        return self.is_done and not self.output_buffer

    @property
    def has_unsent_replies(self) -> bool:
        """Whether replies are still pending or unsent."""
        return bool(self.is_busy or self.output_buffer or self.replies or self.closing_status)


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

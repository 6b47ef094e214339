"""The request pipeline: requests of one client in order, and their replies in order.

A TCP or WebSocket connection has one pipeline; a QUIC connection has one per stream. It holds the
protocol's state machine, the session, the reply queue and the output buffer. One party works on a
pipeline at a time: while ``is_busy``, a task handles one of its requests and nothing more is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from iggy_protocol import Limits, ServerConnection
from iggy_ref_server.data_plane.answers import AnswerQueue
from iggy_ref_server.data_plane.budget import SMALL_BYTES_MAX
from iggy_ref_server.data_plane.outbox import Outbox

if TYPE_CHECKING:
    from collections.abc import Callable

    from iggy_ref_server.data_plane.budget import BufferAccount
    from iggy_ref_server.pending import Pending
    from iggy_ref_server.session import Session

__all__ = ["Link", "Wire"]

# Sends of one client that wait for their commit. The send that exceeds the mark is still accepted.
STAGED_BYTES_MAX = 32 << 20
# Smaller amounts are not counted: a client that sends small messages one by one would pay for two
# account updates per message. All 8,192 connections of a shard hold at most 32 MiB uncounted.
COUNTED_BYTES_MIN = 4 << 10


def _nothing() -> None:
    """Abort a pipeline that has no owner."""


class Wire(Protocol):
    """The server of a pipeline, which moves its bytes."""

    def wake(self, link: Link) -> None:
        """Schedule a pipeline that has output, can read again, or must be closed."""


class Link:
    """Requests and replies of one client, from the first byte to the close.

    Attributes:
        connection: the protocol's state machine.
        session: the client.
        outbox: encoded replies that are not sent.
        answers: the queue of pending replies.
        clog: a send to a backlogged partition, which must be committed before more is read.
        is_busy: whether a task handles one of its requests.
        is_hearing: whether input is still read.
        is_moving: whether another shard takes over as soon as all replies are sent.
        has_unserved: whether received requests may wait for the next turn.
        when_idle: called when the task of a disconnected client is done.
        farewell: the status that is sent before the close, or 0.
        is_ending: whether to close when all replies are sent.
        abort: closes at once and drops unsent replies.
        account: the buffer account; None where the owner keeps one for several pipelines.
    """

    __slots__ = (
        "abort",
        "account",
        "answers",
        "clog",
        "connection",
        "farewell",
        "has_unserved",
        "is_busy",
        "is_ending",
        "is_hearing",
        "is_moving",
        "outbox",
        "outbox_bytes_max",
        "session",
        "when_idle",
        "wire",
    )

    def __init__(
        self,
        session: Session,
        wire: Wire,
        limits: Limits,
        *,
        outbox_bytes_max: int,
        outbox: Outbox | None = None,
    ) -> None:
        self.connection = ServerConnection(limits=limits, is_authenticated=False)
        self.session = session
        self.wire = wire
        self.outbox = Outbox() if outbox is None else outbox
        self.answers = AnswerQueue(self.connection, self.outbox)
        self.clog: Pending | None = None
        self.is_busy = False
        self.is_hearing = True
        self.has_unserved = False
        self.is_moving = False
        self.is_ending = False
        self.farewell = 0
        self.when_idle: Callable[[], None] | None = None
        self.outbox_bytes_max = outbox_bytes_max
        self.abort: Callable[[], None] = _nothing
        self.account: BufferAccount | None = None

    @property
    def is_ready(self) -> bool:
        """Whether the next request of this client may be handled now."""
        return (
            not self.is_busy
            and not self.is_moving
            and self.is_hearing
            and self.outbox.size_bytes < self.outbox_bytes_max
            and self.answers.staged_bytes < STAGED_BYTES_MAX
            and (self.clog is None or self.clog.is_done)
            and (self.account is None or not self.account.is_held_back)
        )

    @property
    def can_go_on(self) -> bool:
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
        return self.connection.buffered_bytes + self.answers.staged_bytes + self.outbox.held_bytes

    def note_held(self) -> None:
        """Report held and missing bytes to the buffer account."""
        if self.account is not None:
            held_bytes = self.held_bytes
            if held_bytes < COUNTED_BYTES_MIN:
                held_bytes = 0
            self.account.hold(held_bytes, self.connection.missing_bytes)

    def end(self) -> None:
        """Stop reading, and close when all replies are sent."""
        self.is_hearing = False
        self.is_ending = True
        self.wire.wake(self)

    def part_with(self, status: int) -> None:
        """Stop reading, send all replies and then an unsolicited status, and close."""
        self.is_hearing = False
        self.farewell = status
        self.end()

    def settle(self) -> None:
        """Encode the replies whose result is known."""
        if self.answers.settle():
            self.is_hearing = False
            self.is_ending = True
        elif self.farewell and not self.is_busy and not self.answers:
            self.outbox.extend(self.connection.push_error(self.farewell))
            self.farewell = 0
        if self.outbox.held_bytes > SMALL_BYTES_MAX:
            # Update the sum before the next client's reply is sized by the free budget.
            self.note_held()

    @property
    def is_done(self) -> bool:
        """Whether nothing will be added to the output buffer."""
        return self.is_ending and not (self.is_busy or self.answers or self.farewell)

    @property
    def is_finished(self) -> bool:
        """Whether everything is sent and the connection can be closed."""
        return self.is_done and not self.outbox

    @property
    def owes(self) -> bool:
        """Whether replies are still pending or unsent."""
        return bool(self.is_busy or self.outbox or self.answers or self.farewell)

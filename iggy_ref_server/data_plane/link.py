"""One connection as the data plane sees it.

Owns the parts that belong together: the protocol's state machine, the session, what is owed and
what is on its way. A link is handled by one thing at a time: while ``is_busy`` a task works on a
request of it, and nothing more is read.
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

# Sends of one client that wait for their commit; the one that passes the mark is still taken.
STAGED_BYTES_MAX = 32 << 20
# Less is not worth the count: a client that sends small messages and waits for each would pay for
# it twice with every one. All 8,192 connections of a shard hold at most 32 MiB in this way.
COUNTED_BYTES_MIN = 4 << 10


def _nothing() -> None:
    """Close what is closed already."""


class Wire(Protocol):
    """How the bytes of a link reach the peer."""

    def wake(self, link: Link) -> None:
        """Note that the link has something to send, can read again, or shall be closed."""


class Link:
    """A connection, from accept to close.

    Attributes:
        connection: the protocol.
        session: the client.
        outbox: what is on its way.
        answers: what is owed.
        clog: a send that must be settled before more is read, because its way is full.
        is_busy: whether a task works on one of its requests.
        is_hearing: False once nothing more shall be read from the peer.
        is_moving: whether another shard is to go on with it as soon as nothing is owed.
        has_unserved: whether requests that were received may be waiting for the link's next turn.
        when_idle: called when the task is done that works on a request of a client that is gone.
        farewell: a status to be sent at the very end, or 0.
        is_ending: whether to close when all that is owed has been sent.
        abort: closes at once, whatever is owed.
        account: says what the connection holds; None where somebody else does.
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
        """Whether another request of this client may be looked at now."""
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
        """Whether another turn would take a request that was received, or find that none is left.

        So it is never true of a client that has as many unanswered requests as it may have: to
        serve that one again and again would change nothing.
        """
        connection = self.connection
        return (
            self.has_unserved
            and self.is_ready
            and connection.outstanding < connection.limits.pipelined_max
        )

    @property
    def can_read(self) -> bool:
        """Whether more shall be received: all that came before has been looked at."""
        return self.is_ready and not self.has_unserved

    @property
    def held_bytes(self) -> int:
        """How much memory the client occupies with what is not done."""
        return self.connection.buffered_bytes + self.answers.staged_bytes + self.outbox.held_bytes

    def note_held(self) -> None:
        """Tell the account what is held, and what is to come of a request."""
        if self.account is not None:
            held_bytes = self.held_bytes
            if held_bytes < COUNTED_BYTES_MIN:
                held_bytes = 0
            self.account.hold(held_bytes, self.connection.missing_bytes)

    def end(self) -> None:
        """Hear nothing more, and close when what is owed has been sent."""
        self.is_hearing = False
        self.is_ending = True
        self.wire.wake(self)

    def part_with(self, status: int) -> None:
        """Hear nothing more, answer what is owed, say a last word nobody asked for, and close."""
        self.is_hearing = False
        self.farewell = status
        self.end()

    def settle(self) -> None:
        """Turn what is known into frames."""
        if self.answers.settle():
            self.is_hearing = False
            self.is_ending = True
        elif self.farewell and not self.is_busy and not self.answers:
            self.outbox.extend(self.connection.push_error(self.farewell))
            self.farewell = 0
        if self.outbox.held_bytes > SMALL_BYTES_MAX:
            # The next reply of somebody else is to know what is left for it.
            self.note_held()

    @property
    def is_done(self) -> bool:
        """Whether nothing will follow what is on its way."""
        return self.is_ending and not (self.is_busy or self.answers or self.farewell)

    @property
    def is_finished(self) -> bool:
        """Whether the connection can be closed without breaking a promise."""
        return self.is_done and not self.outbox

    @property
    def owes(self) -> bool:
        """Whether the client has still something to get."""
        return bool(self.is_busy or self.outbox or self.answers or self.farewell)

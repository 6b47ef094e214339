"""The middle of the data plane: requests of all links, in the order in which they came.

Per wake it is told which links have received something. It takes every complete request out of
them, stages appends without waiting, answers at once what can be answered at once, and hands the
rest to tasks. Then it commits what was staged: one write per partition, however many clients sent.

    serve(link)      take what the link has received
    finish()         commit, and turn what is known into frames

The order of effects of one client is kept: while a task works on a request, nothing more of that
client is looked at; and what is not a send waits for the client's own sends.

Every call ends. ``serve`` takes at most ``REQUESTS_PER_TURN_MAX`` requests, and ``finish`` makes
one pass over the links that were touched before it, in which it takes none. A link that could go on
is woken, and its next turn comes when the scheduler has been asked. An outcome that becomes known
at any time only marks its link: nobody is served, and no socket read, inside a completion.

Owns the scheduling of requests. Knows no sockets, and reaches partitions and handlers only through
the ``Appends`` and ``Desk`` it is given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

import trio

from iggy_protocol import (
    PAUSED,
    BatchShape,
    CommandCode,
    ConnectionClosed,
    ForeignRequestReceived,
    FrameTooLarge,
    RemoteProtocolError,
    RequestReceived,
    RequestRefused,
)
from iggy_ref_server.data_plane.answers import Answer
from iggy_ref_server.data_plane.foreign import ForeignClients
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.pending import Pending

if TYPE_CHECKING:
    from iggy_protocol import ServerEvent
    from iggy_ref_server.data_plane.answers import Owed
    from iggy_ref_server.data_plane.link import Link
    from iggy_ref_server.session import Session

__all__ = ["Appends", "DataPlane", "Desk", "Staged"]

SEND_MESSAGES = int(CommandCode.SEND_MESSAGES)
ACKNOWLEDGED = Answer()
# What one link is given before the others have their turn: about a millisecond of small requests,
# beside which the cost of another turn is not seen. A run of sends to one place counts as one, and
# is bounded by the requests that a client may leave unanswered.
REQUESTS_PER_TURN_MAX = 256


class Staged(NamedTuple):
    """A send that is on its way to its partition.

    Attributes:
        pending: the outcome.
        is_clogged: whether so much is on its way there that the client shall wait for this one.
        metadata: what the send said about where it goes.
        follow: stages more messages to the same place; None where the next send may go elsewhere.
    """

    pending: Pending
    is_clogged: bool = False
    metadata: bytes = b""
    follow: Callable[[memoryview, BatchShape], Pending] | None = None


class Appends(Protocol):
    """Where batches go."""

    def stage(self, session: Session, body: memoryview) -> Staged:
        """Take a batch; the outcome is known when it is committed.

        Raises:
            ServerFault: the batch is refused.
            RemoteProtocolError: the body must not be stored.
        """

    def commit(self) -> None:
        """Have everything written that was staged; never waits."""


class Desk(Protocol):
    """Where all other requests go."""

    def answer_now(self, session: Session, request: RequestReceived) -> Answer | None:
        """Answer without waiting, or return None if that is not possible."""

    async def answer(self, session: Session, request: RequestReceived) -> Answer:
        """Answer, however long it takes; raises nothing."""

    def refused(self, error: Exception) -> Answer:
        """Return the answer for what a room raised."""


class DataPlane:
    """Serves the requests of all links of a shard.

    Args:
        appends: where batches go.
        desk: where all other requests go.
        nursery: for tasks that work on requests which must wait.
    """

    def __init__(self, appends: Appends, desk: Desk, nursery: trio.Nursery) -> None:
        self._appends = appends
        self._desk = desk
        self._nursery = nursery
        self._foreign = ForeignClients()
        self._touched: set[Link] = set()
        self._is_finishing = False

    # Requests in

    def serve(self, link: Link) -> None:
        """Take requests that the link has received completely, as many as a turn allows.

        What is left is known by ``link.has_unserved``; ``finish`` wakes a link that can go on.
        """
        self._touched.add(link)
        link.connection.is_authenticated = link.session.user_id is not None
        if link.has_unserved or link.clog is not None:
            self._resume(link)
        link.has_unserved = True
        for _ in range(REQUESTS_PER_TURN_MAX):
            if not link.is_ready:
                return
            try:
                event = link.connection.next_event()
            except RemoteProtocolError as error:
                self._break_off(link, error)
                return
            if isinstance(event, RequestReceived):
                if event.code == SEND_MESSAGES:
                    self._send(link, event.payload)
                else:
                    self._ask(link, event)
                if link.connection.has_said_all:
                    link.has_unserved = False
                    return
            elif not self._hear(link, event):
                return

    def _hear(self, link: Link, event: ServerEvent) -> bool:
        """Take note of what is no request; tell whether there may be more to look at."""
        if isinstance(event, RequestRefused):
            link.answers.owe().answer = Answer(event.error.status)
        elif isinstance(event, ForeignRequestReceived):
            self._foreign.note(link.session)
            link.outbox.put(event.refusal)
        elif isinstance(event, ConnectionClosed):
            link.end()
        else:
            link.has_unserved = event is PAUSED
            return False
        return True

    def _resume(self, link: Link) -> None:
        """Take note of what is known by now; it may make room for what the link waited with."""
        link.settle()
        if link.clog is not None and link.clog.is_done:
            link.clog = None

    def _break_off(self, link: Link, error: RemoteProtocolError) -> None:
        """Answer the request after which nothing can be understood, and hang up."""
        if isinstance(error, FrameTooLarge):
            link.answers.owe().answer = Answer(error.status, close=True)
        link.end()

    def _send(self, link: Link, body: memoryview) -> None:
        try:
            staged = self._appends.stage(link.session, body)
        except (ServerFault, RemoteProtocolError) as error:
            link.answers.owe().answer = self._desk.refused(error)
            return
        self._owe(link, staged.pending, 1, len(body))
        if staged.is_clogged and not staged.pending.is_done:
            link.clog = staged.pending
        elif staged.follow is not None:
            self._send_more(link, staged)

    def _send_more(self, link: Link, staged: Staged) -> None:
        """Take the sends behind a send that go to the same place as one batch."""
        assert staged.follow is not None
        more = link.connection.more_sends(staged.metadata)
        if more is None:
            return
        run, messages = more
        try:
            pending = staged.follow(messages, run.shape)
        except ServerFault as fault:
            for _ in range(run.frames_count):
                link.answers.owe().answer = self._desk.refused(fault)
            return
        self._owe(link, pending, run.frames_count, len(messages))

    def _owe(self, link: Link, pending: Pending, count: int, size_bytes: int) -> None:
        """Keep places for the acknowledgements of sends."""
        owed = link.answers.acknowledge_with(pending, count, size_bytes)
        if owed is not None:
            pending.add_done_callback(lambda done: self._acknowledge(link, owed, done))

    def _acknowledge(self, link: Link, owed: Owed, pending: Pending) -> None:
        owed.answer = ACKNOWLEDGED if pending.fault is None else self._desk.refused(pending.fault)
        self._touched.add(link)
        if not self._is_finishing:
            link.wire.wake(link)

    def _ask(self, link: Link, request: RequestReceived) -> None:
        if link.answers.unsettled() is not None:
            self._appends.commit()
        owed = link.answers.owe()
        if link.session.user_id is None:
            link.session.served_at = trio.current_time()
        if link.answers.unsettled() is None:
            owed.answer = self._desk.answer_now(link.session, request)
            link.settle()
        if owed.answer is None:
            link.is_busy = True
            self._nursery.start_soon(self._work, link, request, owed)

    async def _work(self, link: Link, request: RequestReceived, owed: Owed) -> None:
        """Answer one request that has to wait for something."""
        earlier = link.answers.unsettled()
        if earlier is not None:
            await earlier.settled()
        session = link.session
        if session.user_id is None:
            session.served_at = float("inf")
        owed.answer = await self._desk.answer(session, request)
        session.served_at = trio.current_time()
        del request
        link.is_busy = False
        if link.when_idle is not None:
            link.when_idle()
        link.wire.wake(link)

    # Answers out

    def finish(self) -> None:
        """Commit what was staged, and turn into frames what is known by now.

        Ends after one look at each link that was touched: nothing is served here, so none is added.
        """
        if not self._touched:
            return
        self._is_finishing = True
        self._appends.commit()
        self._is_finishing = False
        touched, self._touched = self._touched, set()
        for link in touched:
            link.settle()
            if link.outbox or link.is_ending or link.can_go_on:
                link.wire.wake(link)

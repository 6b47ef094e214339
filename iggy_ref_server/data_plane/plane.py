"""The request scheduler: the requests of all pipelines of a shard, in order of arrival.

In each round the owner of the sockets calls ``serve`` for each pipeline with input, then
``finish()`` once.

    serve(link)      handle the requests that the pipeline has received
    finish()         commit the staged appends, and encode the known replies

``serve`` stages appends without waiting, handles inline what needs no waiting, and starts a task
for every other request. ``finish()`` writes once per partition, however many clients sent to it.

The effects of one client keep their order: while a task handles a request, no further request of
that client is handled, and a request that is not a send waits for the client's own sends.

Both calls are bounded. ``serve`` handles at most ``REQUESTS_PER_TURN_MAX`` requests. ``finish()``
makes one pass and handles none; it wakes each pipeline that can continue. A completion only marks
its pipeline: it handles no request and reads no socket.

Knows no sockets. Reaches partitions and handlers only through the ``Appends`` and ``Desk`` that it
is given.
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
# The turn of one pipeline: about a millisecond of small requests, so that the cost of a turn is
# negligible beside it. A run of sends to one partition counts as one request; the limit of
# pipelined requests bounds it.
REQUESTS_PER_TURN_MAX = 256


class Staged(NamedTuple):
    """A send that is staged for its partition and not committed yet.

    Attributes:
        pending: completes with the commit.
        is_clogged: whether the partition has so much uncommitted data that the client must wait.
        metadata: the stream, topic and partitioning fields of the send.
        follow: stages more messages for the same partition; None if the next send may go elsewhere.
    """

    pending: Pending
    is_clogged: bool = False
    metadata: bytes = b""
    follow: Callable[[memoryview, BatchShape], Pending] | None = None


class Appends(Protocol):
    """Takes batches for their partitions."""

    def stage(self, session: Session, body: memoryview) -> Staged:
        """Stage a batch; the returned completion fires with its commit.

        Raises:
            ServerFault: the batch is refused.
            RemoteProtocolError: the body is malformed.
        """

    def commit(self) -> None:
        """Start the writes of all staged batches; never waits."""


class Desk(Protocol):
    """Handles all requests that are not sends."""

    def answer_now(self, session: Session, request: RequestReceived) -> Answer | None:
        """Handle a request without waiting; None if that is not possible."""

    async def answer(self, session: Session, request: RequestReceived) -> Answer:
        """Handle a request; raises nothing."""

    def refused(self, error: Exception) -> Answer:
        """Return the reply for an exception."""


class DataPlane:
    """Schedules the requests of all pipelines of a shard.

    Args:
        appends: takes sends.
        desk: handles all other requests.
        nursery: runs the tasks of requests that must wait.
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
        """Handle the complete requests of a pipeline, at most one turn's worth.

        ``link.has_unserved`` says whether more may be left; ``finish()`` wakes a pipeline that can
        continue.
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
        """Process an event that is no request; return whether more events may follow."""
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
        """Encode known replies, which may lift the limits that paused the pipeline."""
        link.settle()
        if link.clog is not None and link.clog.is_done:
            link.clog = None

    def _break_off(self, link: Link, error: RemoteProtocolError) -> None:
        """Reply to the request that breaks the framing, and close the connection."""
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
        """Stage the sends that follow a send to the same partition as one batch."""
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
        """Reserve the acknowledgements of sends."""
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
        """Handle one request that has to wait for something."""
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

    # Replies out

    def finish(self) -> None:
        """Commit the staged appends, and encode the known replies.

        Visits each changed pipeline once. No request is handled here, so the set does not grow.
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

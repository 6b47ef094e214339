"""The request scheduler: the requests of all pipelines of a shard, in order of arrival.

In each round the owner of the sockets calls ``serve`` for each pipeline with input, then
``flush()`` once.

    serve(link)      handle the requests that the pipeline has received
    finish()         commit the staged appends, and encode the known replies

``serve`` stages appends without waiting, handles inline what needs no waiting, and starts a task
for every other request. ``flush()`` writes once per partition, however many clients sent to it.

The effects of one client keep their order: while a task handles a request, no further request of
that client is handled, and a request that is not a send waits for the client's own sends.

Both calls are bounded. ``serve`` handles at most ``REQUESTS_PER_TURN_MAX`` requests. ``flush()``
makes one pass and handles none; it wakes each pipeline that can continue. A completion only marks
its pipeline: it handles no request and reads no socket.

Knows no sockets. The command table says which requests are staged. Reaches partitions and handlers
only through the ``BatchAppender`` and ``RequestDispatcher`` that it is given.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final, Protocol

import trio

from iggy_protocol import (
    PAUSED,
    ConnectionClosed,
    ForeignRequestReceived,
    FrameTooLarge,
    RemoteProtocolError,
    RequestReceived,
    RequestRefused,
    ServerEvent,
)
from iggy_ref_server.dispatch.replies import CommandReply, PendingReply
from iggy_ref_server.dispatch.table import STAGED_CODES
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.net.connection_state import ConnectionState

if TYPE_CHECKING:
    from collections.abc import Callable

    from iggy_ref_server.completion import Completion
    from iggy_ref_server.dispatch.context import BatchAppender, StagedAppend
    from iggy_ref_server.dispatch.dispatcher import DecodedRequest
    from iggy_ref_server.net.pipeline import RequestPipeline
    from iggy_ref_server.session import ClientSession


LOGGER = logging.getLogger(__name__)


READING: Final = ConnectionState.READING
ACKNOWLEDGED = CommandReply()
# The turn of one pipeline: about a millisecond of small requests, so that the cost of a turn is
# negligible beside it. A run of sends to one partition counts as one request; the limit of
# pipelined requests bounds it.
REQUESTS_PER_TURN_MAX = 256


class RequestDispatcher(Protocol):
    """Handles all requests that are not staged."""

    def handle_inline(
        self, session: ClientSession, request: RequestReceived
    ) -> CommandReply | RequestReceived | DecodedRequest:
        """Handle a request without waiting; return what ``handle`` takes if it has to wait."""

    async def handle(
        self, session: ClientSession, request: RequestReceived | DecodedRequest
    ) -> CommandReply:
        """Handle a request; raises nothing."""

    def error_reply(self, error: Exception) -> CommandReply:
        """Return the reply for an exception."""


class RequestScheduler:
    """Schedules the requests of all pipelines of a shard.

    Args:
        appender: takes sends.
        dispatcher: handles all other requests.
        nursery: runs the tasks of requests that must wait.
    """

    def __init__(
        self, appender: BatchAppender, dispatcher: RequestDispatcher, nursery: trio.Nursery
    ) -> None:
        self._appender = appender
        self._dispatcher = dispatcher
        self._nursery = nursery
        self._unsupported_log = UnsupportedProtocolLog()
        self._changed: set[RequestPipeline] = set()
        self._is_flushing = False

    # Requests in

    def serve(self, pipeline: RequestPipeline) -> None:
        """Handle the complete requests of a pipeline, at most one turn's worth.

        The state of the pipeline says whether more may be left; ``flush()`` wakes a pipeline that
        can continue.
        """
        self._changed.add(pipeline)
        pipeline.connection.is_authenticated = pipeline.session.user_id is not None
        if pipeline.state is not READING or pipeline.backlogged_append is not None:
            self._resume(pipeline)
        for _ in range(REQUESTS_PER_TURN_MAX):
            if not pipeline.is_ready:
                break
            try:
                event = pipeline.connection.next_event()
            except RemoteProtocolError as error:
                self._on_protocol_error(pipeline, error)
                return
            if isinstance(event, RequestReceived):
                if event.code in STAGED_CODES:
                    self._stage(pipeline, event.payload)
                else:
                    self._handle(pipeline, event)
                if pipeline.connection.needs_data:
                    pipeline.note_input_served()
                    return
            elif not self._on_event(pipeline, event):
                return
        pipeline.note_requests_left()

    def _on_event(self, pipeline: RequestPipeline, event: ServerEvent) -> bool:
        """Process an event that is no request; return whether more events may follow."""
        if isinstance(event, RequestRefused):
            pipeline.replies.reserve_reply().reply = CommandReply(event.error.status)
        elif isinstance(event, ForeignRequestReceived):
            self._unsupported_log.note(pipeline.session)
            pipeline.output_buffer.put(event.refusal)
        elif isinstance(event, ConnectionClosed):
            pipeline.end()
        else:
            if event is PAUSED:
                pipeline.note_requests_left()
            else:
                pipeline.note_input_served()
            return False
        return True

    def _resume(self, pipeline: RequestPipeline) -> None:
        """Encode known replies, which may lift the limits that paused the pipeline."""
        pipeline.encode_ready()
        if pipeline.backlogged_append is not None and pipeline.backlogged_append.is_done:
            pipeline.backlogged_append = None

    def _on_protocol_error(self, pipeline: RequestPipeline, error: RemoteProtocolError) -> None:
        """Reply to the request that breaks the framing, and close the connection."""
        if isinstance(error, FrameTooLarge):
            pipeline.replies.reserve_reply().reply = CommandReply(error.status, close=True)
        pipeline.end()

    def _stage(self, pipeline: RequestPipeline, body: memoryview) -> None:
        try:
            staged = self._appender.stage(pipeline.session, body)
        except (ServerFault, RemoteProtocolError) as error:
            pipeline.replies.reserve_reply().reply = self._dispatcher.error_reply(error)
            return
        self._reserve_acknowledgements(pipeline, staged.pending, 1, len(body))
        if staged.is_backlogged and not staged.pending.is_done:
            pipeline.backlogged_append = staged.pending
        elif staged.append_more is not None:
            self._stage_following(pipeline, staged)

    def _stage_following(self, pipeline: RequestPipeline, staged: StagedAppend) -> None:
        """Stage the sends that follow a send to the same partition as one batch."""
        assert staged.append_more is not None
        more = pipeline.connection.take_sends(staged.metadata)
        if more is None:
            return
        run, messages = more
        try:
            pending = staged.append_more(messages, run.shape)
        except ServerFault as fault:
            for _ in range(run.frames_count):
                pipeline.replies.reserve_reply().reply = self._dispatcher.error_reply(fault)
            return
        self._reserve_acknowledgements(pipeline, pending, run.frames_count, len(messages))

    def _reserve_acknowledgements(
        self, pipeline: RequestPipeline, pending: Completion, count: int, size_bytes: int
    ) -> None:
        """Reserve the acknowledgements of sends."""
        pending_reply = pipeline.replies.reserve_acknowledgements(pending, count, size_bytes)
        if pending_reply is not None:
            pending.add_done_callback(lambda done: self._acknowledge(pipeline, pending_reply, done))

    def _acknowledge(
        self, pipeline: RequestPipeline, pending_reply: PendingReply, pending: Completion
    ) -> None:
        pending_reply.reply = (
            ACKNOWLEDGED if pending.fault is None else self._dispatcher.error_reply(pending.fault)
        )
        self._changed.add(pipeline)
        if not self._is_flushing:
            pipeline.owner.wake(pipeline)

    def _handle(self, pipeline: RequestPipeline, request: RequestReceived) -> None:
        if pipeline.replies.last_uncommitted() is not None:
            self._appender.commit()
        pending_reply = pipeline.replies.reserve_reply()
        if pipeline.session.user_id is None:
            pipeline.session.last_served_at = trio.current_time()
        outcome: CommandReply | RequestReceived | DecodedRequest = request
        if pipeline.replies.last_uncommitted() is None:
            outcome = self._dispatcher.handle_inline(pipeline.session, request)
            if isinstance(outcome, CommandReply):
                pending_reply.reply = outcome
            pipeline.encode_ready()
        # An earlier reply that was encoded just now may have ended the connection.
        if not isinstance(outcome, CommandReply) and pipeline.is_open:
            pipeline.begin_task()
            self._nursery.start_soon(self._handle_in_task, pipeline, outcome, pending_reply)

    async def _handle_in_task(
        self,
        pipeline: RequestPipeline,
        request: RequestReceived | DecodedRequest,
        pending_reply: PendingReply,
    ) -> None:
        """Handle one request that has to wait for something."""
        earlier = pipeline.replies.last_uncommitted()
        if earlier is not None:
            await earlier.settled()
        session = pipeline.session
        if session.user_id is None:
            session.last_served_at = float("inf")
        pending_reply.reply = await self._dispatcher.handle(session, request)
        session.last_served_at = trio.current_time()
        del request
        pipeline.end_task()

    # Replies out

    def flush(self) -> None:
        """Commit the staged appends, and encode the known replies.

        Visits each changed pipeline once. No request is handled here, so the set does not grow.
        """
        if not self._changed:
            return
        self._is_flushing = True
        self._appender.commit()
        self._is_flushing = False
        changed, self._changed = self._changed, set()
        for pipeline in changed:
            pipeline.encode_ready()
            if pipeline.output_buffer or pipeline.is_closing or pipeline.can_continue:
                pipeline.owner.wake(pipeline)


# The log of clients with an unsupported protocol, limited to one line per address and interval.
#
# Clients from 0.9 on frame their requests differently. The server replies with an eviction that
# they understand and that names the versions. The log tells the operator why they cannot connect.


# A client that reconnects in a loop must not fill the log.
LOG_INTERVAL_S: Final = 600.0
# Addresses that are remembered; the one that was logged first is dropped first.
ADDRESSES_MAX: Final = 1024


class UnsupportedProtocolLog:
    """Logs clients that speak an unsupported protocol.

    Args:
        clock: returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._logged_at_s: dict[str, float] = {}

    def note(self, session: ClientSession) -> None:
        """Log that a client was refused, unless its address was logged recently."""
        host, now_s = session.address.rpartition(":")[0], self._clock()
        logged_at_s = self._logged_at_s.pop(host, None)
        if logged_at_s is not None and now_s - logged_at_s < LOG_INTERVAL_S:
            self._logged_at_s[host] = logged_at_s
            return
        while len(self._logged_at_s) >= ADDRESSES_MAX:
            del self._logged_at_s[next(iter(self._logged_at_s))]
        self._logged_at_s[host] = now_s
        LOGGER.warning(
            "refused %s over %s: it speaks the protocol of Apache Iggy 0.9 and later (VSR framing),"
            " this server speaks that of 0.8 and earlier; use a client of 0.8, such as"
            " apache-iggy 0.8.0, or iggy_sdk (logged once in %.0f minutes per address)",
            session.address,
            session.transport.name,
            LOG_INTERVAL_S / 60,
        )

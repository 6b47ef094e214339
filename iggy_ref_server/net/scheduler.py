"""The request scheduler: the requests of all pipelines of a shard, in order of arrival.

In each round the owner of the sockets calls ``serve`` for each pipeline with input, then
``flush()`` once.

    serve(link)      handle the requests that the pipeline has received
    finish()         commit the staged appends, and encode the known replies

``serve`` stages appends without waiting, handles inline what needs no waiting, and starts a task
for every other request. ``flush()`` writes once per partition, however many clients sent to it.

The effects of one client keep their order: while a task handles a request, no further request of
that client is handled, and a request that is not a send waits for the client's own sends. Only a
detached request is left out of that order: it waits for messages in a task of its own.

Sends of all dialects are staged alike. A classic client is told that they are stored; from 0.9 on
each send has a reply of its own, which tells where its messages are.

Both calls are bounded. ``serve`` handles at most ``REQUESTS_PER_TURN_MAX`` requests. ``flush()``
makes one pass and handles none; it wakes each pipeline that can continue. A completion only marks
its pipeline: it handles no request and reads no socket.

Knows no sockets. The command table says which requests are staged. Reaches partitions and handlers
only through the ``BatchAppender`` and ``RequestDispatcher`` that it is given.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

import trio

from iggy_protocol import (
    DETACHED_MAX,
    PAUSED,
    CancelReceived,
    ConnectionClosed,
    ForeignRequestReceived,
    FrameTooLarge,
    FramingDetected,
    RemoteProtocolError,
    RequestReceived,
    RequestRefused,
    SendsReceived,
    ServerConnection,
    StatusCode,
    VersionRefused,
    VsrServerConnection,
    VsrServerEvent,
)
from iggy_ref_server.dispatch.replies import CommandReply, PendingReply
from iggy_ref_server.dispatch.table import STAGED_CODES
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.net.connection_state import ConnectionState
from iggy_ref_server.net.refused_versions import RefusedVersionLog

if TYPE_CHECKING:
    from iggy_ref_server.completion import Completion
    from iggy_ref_server.dispatch.context import BatchAppender, StagedAppend, StagedWrite
    from iggy_ref_server.dispatch.dispatcher import DecodedRequest
    from iggy_ref_server.net.detached import DetachedRequest
    from iggy_ref_server.net.pipeline import RequestPipeline
    from iggy_ref_server.session import ClientSession


READING: Final = ConnectionState.READING
ACKNOWLEDGED = CommandReply()
TOO_MANY_DETACHED: Final = CommandReply(StatusCode.TOO_MANY_DEFERRED_POLLS)
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

    def note_heartbeat(self, session: ClientSession) -> None:
        """Record that a client has sent a request, where any request counts as a heartbeat."""

    def is_detached(self, request: RequestReceived) -> bool:
        """Tell whether a request is answered out of order."""

    def confirmation(self, staged: StagedWrite) -> CommandReply:
        """Return the reply to a committed send from 0.9 on."""


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
        self._refused_log = RefusedVersionLog()
        self._changed: set[RequestPipeline] = set()
        self._is_flushing = False

    # Requests in

    def serve(self, pipeline: RequestPipeline) -> None:
        """Handle the complete requests of a pipeline, at most one turn's worth.

        The state of the pipeline says whether more may be left; ``flush()`` wakes a pipeline that
        can continue.
        """
        self._changed.add(pipeline)
        session = pipeline.session
        if (
            pipeline.state is not READING
            or pipeline.backlogged_append is not None
            or session.binding is not pipeline.binding
            or pipeline.connection.is_authenticated is (session.user_id is None)
        ):
            self._begin_turn(pipeline)
        for _ in range(REQUESTS_PER_TURN_MAX):
            if not pipeline.is_ready:
                break
            try:
                event = pipeline.connection.next_event()
            except RemoteProtocolError as error:
                self._on_protocol_error(pipeline, error)
                return
            if isinstance(event, RequestReceived):
                if event.request_id is not None:
                    self._take_numbered(pipeline, event)
                elif event.code in STAGED_CODES:
                    self._stage(pipeline, event.payload)
                else:
                    self._handle(pipeline, event)
                if pipeline.connection.needs_data:
                    pipeline.note_input_served()
                    return
            elif not self._on_event(pipeline, event):
                return
        pipeline.note_requests_left()

    def _on_event(self, pipeline: RequestPipeline, event: VsrServerEvent | FramingDetected) -> bool:
        """Process any other event; return whether more events may follow."""
        if isinstance(event, SendsReceived):
            self._stage_run(pipeline, event)
        elif isinstance(event, RequestRefused):
            self._refuse(pipeline, event)
        elif isinstance(event, FramingDetected):
            pipeline.use(event.connection)
        elif isinstance(event, CancelReceived):
            pipeline.detached.cancel(event.number)
        elif isinstance(event, ForeignRequestReceived):
            self._refused_log.note_framing(pipeline.session)
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

    def _refuse(self, pipeline: RequestPipeline, event: RequestRefused) -> None:
        """Reply to a request that is none, or that its session does not allow."""
        if isinstance(event, VersionRefused):
            self._refused_log.note_version(pipeline.session, event)
        pipeline.replies.reserve_reply().reply = CommandReply(event.error.status)

    def _begin_turn(self, pipeline: RequestPipeline) -> None:
        """Tell the connection of a login, and encode known replies, which may lift limits."""
        pipeline.tell_login()
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
        connection = pipeline.replies.connection
        assert isinstance(connection, ServerConnection)
        more = connection.take_sends(staged.metadata)
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

    # Requests from 0.9 on

    def _take_numbered(self, pipeline: RequestPipeline, request: RequestReceived) -> None:
        """Handle a request from 0.9 on."""
        self._dispatcher.note_heartbeat(pipeline.session)
        if request.code in STAGED_CODES:
            self._stage_write(pipeline, request)
        elif request.dialect.binds_sessions and self._dispatcher.is_detached(request):
            self._detach(pipeline, request)
        else:
            self._handle(pipeline, request)

    def _stage_write(self, pipeline: RequestPipeline, request: RequestReceived) -> None:
        """Stage a send whose reply tells where its messages are."""
        try:
            staged = self._appender.stage_write(pipeline.session, request)
        except (ServerFault, RemoteProtocolError) as error:
            pipeline.replies.reserve_reply().reply = self._dispatcher.error_reply(error)
            return
        pending = staged.pending
        self._reserve_confirmations(pipeline, staged, 1, staged.size_bytes)
        if staged.is_backlogged and not pending.is_done:
            pipeline.backlogged_append = pending
        elif staged.metadata:
            _vsr_connection(pipeline).expect_sends(staged.metadata)

    def _stage_run(self, pipeline: RequestPipeline, sends: SendsReceived) -> None:
        """Stage sends that were taken together; one commit confirms all of them."""
        self._dispatcher.note_heartbeat(pipeline.session)
        count = sends.run.frames_count
        try:
            staged = self._appender.stage_run(pipeline.session, sends)
        except ServerFault as fault:
            _vsr_connection(pipeline).expect_no_sends()
            for _ in range(count):
                pipeline.replies.reserve_reply().reply = self._dispatcher.error_reply(fault)
            return
        self._reserve_confirmations(pipeline, staged, count, len(sends.messages))
        if staged.is_backlogged and not staged.pending.is_done:
            pipeline.backlogged_append = staged.pending

    def _reserve_confirmations(
        self, pipeline: RequestPipeline, staged: StagedWrite, count: int, size_bytes: int
    ) -> None:
        """Reserve the replies to one send, or to those of a run."""
        pending = staged.pending
        pending_reply = pipeline.replies.reserve_confirmations(pending, count, size_bytes)

        def confirm(_: Completion) -> None:
            pending_reply.reply = (
                self._dispatcher.confirmation(staged)
                if pending.fault is None
                else self._dispatcher.error_reply(pending.fault)
            )
            self._changed.add(pipeline)
            if not self._is_flushing:
                pipeline.owner.wake(pipeline)

        pending.add_done_callback(confirm)

    def _detach(self, pipeline: RequestPipeline, request: RequestReceived) -> None:
        """Start a task for a request that may wait for long, and go on with others."""
        connection = _vsr_connection(pipeline)
        if connection.detached >= DETACHED_MAX:
            pipeline.replies.reserve_reply().reply = TOO_MANY_DETACHED
            return
        detached = pipeline.detached.add(pipeline, connection.detach())
        # A view would keep the receive buffer for as long as the request waits.
        request = replace(request, payload=memoryview(bytes(request.payload)))
        self._nursery.start_soon(self._handle_detached, pipeline, request, detached)

    async def _handle_detached(
        self, pipeline: RequestPipeline, request: RequestReceived, detached: DetachedRequest
    ) -> None:
        """Handle one detached request, to its reply or to its cancellation."""
        reply: CommandReply | None = None
        with detached.scope:
            reply = await self._dispatcher.handle(pipeline.session, request)
        pipeline.answer_detached(detached, reply)

    # Requests that are not staged

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


def _vsr_connection(pipeline: RequestPipeline) -> VsrServerConnection:
    connection = pipeline.connection
    assert isinstance(connection, VsrServerConnection)
    return connection

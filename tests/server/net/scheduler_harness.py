"""A request scheduler with clients without sockets, and appends that end when a test says so.

    stage = SchedulerHarness(nursery, pipelined_max=4)
    link = stage.connect()
    stage.feed(link, send())
    stage.round()                     what the owner of sockets does in one round
    stage.appends.settle_oldest()     an outcome becomes known, outside of any round

Answers are told apart by their status: each outcome has one of its own.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import trio

from iggy_protocol import (
    Dialect,
    Limits,
    Partitioning,
    Ping,
    SendMessages,
    SessionBinding,
    UserStatus,
    classic_send_body,
    decode_send_metadata,
    inspect_send,
)
from iggy_protocol.vsr.heads import RequestHead
from iggy_ref_server.completion import Completion
from iggy_ref_server.dispatch.context import StagedAppend, StagedWrite
from iggy_ref_server.dispatch.replies import CommandReply
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.metadata.state import UserRecord
from iggy_ref_server.net.pipeline import RequestPipeline
from iggy_ref_server.net.scheduler import RequestScheduler
from iggy_ref_server.partitions.partition_client import ConfirmedAppend
from iggy_ref_server.session import ClientSession
from tests.server.features.topic_calls import frame_of

if TYPE_CHECKING:
    from iggy_protocol import BatchShape, RequestReceived, SendsReceived
    from iggy_ref_server.dispatch.dispatcher import DecodedRequest

SEND = frame_of(SendMessages("s", "t", Partitioning.partition(0), [b"m"]))
PING = frame_of(Ping())
HEAD = struct.Struct("<II")
VSR_CLIENT = bytes(range(1, 17))
# More than any sound call needs, and few enough that an endless one is soon told.
CALLS_MAX = 10_000


def decode_statuses(frames: bytes) -> list[int]:
    """Return the statuses of answers without payload, in their order."""
    return [status for status, _ in HEAD.iter_unpack(frames)]


class LateAppends:
    """Takes sends; what becomes of each is said later, in any order.

    Attributes:
        open: the outcomes that are not known yet, oldest first, each with its status.
        statuses: what each send will be answered, by link and in the order of the sends.
        is_at_once: whether a commit decides everything that was staged before it.
        clogs: whether every send is told to wait for its outcome.
        stages_count: how many batches were staged.
        refusal: why sends that come together are not taken; None if they are.
    """

    def __init__(self) -> None:
        self.open: deque[tuple[Completion, int]] = deque()
        self.statuses: dict[int, list[int]] = {}
        self.is_at_once = False
        self.clogs = False
        self.stages_count = 0
        self.refusal: ServerFault | None = None
        self._calls_count = 0
        self._last_status = 0

    def begin_call(self) -> None:
        """Note that the scheduler is called from outside."""
        self._calls_count = 0

    def next_status(self, session: ClientSession) -> int:
        """Choose what the next request of a client is answered."""
        self._last_status += 1
        self.statuses.setdefault(session.client_id, []).append(self._last_status)
        return self._last_status

    def stage(self, session: ClientSession, body: memoryview) -> StagedAppend:
        self._count()
        decode_send_metadata(body)
        shape = inspect_send(body)
        metadata = bytes(body[4 : shape.indexes_at - 4])

        def append_more(messages: memoryview, shape: BatchShape) -> Completion:
            status = self._last_status + 1
            self._last_status = status
            self.statuses[session.client_id] += [status] * shape.messages_count
            return self._open(status)

        pending = self._open(self.next_status(session))
        return StagedAppend(pending, self.clogs, metadata, None if self.clogs else append_more)

    def stage_write(self, session: ClientSession, request: RequestReceived) -> StagedWrite:
        """Take a send from 0.9 on; its offset is the status that a classic one would be told."""
        classic = classic_send_body(request.payload).body
        metadata = bytes(classic[4 : inspect_send(classic).indexes_at - 4])
        return self._stage_write(session, 1, len(request.payload), request.dialect, metadata)

    def stage_run(self, session: ClientSession, sends: SendsReceived) -> StagedWrite:
        """Take sends from 0.9 on that came together, or refuse them."""
        if self.refusal is not None:
            raise self.refusal
        count, dialect = sends.run.frames_count, sends.request_id.dialect
        return self._stage_write(session, count, len(sends.messages), dialect, sends.metadata)

    def _stage_write(
        self,
        session: ClientSession,
        count: int,
        size_bytes: int,
        dialect: Dialect,
        metadata: bytes,
    ) -> StagedWrite:
        self._count()
        status = self.next_status(session)
        self.statuses[session.client_id] += [status] * (count - 1)
        pending = ConfirmedAppend(status)
        self.stages_count += 1
        self.open.append((pending, status))
        return StagedWrite(pending, self.clogs, size_bytes, dialect, 1, 2, 3, metadata)

    def commit(self) -> None:
        self._count()
        while self.is_at_once and self.open:
            self.settle_oldest()

    def settle_oldest(self) -> None:
        """Decide the oldest outcome."""
        pending, status = self.open.popleft()
        pending.finish(ServerFault(status, "as the test wants it"))

    def settle_newest(self) -> None:
        """Decide the newest outcome before those that came earlier."""
        pending, status = self.open.pop()
        pending.finish(ServerFault(status, "as the test wants it"))

    def _open(self, status: int) -> Completion:
        self.stages_count += 1
        pending = Completion()
        self.open.append((pending, status))
        return pending

    def _count(self) -> None:
        self._calls_count += 1
        assert self._calls_count <= CALLS_MAX, "one call of the scheduler does not end"


class InlineDispatcher:
    """Answers pings, at once or in a task."""

    def __init__(self, appender: LateAppends) -> None:
        self.is_slow = False
        self._appender = appender

    def handle_inline(
        self, session: ClientSession, request: RequestReceived
    ) -> CommandReply | RequestReceived:
        return request if self.is_slow else CommandReply(self._appender.next_status(session))

    async def handle(
        self, session: ClientSession, request: RequestReceived | DecodedRequest
    ) -> CommandReply:
        await trio.lowlevel.checkpoint()
        return CommandReply(self._appender.next_status(session))

    def error_reply(self, error: Exception) -> CommandReply:
        assert isinstance(error, ServerFault)
        return CommandReply(error.status)

    def note_heartbeat(self, session: ClientSession) -> None:
        """Record nothing."""

    def is_detached(self, request: RequestReceived) -> bool:
        return False

    def confirmation(self, staged: StagedWrite) -> CommandReply:
        raise AssertionError("the outcomes of these appends are faults")


@dataclass
class SchedulerHarness:
    """A request scheduler, its pipelines, and the rounds in which they are served.

    Attributes:
        nursery: for requests that wait.
        pipelined_max: requests that one client may leave unanswered.
        woken: the links whose turn is in the next round.
        sent: what each client has been sent.
    """

    nursery: trio.Nursery
    pipelined_max: int = 8
    appender: LateAppends = field(default_factory=LateAppends)
    woken: set[RequestPipeline] = field(default_factory=set)
    sent: dict[RequestPipeline, bytes] = field(default_factory=dict)
    rounds_count: int = 0

    def __post_init__(self) -> None:
        self.dispatcher = InlineDispatcher(self.appender)
        self.scheduler = RequestScheduler(self.appender, self.dispatcher, self.nursery)

    def wake(self, pipeline: RequestPipeline) -> None:
        self.woken.add(pipeline)

    def connect(self) -> RequestPipeline:
        """Have another client."""
        session = ClientSession(len(self.sent), "127.0.0.1:5000")
        limits = Limits(pipelined_max=self.pipelined_max)
        pipeline = RequestPipeline(session, self, limits, output_bytes_max=1 << 20)
        self.sent[pipeline] = b""
        return pipeline

    def log_in(self, pipeline: RequestPipeline, session: int = 1) -> None:
        """Have a client from 0.10 on, which has logged in."""
        pipeline.resume(is_vsr=True)
        user = UserRecord(0, 1, "u", "", UserStatus.ACTIVE, 0)
        binding = SessionBinding(Dialect.V0_12_2, VSR_CLIENT, session, user.id)
        pipeline.session.log_in(user, binding)

    def head_of(self, pipeline: RequestPipeline, code: int, **fields: Any) -> bytes:
        """Return a request without a body of such a client."""
        binding = pipeline.session.binding
        session = 0 if binding is None else binding.session
        given = {"operation": 2, "session": session, **fields}
        return RequestHead(client=VSR_CLIENT, code=int(code), **given).encode()

    def feed(self, pipeline: RequestPipeline, data: bytes) -> None:
        """Receive bytes of a client; they are looked at in the next round."""
        pipeline.connection.receive_data(data)
        self.woken.add(pipeline)

    def round(self) -> None:
        """Serve everybody once, and send what is known."""
        self.appender.begin_call()
        self.rounds_count += 1
        woken, self.woken = self.woken, set()
        for pipeline in woken:
            self.scheduler.serve(pipeline)
        self.scheduler.flush()
        for pipeline in self.sent:
            while pipeline.output_buffer:
                buffers = pipeline.output_buffer.head_buffers()
                self.sent[pipeline] += b"".join(buffers)
                pipeline.output_buffer.sent(sum(map(len, buffers)))
            if pipeline.can_continue:
                self.woken.add(pipeline)

    def answered(self, pipeline: RequestPipeline) -> list[int]:
        """Return what a client was answered."""
        return decode_statuses(self.sent[pipeline])

    def pending_reply(self, pipeline: RequestPipeline) -> list[int]:
        """Return what the requests that were taken are answered, in their order."""
        return self.appender.statuses.get(pipeline.session.client_id, [])

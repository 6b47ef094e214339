"""Requests that are answered out of order: parked, cancelled, and over with their client."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from iggy_protocol import (
    CLASSIC,
    DETACHED_MAX,
    VSR_HEAD_BYTES,
    CommandCode,
    ConsumerIdentity,
    Dialect,
    GetStreams,
    PasswordCredentials,
    PollDeferred,
    PollingStrategy,
    ResponseReceived,
    StatusCode,
    VsrClientConnection,
    vsr_probe,
)
from iggy_protocol.vsr.heads import read_reply_head
from iggy_ref_server.dispatch.dispatcher import Dispatcher
from iggy_ref_server.dispatch.handlers.messages import EncodedReply
from iggy_ref_server.dispatch.replies import CommandReply
from iggy_ref_server.dispatch.table import COMMAND_TABLE, CommandRow, Execution
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.identity import permissions
from iggy_ref_server.net.connection_state import ConnectionState
from iggy_ref_server.shard import assembly
from tests.server.net.scheduler_harness import InlineDispatcher, SchedulerHarness
from tests.server.quic.quic_harness import open_harness
from tests.server.simulated.server import open_simulated_server
from tests.server.vsr_client import new_session

if TYPE_CHECKING:
    from iggy_protocol import RequestReceived
    from iggy_ref_server.dispatch.dispatcher import DecodedRequest
    from iggy_ref_server.session import ClientSession

pytestmark = pytest.mark.trio

PARKED = CommandCode.POLL_DEFERRED
PAYLOAD = b"messages"


class ParkingLot(InlineDispatcher):
    """Lets deferred polls wait until the test answers them."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.waiting: dict[int, trio.Event] = {}
        self.left: list[int] = []
        self.reply = CommandReply(parts=(PAYLOAD,))

    def is_detached(self, request: RequestReceived) -> bool:
        return request.code == PARKED

    async def handle(
        self, session: ClientSession, request: RequestReceived | DecodedRequest
    ) -> CommandReply:
        number = getattr(request, "request_id").number  # noqa: B009  a decoded one has none
        self.waiting[number] = trio.Event()
        try:
            await self.waiting[number].wait()
        finally:
            del self.waiting[number]
            self.left.append(number)
        return self.reply


class Stage(SchedulerHarness):
    """A scheduler whose deferred polls wait."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.parking = ParkingLot(self.appender)
        self.scheduler._dispatcher = self.parking

    async def park(self, pipeline, *numbers):
        """Receive deferred polls, and let their tasks begin."""
        heads = [self.head_of(pipeline, PARKED, number=number) for number in numbers]
        self.feed(pipeline, b"".join(heads))
        while self.woken:
            self.round()
        await trio.testing.wait_all_tasks_blocked()

    async def settle(self):
        """Let tasks that were woken end, and send what they say."""
        await trio.testing.wait_all_tasks_blocked()
        self.round()

    def replies(self, pipeline):
        """Return number, status and body size of what a client was sent."""
        frames, at, found = self.sent[pipeline], 0, []
        while at < len(frames):
            head = read_reply_head(frames, at)
            found.append((head.number, head.status, head.size - VSR_HEAD_BYTES))
            at += head.size
        return found


@pytest.fixture
async def stage(nursery):
    """A scheduler without sockets."""
    return Stage(nursery)


@pytest.fixture
async def pipeline(stage):
    """A client that has logged in."""
    made = stage.connect()
    stage.log_in(made)
    return made


async def test_parked_request_when_others_follow_then_they_are_answered_first(stage, pipeline):
    await stage.park(pipeline, 1, 2)
    assert pipeline.state is ConnectionState.READING
    assert pipeline.can_read
    assert not pipeline.is_busy
    stage.feed(pipeline, stage.head_of(pipeline, CommandCode.PING, number=3))
    stage.round()
    assert [number for number, _, _ in stage.replies(pipeline)] == [3]

    stage.parking.waiting[2].set()
    await stage.settle()
    stage.parking.waiting[1].set()
    await stage.settle()

    assert stage.replies(pipeline)[1:] == [(2, 0, len(PAYLOAD)), (1, 0, len(PAYLOAD))]
    assert not pipeline.has_detached
    assert pipeline.connection.is_idle


async def test_parked_request_when_it_fails_then_the_error_is_its_reply(stage, pipeline):
    stage.parking.reply = CommandReply(StatusCode.UNAUTHORIZED)
    await stage.park(pipeline, 1)
    stage.parking.waiting[1].set()
    await stage.settle()

    assert stage.replies(pipeline) == [(1, StatusCode.UNAUTHORIZED, 0)]


async def test_parked_request_when_its_reply_closes_then_the_connection_ends(stage, pipeline):
    stage.parking.reply = CommandReply(StatusCode.UNAUTHENTICATED, close=True)
    await stage.park(pipeline, 1, 2)
    stage.parking.waiting[1].set()
    await stage.settle()

    assert stage.replies(pipeline) == [(1, StatusCode.UNAUTHENTICATED, 0)]
    assert stage.parking.left == [1, 2]
    assert pipeline.is_finished


async def test_parked_request_when_cancelled_by_its_client_then_is_never_answered(stage, pipeline):
    await stage.park(pipeline, 1, 2)
    stage.feed(pipeline, stage.head_of(pipeline, CommandCode.CANCEL_DEFERRED, number=1))
    stage.round()
    await stage.settle()
    assert stage.parking.left == [1]
    assert pipeline.connection.detached == 1

    stage.parking.waiting[2].set()
    await stage.settle()
    assert stage.replies(pipeline) == [(2, 0, len(PAYLOAD))]


@pytest.mark.parametrize("end", ["drop", "end", "abort", "input ended"])
async def test_parked_requests_when_their_connection_ends_then_end_with_it(stage, pipeline, end):
    other = stage.connect()
    stage.log_in(other)
    await stage.park(pipeline, 1, 2, 3)
    await stage.park(other, 4)
    gone = trio.Event()
    if end == "drop":
        pipeline.drop(gone.set)
        assert gone.is_set()
    elif end == "end":
        pipeline.end()
    elif end == "abort":
        pipeline.close_with(StatusCode.DISCONNECTED)
    else:
        pipeline.connection.receive_eof()
        stage.woken.add(pipeline)
        stage.round()
    await stage.settle()

    assert sorted(stage.parking.left) == [1, 2, 3]
    assert stage.sent[pipeline] == b""
    assert end == "drop" or pipeline.is_finished
    assert list(stage.parking.waiting) == [4]


async def test_parked_requests_when_the_session_ends_then_are_refused(stage, pipeline):
    await stage.park(pipeline, 1, 2)
    pipeline.session.log_out()
    stage.feed(pipeline, vsr_probe(bytes(range(1, 17))))
    stage.round()
    await stage.settle()

    refused = [(number, StatusCode.UNAUTHENTICATED, 0) for number in (1, 2)]
    assert sorted(stage.replies(pipeline)[1:]) == refused


async def test_requests_when_too_many_are_parked_then_the_next_is_refused_in_its_place(
    nursery,
):
    stage = Stage(nursery, pipelined_max=2 * DETACHED_MAX)
    pipeline = stage.connect()
    stage.log_in(pipeline)
    await stage.park(pipeline, *range(1, DETACHED_MAX + 3))

    full = StatusCode.TOO_MANY_DEFERRED_POLLS
    assert stage.replies(pipeline) == [
        (DETACHED_MAX + 1, full, 0),
        (DETACHED_MAX + 2, full, 0),
    ]
    stage.parking.waiting[1].set()
    await stage.settle()
    await stage.park(pipeline, DETACHED_MAX + 3)
    assert len(stage.parking.waiting) == DETACHED_MAX


async def test_deferred_poll_when_the_dialect_has_none_then_is_not_parked(stage):
    pipeline = stage.connect()
    pipeline.resume(is_vsr=False)
    stage.parking.reply = CommandReply(StatusCode.INVALID_COMMAND)
    stage.feed(pipeline, (4).to_bytes(4, "little") + int(PARKED).to_bytes(4, "little"))
    stage.round()

    assert pipeline.session.dialect is CLASSIC
    assert not pipeline.has_detached
    assert len(stage.sent[pipeline]) == 8


# With a row that only these tests have, on a real shard


class Gate:
    """A handler that waits until the test lets it go on."""

    def __init__(self) -> None:
        self.opened = trio.Event()
        self.numbers: list[int] = []
        self.cancelled: list[int] = []

    async def poll(self, context, session, command, request_id):
        """Wait, and answer without messages."""
        self.numbers.append(request_id.number)
        try:
            await self.opened.wait()
        except trio.Cancelled:
            self.cancelled.append(request_id.number)
            raise
        if command.count == 13:
            raise ServerFault(StatusCode.UNAUTHORIZED, "as the test wants it")
        return EncodedReply((bytes(40),))


@pytest.fixture
def gate(monkeypatch):
    """Have shards serve deferred polls in a way of these tests."""
    gate = Gate()
    row = CommandRow(
        PARKED,
        gate.poll,
        permissions.ANY_USER,
        execution=Execution.DETACHED,
        takes_request_id=True,
    )
    rows = {**COMMAND_TABLE, int(PARKED): row}
    monkeypatch.setattr(assembly, "Dispatcher", partial(Dispatcher, rows=rows))
    return gate


def deferred(count=1):
    return PollDeferred(
        ConsumerIdentity.single(1),
        "s",
        "t",
        PollingStrategy.next(),
        count,
        wait_us=1,
        timeout_us=2_000_000,
        partition_id=0,
    )


class Peer:
    """A client from 0.10 on in one process with its server."""

    def __init__(self, stream) -> None:
        self.stream = stream
        self.connection = VsrClientConnection(new_session(Dialect.V0_12_2))

    async def send(self, command):
        """Send a request, and return it."""
        request = self.connection.prepare(command)
        parts = self.connection.send_prepared(request)
        await self.stream.send_all(b"".join(bytes(part) for part in parts))
        return request

    async def receive(self):
        """Return the next reply."""
        while True:
            event = self.connection.next_event()
            if event.__class__.__name__ != "Signal":
                return event
            self.connection.receive_data(await self.stream.receive_some(65_536))

    async def log_in(self):
        """Log in as root."""
        register = self.connection.session.register(PasswordCredentials("iggy", "iggy"))
        await self.send(register)
        assert isinstance(await self.receive(), ResponseReceived)


async def test_client_when_a_poll_waits_then_is_served_meanwhile(gate, autojump_clock):
    async with open_simulated_server() as world:
        peer = Peer(world.connect().stream)
        await peer.log_in()
        first, second = await peer.send(deferred()), await peer.send(deferred(13))
        streams = await peer.send(GetStreams())

        assert (await peer.receive()).number == streams.number
        gate.opened.set()
        replies = {event.number: event for event in (await peer.receive(), await peer.receive())}
        assert isinstance(replies[first.number], ResponseReceived)
        assert replies[second.number].status == StatusCode.UNAUTHORIZED
        assert sorted(gate.numbers) == [first.number, second.number]


async def test_client_when_it_cancels_or_hangs_up_then_its_polls_end(gate, autojump_clock):
    async with open_simulated_server() as world:
        peer = Peer(world.connect().stream)
        await peer.log_in()
        first, second = await peer.send(deferred()), await peer.send(deferred())
        await peer.stream.send_all(b"".join(peer.connection.cancel(first)))
        streams = await peer.send(GetStreams())
        assert (await peer.receive()).number == streams.number
        await trio.testing.wait_all_tasks_blocked()
        assert gate.cancelled == [first.number]

        await peer.stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert gate.cancelled == [first.number, second.number]


async def test_connection_when_a_poll_waits_on_it_then_does_not_move(gate, autojump_clock):
    class Migrator:
        """Takes a note, and takes no connection."""

        def __init__(self) -> None:
            self.asked = 0

        def move(self, connected, client, shard_id):
            self.asked += 1
            assert client.is_vsr
            return False

    async with open_simulated_server() as world:
        server, migrator = world.shards[0].socket_server, Migrator()
        server._migrator = migrator
        peer = Peer(world.connect().stream)
        await peer.log_in()
        await peer.send(deferred())
        await trio.testing.wait_all_tasks_blocked()
        (client,) = world.shards[0].clients
        client.session.preferred_shard = 1
        for _ in range(3):
            await peer.send(GetStreams())
            await peer.receive()
        assert not migrator.asked

        gate.opened.set()
        await peer.receive()
        client.session.preferred_shard = 1
        await peer.send(GetStreams())
        await peer.receive()
        await trio.testing.wait_all_tasks_blocked()
        assert migrator.asked


# Over QUIC each request has a stream, and so has the one that cancels another


async def test_quic_client_when_it_cancels_on_another_stream_then_both_streams_end(
    gate, tmp_path, autojump_clock
):
    async with open_harness(tmp_path) as harness, harness.peer() as peer:
        connection: Any = VsrClientConnection(new_session(Dialect.V0_12_2))

        def encode(command):
            request = connection.prepare(command)
            parts = connection.send_prepared(request)
            return request, b"".join(bytes(part) for part in parts)

        _, login = encode(connection.session.register(PasswordCredentials("iggy", "iggy")))
        connection.receive_data(await peer.ask(login))
        assert isinstance(connection.next_event(), ResponseReceived)
        first, parked = encode(deferred())
        second, kept = encode(deferred())
        parked_stream, kept_stream = peer.send(parked), peer.send(kept)
        streams, other = encode(GetStreams())
        connection.receive_data(await peer.ask(other))
        assert connection.next_event().number == streams.number

        assert await peer.ask(b"".join(connection.cancel(first))) == b""
        assert await peer.reply(parked_stream) == b""
        assert gate.cancelled == [first.number]
        gate.opened.set()
        connection.receive_data(await peer.reply(kept_stream))
        assert connection.next_event().number == second.number

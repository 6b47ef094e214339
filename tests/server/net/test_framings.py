"""The first bytes of a client choose its framing; limits and ends are the same before and after."""

from __future__ import annotations

import pytest
import trio

from iggy_protocol import (
    VSR_HEAD_BYTES,
    CommandCode,
    GetStreams,
    Ping,
    StatusCode,
    VsrServerConnection,
    is_vsr_answer,
    is_vsr_refusal,
    vsr_probe,
)
from iggy_protocol.vsr.heads import RequestHead, read_reply_head
from iggy_ref_server.net.connection_state import ConnectionState
from iggy_ref_server.session import ClientSession
from tests.server.features.topic_calls import frame_of
from tests.server.net.scheduler_harness import PING, SEND, SchedulerHarness, decode_statuses
from tests.server.net.tls_peer import connect_tls
from tests.server.simulated.server import open_simulated_server

pytestmark = pytest.mark.trio

CLIENT = bytes(range(1, 17))
PROBE = vsr_probe(CLIENT)
# Four times what a classic connection discards of it.
ZEROS = bytes(4 * VSR_HEAD_BYTES)


@pytest.fixture
async def stage(nursery):
    """A scheduler without sockets."""
    return SchedulerHarness(nursery)


def is_open(pipeline):
    return pipeline.state in (ConnectionState.READING, ConnectionState.SERVING)


def vsr_statuses(frames):
    """Return the statuses of replies without a body."""
    assert len(frames) % VSR_HEAD_BYTES == 0
    heads = [read_reply_head(frames, at) for at in range(0, len(frames), VSR_HEAD_BYTES)]
    return [head.status for head in heads]


# Which framing


async def test_client_when_its_first_request_comes_in_pieces_then_is_understood(stage):
    for request, statuses in ((PING, decode_statuses), (PROBE, vsr_statuses)):
        for cut in range(1, len(request)):
            pipeline = stage.connect()
            for piece in (request[:cut], request[cut:] + request):
                stage.feed(pipeline, piece)
                stage.round()

            assert statuses(stage.sent[pipeline]) == stage.pending_reply(pipeline)
            assert len(stage.pending_reply(pipeline)) == 2
            assert pipeline.is_vsr == (request is PROBE)


async def test_client_when_its_first_word_is_of_no_framing_then_the_connection_ends(stage):
    for word in (1, 2, 3):
        pipeline = stage.connect()
        stage.feed(pipeline, word.to_bytes(4, "little") + ZEROS)
        stage.round()

        assert pipeline.is_finished
        assert stage.sent[pipeline] == b""


async def test_client_when_its_first_head_is_no_request_then_the_connection_ends(stage):
    for head in (ZEROS, RequestHead(size=255).encode(), RequestHead(command=30).encode()):
        pipeline = stage.connect()
        stage.feed(pipeline, head)
        stage.round()

        assert pipeline.is_finished
        assert stage.sent[pipeline] == b""


async def test_client_when_garbage_follows_a_request_then_earlier_ones_are_answered(stage):
    garbage = bytes([7]) * VSR_HEAD_BYTES
    for request, statuses in ((PING, decode_statuses), (PROBE, vsr_statuses)):
        pipeline = stage.connect()
        stage.feed(pipeline, request + request + garbage)
        stage.round()

        answered = statuses(stage.sent[pipeline])
        assert answered[:2] == stage.pending_reply(pipeline)
        assert pipeline.is_done or pipeline.connection.is_mid_frame


async def test_frames_of_replicas_when_they_come_then_are_refused_one_by_one(stage):
    pipeline = stage.connect()
    frames = [RequestHead(client=CLIENT, command=command).encode() for command in (1, 8, 13)]
    stage.feed(pipeline, b"".join(frames) + PROBE)
    stage.round()

    statuses = vsr_statuses(stage.sent[pipeline])
    assert statuses == [StatusCode.INVALID_COMMAND] * 3 + stage.pending_reply(pipeline)
    assert is_open(pipeline)


# A framing is for the whole connection


async def test_classic_client_when_it_sends_a_vsr_head_later_then_goes_on_as_a_classic_one(stage):
    """Its zeros are requests of length zero, and what follows them is read as it stands."""
    pipeline = stage.connect()
    stage.feed(pipeline, PING + PROBE)
    stage.round()
    # The head says 256 where a length is expected now, so so much belongs to one request.
    missing = pipeline.connection.missing_bytes
    stage.feed(pipeline, bytes(missing) + PING)
    stage.round()

    statuses = decode_statuses(stage.sent[pipeline])
    mistakes = [StatusCode.INVALID_COMMAND] * 6
    assert statuses[1:7] == mistakes
    assert statuses[:1] + statuses[7:] == stage.pending_reply(pipeline)
    assert is_open(pipeline)


async def test_classic_client_when_it_has_moved_and_sends_a_vsr_head_then_is_told(stage, caplog):
    pipeline = stage.connect()
    pipeline.resume(is_vsr=False)
    stage.feed(pipeline, PROBE + PING)
    stage.round()

    assert is_vsr_refusal(stage.sent[pipeline][:VSR_HEAD_BYTES])
    assert decode_statuses(stage.sent[pipeline][VSR_HEAD_BYTES:]) == stage.pending_reply(pipeline)
    assert "frames of 0.9 in a connection that began with those of 0.8" in caplog.text


async def test_vsr_client_when_it_sends_classic_frames_later_then_the_connection_ends(stage):
    pipeline = stage.connect()
    stage.feed(pipeline, PROBE + SEND * 10)
    stage.round()

    assert vsr_statuses(stage.sent[pipeline]) == stage.pending_reply(pipeline)
    assert pipeline.is_finished


# Ends before the first request


async def test_connection_when_it_ends_before_its_first_word_then_ends_in_good_order(stage):
    for begun in (b"", b"\4", bytes(3)):
        silent, told, dropped, aborted = (stage.connect() for _ in range(4))
        for pipeline in (silent, told, dropped):
            if begun:
                stage.feed(pipeline, begun)
        stage.round()
        silent.connection.receive_eof()
        stage.woken.add(silent)
        told.close_with(StatusCode.DISCONNECTED)
        gone = trio.Event()
        dropped.drop(gone.set)
        aborted.abort()
        stage.round()

        assert silent.is_finished
        assert stage.sent[silent] == b""
        assert told.is_finished
        assert decode_statuses(stage.sent[told]) == [StatusCode.DISCONNECTED]
        assert gone.is_set()


async def test_vsr_connection_when_it_is_closed_then_a_status_without_a_request_is_not_sent(stage):
    pipeline = stage.connect()
    stage.feed(pipeline, PROBE)
    stage.round()
    pipeline.close_with(StatusCode.DISCONNECTED)
    stage.round()

    assert vsr_statuses(stage.sent[pipeline]) == stage.pending_reply(pipeline)
    assert pipeline.is_finished


# Limits


async def test_vsr_client_when_it_pipelines_more_than_is_allowed_then_is_paused_and_served(stage):
    stage.dispatcher.is_slow = True
    pipeline = stage.connect()
    stage.feed(pipeline, PROBE * 20)
    while len(stage.sent[pipeline]) < 20 * VSR_HEAD_BYTES:
        stage.round()
        await trio.lowlevel.checkpoint()

    assert vsr_statuses(stage.sent[pipeline]) == stage.pending_reply(pipeline)
    assert is_open(pipeline)


async def test_vsr_client_when_it_has_not_logged_in_then_its_requests_are_small(stage):
    pipeline = stage.connect()
    large = RequestHead(
        size=VSR_HEAD_BYTES + 16_385, client=CLIENT, operation=2, code=int(CommandCode.PING)
    )
    stage.feed(pipeline, PROBE + large.encode())
    stage.round()

    statuses = vsr_statuses(stage.sent[pipeline])
    assert statuses == [*stage.pending_reply(pipeline), StatusCode.UNAUTHENTICATED]
    assert pipeline.is_finished


async def test_cancel_when_nothing_waits_then_is_ignored(stage):
    pipeline = stage.connect()
    stage.log_in(pipeline)
    cancel = stage.head_of(pipeline, CommandCode.CANCEL_DEFERRED, number=7)
    stage.feed(pipeline, cancel + stage.head_of(pipeline, CommandCode.PING, number=8))
    stage.round()

    assert vsr_statuses(stage.sent[pipeline]) == stage.pending_reply(pipeline)
    assert is_open(pipeline)


# The login is the session's


async def test_login_when_the_session_has_it_then_all_its_connections_take_requests(stage):
    first, second = stage.connect(), stage.connect()
    second.session = first.session
    for pipeline in (first, second):
        stage.feed(pipeline, PROBE)
    stage.round()
    stage.log_in(first)
    stage.feed(second, stage.head_of(second, CommandCode.GET_STREAMS, number=1))
    stage.round()
    assert isinstance(second.connection, VsrServerConnection)
    assert second.connection.binding is first.session.binding
    assert len(vsr_statuses(stage.sent[second])) == 2

    first.session.log_out()
    stage.feed(second, stage.head_of(second, CommandCode.GET_STREAMS, number=2))
    stage.round()
    assert vsr_statuses(stage.sent[second])[2:] == [StatusCode.UNAUTHENTICATED]
    assert not second.connection.is_authenticated


async def test_session_when_a_reply_is_an_eviction_then_ends_with_it(stage):
    pipeline = stage.connect()
    stage.log_in(pipeline, session=17)
    old = stage.head_of(pipeline, 0, number=1, operation=128, session=16)
    stage.feed(pipeline, old)
    stage.round()

    assert stage.sent[pipeline][60] == 13
    assert pipeline.session.user_id is None
    assert pipeline.session.binding is None


# Behind TLS


async def test_client_when_behind_tls_then_is_served_in_its_framing(autojump_clock):
    async with open_simulated_server() as world:
        for request in (PROBE, frame_of(Ping())):
            for cut in (2, 8, len(request)):
                peer, theirs, tls = connect_tls()
                session = ClientSession(1, "127.0.0.1:1")
                world.shards[0].socket_server.admit(theirs, session, tls=tls)
                await peer.send(request[:cut])
                if request[cut:]:
                    await peer.send(request[cut:])
                size = VSR_HEAD_BYTES if request is PROBE else 8
                reply = await peer.read_exactly(size)
                assert is_vsr_answer(reply) if request is PROBE else reply == bytes(8)
                peer.close()


# Half-open clients


@pytest.mark.parametrize("begun", [b"\4\0", bytes(2), bytes(100), PROBE[:200]])
async def test_client_when_it_stops_within_its_first_request_then_the_connection_ends(
    autojump_clock, begun
):
    settings = {"LIMITS_STALL_TIMEOUT": "2 s", "LIMITS_LOGIN_TIMEOUT": "1 h"}
    async with open_simulated_server(settings=settings) as world:
        client, started_at = world.connect(), trio.current_time()
        await client.stream.send_all(begun)

        assert await client.stream.receive_some(1) == b""
        assert 2 <= trio.current_time() - started_at < 5


async def test_client_when_it_never_says_a_word_then_the_login_timeout_ends_it(autojump_clock):
    async with open_simulated_server(settings={"LIMITS_LOGIN_TIMEOUT": "3 s"}) as world:
        client = world.connect()

        assert await client.stream.receive_some(1) == b""


async def test_clients_when_they_speak_different_framings_then_are_served_side_by_side(
    autojump_clock,
):
    async with open_simulated_server() as world:
        classic, other = await world.log_in(), world.connect()
        for _ in range(3):
            await other.stream.send_all(PROBE)
            assert is_vsr_answer(await other.stream.receive_some(VSR_HEAD_BYTES))
            assert await classic.ask(GetStreams()) == ()

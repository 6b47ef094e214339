"""Streams of the QUIC listener: whole and half ones, given up, endless and stuck."""

from __future__ import annotations

import pytest
import trio

from iggy_protocol import (
    CommandCode,
    GetMe,
    Partitioning,
    Ping,
    SendMessages,
    StatusCode,
)
from tests.server.features.topic_calls import frame_of
from tests.server.quic.quic_harness import open_harness
from tests.server.quic.test_packets import (
    PING,
    PONG,
    make_topic,
    message,
    poll_of,
    send_of,
    stored,
)

pytestmark = [pytest.mark.trio, pytest.mark.timeout(60)]

SEND_CODE = int(CommandCode.SEND_MESSAGES).to_bytes(4, "little")
PING_CODE = int(CommandCode.PING).to_bytes(4, "little")
UNAUTHENTICATED = int(StatusCode.UNAUTHENTICATED).to_bytes(4, "little") + bytes(4)


def length(value):
    return value.to_bytes(4, "little")


def status(value):
    return value.to_bytes(4, "little") + bytes(4)


async def test_request_when_its_stream_stays_open_then_is_answered_all_the_same(
    tmp_path, autojump_clock
):
    async with open_harness(tmp_path) as harness, harness.peer() as peer:
        stream_id = peer.send(PING, finish=False)

        assert await peer.reply(stream_id) == PONG
        await peer.until(lambda: stream_id in peer.stopped)


async def test_request_when_it_comes_byte_by_byte_then_is_answered(tmp_path, autojump_clock):
    async with open_harness(tmp_path) as harness, harness.peer() as peer:
        stream_id = peer.send(PING[:1], finish=False)
        for byte in PING[1:]:
            await trio.sleep(0.01)
            peer.send(bytes([byte]), stream=stream_id, finish=False)

        assert await peer.reply(stream_id) == PONG


async def test_second_frame_of_a_stream_when_it_comes_then_is_not_read(tmp_path, autojump_clock):
    async with open_harness(tmp_path) as harness, harness.peer() as peer:
        assert await peer.ask(PING + frame_of(GetMe())) == PONG


EMPTY = {
    "nothing": b"",
    "half a head": b"\4\0\0",
    "a length that cannot be": length(3) + PING_CODE,
    "less than was announced": length(100) + PING_CODE + b"abc",
}


@pytest.mark.parametrize("what", EMPTY)
async def test_stream_when_it_ends_before_its_request_then_ends_without_an_answer(
    tmp_path, autojump_clock, what
):
    async with open_harness(tmp_path) as harness, harness.peer() as peer:
        assert await peer.ask(EMPTY[what]) == b""
        assert await peer.ask(PING) == PONG


async def test_messages_when_cut_short_then_are_refused_as_by_the_original(
    tmp_path, autojump_clock
):
    async with open_harness(tmp_path) as harness, harness.peer() as peer:
        await peer.log_in()

        assert await peer.ask(length(100) + SEND_CODE + b"abc") == status(StatusCode.QUIC_ERROR)


async def test_request_when_above_its_limit_then_is_refused_before_it_has_come(
    tmp_path, autojump_clock
):
    async with open_harness(tmp_path) as harness, harness.peer() as peer:
        await peer.log_in()
        control = peer.send(length(20 << 20) + PING_CODE, finish=False)
        batch = peer.send(length(1 << 31) + SEND_CODE, finish=False)

        assert await peer.reply(control) == status(StatusCode.INVALID_COMMAND)
        assert (await peer.reply(batch))[:4] != bytes(4)
        await peer.until(lambda: {control, batch} <= peer.stopped)
        assert await peer.ask(PING) == PONG


async def test_client_when_it_has_not_logged_in_then_is_told(tmp_path, autojump_clock):
    async with open_harness(tmp_path) as harness, harness.peer() as peer:
        assert await peer.ask(frame_of(GetMe())) == UNAUTHENTICATED
        send = frame_of(SendMessages("s", "t", Partitioning.partition(0), [b"x"]))
        assert await peer.ask(send) == UNAUTHENTICATED


async def test_streams_when_the_client_has_not_logged_in_then_are_few(tmp_path, autojump_clock):
    async with open_harness(tmp_path) as harness, harness.peer() as peer:
        assert peer.core._remote_max_streams_bidi == 16
        assert peer.core._remote_max_streams_uni == 0
        await peer.log_in()
        await peer.until(lambda: peer.core._remote_max_streams_bidi >= 1024)


async def test_stream_in_one_direction_when_opened_then_the_connection_ends(
    tmp_path, autojump_clock
):
    async with open_harness(tmp_path) as harness, harness.peer() as peer:
        peer.core._remote_max_streams_uni = 1
        peer.core._remote_max_stream_data_uni = 100
        peer.send(PING, stream=2)

        assert "streams" in (await peer.ended()).reason_phrase


async def test_requests_when_thousands_come_then_each_has_its_answer(tmp_path, autojump_clock):
    async with open_harness(tmp_path) as harness, harness.peer() as peer:
        await peer.log_in()
        streams = [peer.send(PING) for _ in range(2_000)]
        assert {await peer.reply(stream_id) for stream_id in streams} == {PONG}
        await trio.sleep(1)

        (conn,) = harness.listener._connections
        assert not conn._streams
        assert not conn._finished_streams
        assert not conn._core._streams, "nothing is kept of streams that are over"


# Given up


async def test_request_when_given_up_half_way_then_is_forgotten(tmp_path, autojump_clock):
    async with open_harness(tmp_path) as harness, harness.peer() as peer:
        await make_topic(peer)
        frame = send_of(1)
        for _ in range(100):
            stream_id = peer.send(frame[:9_000], finish=False)
            await trio.sleep(0.01)
            peer.core.reset_stream(stream_id, 7)
            peer.flush()
        assert await peer.ask(PING) == PONG
        await trio.sleep(1)

        (conn,) = harness.listener._connections
        assert not conn._streams
        assert await stored(peer) == []


async def test_reply_when_unwanted_then_is_not_sent(tmp_path, autojump_clock):
    async with open_harness(tmp_path) as harness, harness.peer() as peer:
        await make_topic(peer)
        for number in range(30):
            assert await peer.ask(send_of(number)) == PONG
        for _ in range(20):
            stream_id = peer.send(poll_of(1000))
            await trio.sleep(0.004)
            peer.core.stop_stream(stream_id, 7)
            peer.flush()
        await trio.sleep(5)

        (conn,) = harness.listener._connections
        assert not conn._streams
        assert not conn._replies.unsent_bytes
        assert await peer.ask(PING) == PONG


# Stuck


async def test_request_when_it_stands_still_then_ends_the_connection(tmp_path, autojump_clock):
    async with open_harness(tmp_path) as harness, harness.peer() as peer:
        await peer.log_in()
        peer.send(length(100) + PING_CODE, finish=False)
        began = trio.current_time()
        end = await peer.ended()

        assert 29 < trio.current_time() - began < 50
        assert "has stalled" in end.reason_phrase
    assert not len(harness.shard.clients)


async def test_request_when_it_trickles_then_ends_the_connection(tmp_path, autojump_clock):
    async with open_harness(tmp_path) as harness, harness.peer() as peer:
        await peer.log_in()
        stream_id = peer.send(length(10_000_000) + SEND_CODE, finish=False)
        began = trio.current_time()
        while peer.end is None and trio.current_time() - began < 100:
            peer.send(b"x", stream=stream_id, finish=False)
            await trio.sleep(1)

        assert 29 < trio.current_time() - began < 65
        assert peer.end is not None
        assert "has stalled" in peer.end.reason_phrase


async def test_request_when_slow_but_steady_then_is_waited_for(tmp_path, autojump_clock):
    async with open_harness(tmp_path) as harness, harness.peer() as peer:
        await peer.log_in()
        stream_id = peer.send(length(600_004) + SEND_CODE, finish=False)
        for _ in range(100):
            peer.send(bytes(6_000), stream=stream_id, finish=False)
            await trio.sleep(2)

        assert (await peer.reply(stream_id))[:4] not in (bytes(4), UNAUTHENTICATED[:4])


async def test_send_when_long_and_before_a_login_then_is_refused_before_it_has_come(
    tmp_path, autojump_clock
):
    async with open_harness(tmp_path) as harness, harness.peer() as peer:
        batch = peer.send(length(17_000) + SEND_CODE, finish=False)
        assert await peer.reply(batch) == UNAUTHENTICATED
        assert await peer.ask(PING) == PONG


async def test_request_when_it_drips_then_others_are_served_meanwhile(tmp_path, autojump_clock):
    async with open_harness(tmp_path) as harness, harness.peer(1) as slow, harness.peer(2) as other:
        await slow.log_in()
        await other.log_in()
        stream_id = slow.send(PING[:1], finish=False)
        for byte in PING[1:]:
            await trio.sleep(3)
            slow.send(bytes([byte]), stream=stream_id, finish=False)
            began = trio.current_time()
            assert await other.ask(PING) == PONG
            assert trio.current_time() - began < 0.1

        assert await slow.reply(stream_id) == PONG


async def test_replies_when_unread_then_memory_is_bounded_and_the_end_comes(
    tmp_path, autojump_clock, monkeypatch
):
    settings = {"LIMITS_QUIC_MAX_REPLY_BACKLOG_BYTES": "200 KB"}
    # The client grants 20 kB for each reply, and never more.
    async with open_harness(tmp_path, settings=settings) as harness:
        async with harness.peer(max_stream_data=20_000, max_data=1 << 30) as peer:
            await make_topic(peer)
            for number in range(20):
                assert await peer.ask(send_of(number)) == PONG
            monkeypatch.setattr(peer.core, "_write_stream_limits", lambda **_: None)
            for _ in range(50):
                peer.send(poll_of(1000))
            await trio.sleep(5)
            (conn,) = harness.listener._connections
            assert conn._unprocessed, "requests wait for replies to be read"
            assert conn._replies.unsent_bytes < 2_000_000

            assert "has stalled" in (await peer.ended()).reason_phrase
        assert not len(harness.shard.clients)


async def test_large_requests_when_many_come_at_once_then_take_turns(tmp_path, autojump_clock):
    settings = {
        "LIMITS_QUIC_MAX_REQUEST_BACKLOG_BYTES": "300 KB",
        "QUIC_RECEIVE_WINDOW": "16 KiB",
    }
    held_bytes = []

    async def watch(conn):
        while True:
            streams = conn._streams.values()
            held_bytes.append(sum(one.received_bytes for one in streams if not one.is_dispatched))
            await trio.sleep(0.01)

    async with open_harness(tmp_path, settings=settings) as harness, harness.peer() as peer:
        await make_topic(peer)
        payloads = [bytes([number]) * 100_000 for number in range(30)]
        async with trio.open_nursery() as nursery:
            (conn,) = harness.listener._connections
            nursery.start_soon(watch, conn)
            streams = [
                peer.send(frame_of(SendMessages("s", "t", Partitioning.partition(0), [payload])))
                for payload in payloads
            ]
            assert {await peer.reply(stream_id) for stream_id in streams} == {PONG}
            nursery.cancel_scope.cancel()

        assert sorted(await stored(peer)) == payloads
        # What is let in, and a window for each that waits.
        assert 100_000 < max(held_bytes) < 300_000 + 30 * 16_384


async def test_poll_when_its_answer_is_longer_than_all_windows_then_comes_in_full(
    tmp_path, autojump_clock
):
    async with open_harness(tmp_path) as harness, harness.peer() as peer:
        await make_topic(peer)
        for number in range(60):
            assert await peer.ask(send_of(number)) == PONG

        assert await stored(peer) == [message(number) for number in range(60)]


# The end


async def test_listener_when_it_closes_then_answers_first_and_accepts_no_client(
    tmp_path, autojump_clock
):
    async with open_harness(tmp_path) as harness, harness.peer(1) as peer:
        await make_topic(peer)
        stream_id = peer.send(send_of(1))
        await trio.sleep(0.1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(harness.listener.drain)
            assert await peer.reply(stream_id) == PONG
            assert "closed" in (await peer.ended()).reason_phrase
        assert not harness.listener._connections
        assert not len(harness.shard.clients)


async def test_client_when_the_server_ends_its_connection_then_is_told(tmp_path, autojump_clock):
    async with open_harness(tmp_path) as harness, harness.peer() as peer:
        await peer.log_in()
        (client,) = harness.shard.clients
        client.close()

        assert "closed" in (await peer.ended()).reason_phrase
        assert not len(harness.shard.clients)


async def test_client_when_it_dials_again_from_its_port_then_the_old_one_goes(
    tmp_path, autojump_clock
):
    async with open_harness(tmp_path) as harness, harness.peer(1) as first:
        await first.log_in()
        (old,) = harness.shard.clients
        async with harness.peer(1) as second:
            await second.log_in()
            (new,) = harness.shard.clients

            assert new is not old
            assert new.session.client_id == old.session.client_id
            await trio.sleep(1)
            assert len(harness.listener._connections) == 1
        await trio.sleep(5)
        assert not len(harness.shard.clients)


async def test_connection_when_a_step_fails_then_only_that_one_ends(
    tmp_path, autojump_clock, caplog, monkeypatch
):
    async with (
        open_harness(tmp_path) as harness,
        harness.peer(1) as first,
        harness.peer(2) as second,
    ):
        assert await first.ask(PING) == PONG
        assert await second.ask(PING) == PONG
        conn = next(iter(harness.listener._connections))

        def fail(stream_id):
            raise ValueError("an unexpected stream")

        monkeypatch.setattr(conn, "_on_reset", fail)
        stream_id = first.send(frame_of(Ping())[:3], finish=False)
        first.core.reset_stream(stream_id, 1)
        first.flush()
        await trio.sleep(1)

        assert conn not in harness.listener._connections
        assert "an unexpected stream" in caplog.text
        assert await second.ask(PING) == PONG

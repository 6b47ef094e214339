"""What QUIC connections hold in the budget of the shard, and bounded turns, in virtual time."""

from __future__ import annotations

import pytest
import trio

from iggy_protocol import Partitioning, SendMessages
from iggy_ref_server.client_limits import BufferBudget
from iggy_ref_server.net.quic import connection
from tests.server.features.topic_calls import frame_of
from tests.server.quic.quic_harness import open_harness
from tests.server.quic.test_packets import PING, PONG, make_topic, poll_of, send_of, stored

pytestmark = [pytest.mark.trio, pytest.mark.timeout(60)]

MIB = 1 << 20
WINDOW = {"QUIC_RECEIVE_WINDOW": "64 KiB"}


def large_send(size_bytes):
    return frame_of(SendMessages("s", "t", Partitioning.partition(0), [bytes(size_bytes)]))


def open_other(budget, size_bytes):
    """Have somebody else hold something."""
    other = budget.open("another client", lambda: None, lambda: None)
    other.hold(size_bytes)
    return other


async def test_large_request_when_there_is_no_room_then_waits_while_small_ones_are_served(
    tmp_path, autojump_clock
):
    budget = BufferBudget(4 * MIB)
    async with (
        open_harness(tmp_path, settings=WINDOW, budget=budget) as harness,
        harness.peer() as peer,
    ):
        await make_topic(peer)
        other = open_other(budget, 3 * MIB)
        stream_id = peer.send(large_send(2 * MIB))
        await trio.sleep(5)
        assert stream_id not in peer.replies
        assert budget.total_bytes - 3 * MIB <= 2 * 64 * 1024
        for number in range(3):
            assert await peer.ask(PING) == PONG
            assert await peer.ask(send_of(number)) == PONG

        other.hold(0)
        assert await peer.reply(stream_id) == PONG
        await trio.sleep(1)
        assert budget.total_bytes == 0
        assert len(await stored(peer)) == 4


async def test_large_requests_when_they_fit_one_after_another_then_never_pass_the_budget(
    tmp_path, autojump_clock
):
    budget, totals = BufferBudget(3 * MIB), []

    async def watch():
        while True:
            totals.append(budget.total_bytes)
            await trio.sleep(0.01)

    async with (
        open_harness(tmp_path, settings=WINDOW, budget=budget) as harness,
        harness.peer(1) as one,
        harness.peer(2) as two,
        trio.open_nursery() as nursery,
    ):
        await make_topic(one)
        await two.log_in()
        nursery.start_soon(watch)
        streams = [(peer, peer.send(large_send(MIB))) for peer in (one, two) for _ in range(4)]
        assert {await peer.reply(stream_id) for peer, stream_id in streams} == {PONG}
        nursery.cancel_scope.cancel()
        assert MIB < max(totals) <= 3 * MIB
        assert len(await stored(one)) == 8


async def test_reply_when_it_is_not_acknowledged_then_counts(tmp_path, autojump_clock, monkeypatch):
    budget = BufferBudget(64 * MIB)
    async with open_harness(tmp_path, budget=budget) as harness, harness.peer() as peer:
        await make_topic(peer)
        for number in range(20):
            assert await peer.ask(send_of(number)) == PONG
        await trio.sleep(1)
        assert budget.total_bytes == 0
        peer.send(poll_of(1000))
        monkeypatch.setattr(peer.datagrams, "send", lambda datagrams: None)
        await trio.sleep(1)

        (line,) = harness.listener._connections
        assert line._core.buffered_bytes > 50_000
        assert budget.total_bytes >= line._core.buffered_bytes


async def test_request_when_its_beginning_is_missing_then_what_came_counts(
    tmp_path, autojump_clock
):
    budget = BufferBudget(64 * MIB)
    async with (
        open_harness(tmp_path, settings=WINDOW, budget=budget) as harness,
        harness.peer() as peer,
    ):
        await make_topic(peer)
        await trio.sleep(1)
        core = peer.core
        stream_id = core.get_next_available_stream_id()
        core.send_stream_data(stream_id, send_of(1))
        core._streams[stream_id].sender._pending.subtract(0, 1000)
        peer.flush()
        await trio.sleep(1)

        assert budget.total_bytes > 10_000
        assert await peer.ask(PING) == PONG


async def test_client_when_it_holds_most_and_the_budget_is_passed_then_its_connection_is_closed(
    tmp_path, autojump_clock, caplog
):
    budget = BufferBudget(4 * MIB)
    async with (
        open_harness(tmp_path, settings=WINDOW, budget=budget) as harness,
        harness.peer() as peer,
    ):
        await make_topic(peer)
        request = large_send(MIB)
        peer.send(request[:-100], finish=False)
        await trio.sleep(5)
        assert budget.total_bytes > MIB
        others = [open_other(budget, MIB - 1) for _ in range(4)]

        budget.evict_over_limit()

        assert "exceed the memory budget" in (await peer.ended()).reason_phrase
        assert "limits.memory_budget" in caplog.text
        assert budget.accounts_count == len(others)


async def test_step_when_very_many_requests_came_then_takes_a_bounded_part_of_them(
    tmp_path, autojump_clock, monkeypatch
):
    """The rest has its turn after those of other connections."""
    served_counts: list[int] = []
    async with open_harness(tmp_path) as harness, harness.peer() as peer:
        await peer.log_in()
        monkeypatch.setattr(connection, "REQUESTS_PER_STEP_MAX", 5)
        serve, serve_step = harness.shard.scheduler.serve, connection.QuicServerConnection._serve

        def count(link):
            served_counts[-1] += 1
            serve(link)

        def count_step(line):
            served_counts.append(0)
            serve_step(line)

        monkeypatch.setattr(harness.shard.scheduler, "serve", count)
        monkeypatch.setattr(connection.QuicServerConnection, "_serve", count_step)
        streams = [peer.send(PING) for _ in range(60)]
        assert {await peer.reply(stream_id) for stream_id in streams} == {PONG}

    assert sum(served_counts) >= 60
    assert max(served_counts) == 5

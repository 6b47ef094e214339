"""Polls that wait, on simulated shards and a virtual clock: what ends a wait; nothing lingers."""

from __future__ import annotations

import socket

import pytest
import trio
import trio.testing

from iggy_protocol import (
    CreateUser,
    DeleteTopic,
    GetConsumerOffset,
    GlobalPermissions,
    LogoutUser,
    Permissions,
    Ping,
    PollingStrategy,
    PollMessages,
    PurgeTopic,
    StatusCode,
    UpdatePermissions,
    WaitForMessages,
    WaitTarget,
)
from iggy_ref_server.dispatch import conversion, deferred_slots
from iggy_ref_server.shard.partition_directory import PartitionKey
from tests.server.simulated.deferred_calls import (
    DIALECTS,
    ONE,
    PARTITIONS,
    SECOND_US,
    SHARDS,
    V0_11,
    V0_12_0,
    V0_12_2,
    fetch_of,
    payloads,
    poll_of,
    running,
    settle,
    wait_of,
)
from tests.server.simulated.server import Refused
from tests.server.simulated.vsr_calls import VsrPeer, vsr_session

pytestmark = [pytest.mark.trio, pytest.mark.virtual_time]


# Waiting


@DIALECTS
@SHARDS
@pytest.mark.parametrize("partition_id", range(PARTITIONS))
async def test_poll_when_there_are_messages_then_is_answered_at_once(
    autojump_clock, shards_count, dialect, partition_id
):
    async with running(shards_count) as world:
        client = await world.client(dialect)
        await world.send(partition_id, b"a", b"b")
        began = trio.current_time()

        polled = await client.ask(
            poll_of(partition_id, start=1), await client.route("s", "t", partition_id)
        )

        assert payloads(polled) == [b"b"]
        assert (polled.partition_id, polled.current_offset) == (partition_id, 1)
        assert polled.context.incarnation
        assert trio.current_time() - began < 1


@DIALECTS
@SHARDS
@pytest.mark.parametrize("partition_id", range(PARTITIONS))
async def test_poll_when_a_message_comes_then_is_woken_and_others_were_served_meanwhile(
    autojump_clock, shards_count, dialect, partition_id
):
    async with running(shards_count) as world:
        client = await world.client(dialect)
        route = await client.route("s", "t", partition_id)
        request = await client.send(poll_of(partition_id), route)
        await settle()
        assert await client.ask(Ping()) is None
        assert not client.has_answer(request)
        began = trio.current_time()

        await world.send(partition_id, b"a")

        assert payloads(await client.answer(request)) == [b"a"]
        assert trio.current_time() - began < 1


@DIALECTS
@SHARDS
async def test_poll_when_its_time_is_over_then_is_answered_with_what_there_is(
    autojump_clock, shards_count, dialect
):
    async with running(shards_count) as world:
        client = await world.client(dialect)
        for partition_id, sent in ((0, []), (1, [b"a"])):
            if sent:
                await world.send(partition_id, *sent)
            route = await client.route("s", "t", partition_id)
            began = trio.current_time()

            polled = await client.ask(poll_of(partition_id, messages_min=2, wait_s=3), route)

            assert payloads(polled) == sent
            assert trio.current_time() - began == pytest.approx(3, abs=0.1)


@DIALECTS
@pytest.mark.parametrize("partition_id", range(PARTITIONS))
async def test_poll_when_it_wants_several_then_waits_for_the_last_of_them(
    autojump_clock, dialect, partition_id
):
    async with running() as world:
        client = await world.client(dialect)
        await world.send(partition_id, b"0")
        route = await client.route("s", "t", partition_id)
        request = await client.send(poll_of(partition_id, start=1, messages_min=3), route)
        for payload in (b"1", b"2"):
            await world.send(partition_id, payload)
            await settle()
            assert not client.has_answer(request)

        await world.send(partition_id, b"3", b"4")

        assert payloads(await client.answer(request)) == [b"1", b"2", b"3", b"4"]


@SHARDS
async def test_poll_when_the_server_waits_less_than_asked_then_is_answered_earlier(
    autojump_clock, shards_count
):
    async with running(shards_count) as world:
        client = await world.client()
        route = await client.route("s", "t", 0)
        began = trio.current_time()

        polled = await client.ask(poll_of(0, wait_s=600), route)

        assert payloads(polled) == []
        assert trio.current_time() - began == pytest.approx(30, abs=0.1)


async def test_poll_when_many_wait_for_one_partition_then_all_are_woken(autojump_clock):
    async with running() as world:
        clients = [await world.client(shard_id=number % 2) for number in range(10)]
        route = await clients[0].route("s", "t", 1)
        requests = [await client.send(poll_of(1), route) for client in clients]
        await settle()

        await world.send(1, b"a")

        for client, request in zip(clients, requests, strict=True):
            assert payloads(await client.answer(request)) == [b"a"]


async def test_poll_when_auto_commit_then_what_is_delivered_is_stored(autojump_clock):
    async with running() as world:
        client = await world.client()
        for partition_id in range(PARTITIONS):
            route = await client.route("s", "t", partition_id)
            request = await client.send(poll_of(partition_id, auto_commit=True, count=1), route)
            await settle()
            await world.send(partition_id, b"a", b"b")
            assert payloads(await client.answer(request)) == [b"a"]

            again = await client.ask(poll_of(partition_id, auto_commit=True), route)

            assert payloads(again) == [b"b"]


# The limit of bytes


@pytest.mark.parametrize("shard_id", [0, 1])
async def test_reply_when_limited_then_ends_between_messages_and_commits_no_more(
    autojump_clock, shard_id
):
    async with running() as world:
        client = await world.client(V0_12_0, shard_id)
        await world.send(0, *[bytes(100)] * 5)
        route = await client.route("s", "t", 0)
        # The head of the reply, that of a batch, and two messages with their heads.
        limit = 40 + 256 + 2 * 148

        poll = poll_of(0, bytes_max=limit + 100, auto_commit=True)
        counts = [len(payloads(await client.ask(poll, route))) for _ in range(3)]

        assert counts == [2, 2, 1]


async def test_first_message_when_larger_than_the_limit_then_is_refused_or_comes_alone(
    autojump_clock,
):
    async with running() as world:
        await world.send(0, bytes(1000), b"small")
        before, later = await world.client(V0_12_0), await world.client(V0_12_2)
        route = await before.route("s", "t", 0)
        poll = poll_of(0, start=0, bytes_max=500)

        assert await before.refusal(poll, route) == StatusCode.INVALID_SIZE_BYTES
        assert payloads(await later.ask(poll, route)) == [bytes(1000)]


# What ends a wait


@DIALECTS
@pytest.mark.parametrize("partition_id", range(PARTITIONS))
async def test_poll_when_its_partition_is_purged_then_ends_with_its_history(
    autojump_clock, dialect, partition_id
):
    async with running() as world:
        client = await world.client(dialect)
        await world.send(partition_id, b"old")
        route = await client.route("s", "t", partition_id)
        request = await client.send(poll_of(partition_id, start=1), route)
        await settle()

        await world.root.ask(PurgeTopic("s", "t"))

        with pytest.raises(Refused) as caught:
            await client.answer(request)
        assert caught.value.status == StatusCode.PARTITION_HISTORY_UNAVAILABLE
        assert await client.refusal(poll_of(partition_id), route) == (
            StatusCode.PARTITION_HISTORY_UNAVAILABLE
        )


@pytest.mark.parametrize("partition_id", range(PARTITIONS))
async def test_poll_when_its_topic_is_deleted_then_ends(autojump_clock, partition_id):
    async with running() as world:
        client = await world.client()
        route = await client.route("s", "t", partition_id)
        request = await client.send(poll_of(partition_id), route)
        await settle()

        await world.root.ask(DeleteTopic("s", "t"))

        with pytest.raises(Refused) as caught:
            await client.answer(request)
        assert caught.value.status == StatusCode.PARTITION_NOT_FOUND


@pytest.mark.parametrize("partition_id", range(PARTITIONS))
async def test_poll_when_cancelled_then_has_no_reply_and_the_connection_goes_on(
    autojump_clock, partition_id
):
    async with running() as world:
        client = await world.client()
        route = await client.route("s", "t", partition_id)
        request = await client.send(poll_of(partition_id), route)
        await settle()
        assert world.waits_count() > 0

        await client.cancel(request)
        await settle()

        assert world.waits_count() == 0
        await world.send(partition_id, b"a")
        assert payloads(await client.ask(poll_of(partition_id), route)) == [b"a"]
        assert not client.has_answer(request)


@pytest.mark.parametrize("partition_id", range(PARTITIONS))
async def test_polls_when_their_connection_is_lost_then_nothing_lingers(
    autojump_clock, partition_id
):
    async with running() as world:
        client = await world.client()
        route = await client.route("s", "t", partition_id)
        for _ in range(5):
            await client.send(poll_of(partition_id, wait_s=30), route)
        await settle()
        assert world.waits_count() > 0

        await client.aclose()
        await trio.sleep(1)

        assert world.waits_count() == 0


@pytest.mark.parametrize("end", ["logout", "user"])
async def test_polls_when_their_session_ends_elsewhere_then_end_on_all_connections(
    autojump_clock, end
):
    async with running() as world:
        client = await world.client()
        other = await world.client(shard_id=1, session=client.session)
        requests = [
            await other.send(poll_of(partition_id), await other.route("s", "t", partition_id))
            for partition_id in range(PARTITIONS)
        ]
        await settle()

        if end == "logout":
            await client.ask(LogoutUser())
        else:
            table = world.server.shards[0].handler_context.sessions.table
            table.revoke(0, lambda new: False)

        for request in requests:
            with pytest.raises(Refused) as caught:
                await other.answer(request)
            assert caught.value.status == StatusCode.UNAUTHENTICATED


async def test_poll_when_the_owner_shard_ends_then_is_refused(autojump_clock):
    async with running() as world:
        client = await world.client(shard_id=0)
        owned = [
            partition_id
            for partition_id in range(PARTITIONS)
            if PartitionKey(0, 0, partition_id) in dict(world.server.shards[1].directory)
        ]
        route = await client.route("s", "t", owned[0])
        request = await client.send(poll_of(owned[0]), route)
        await settle()

        world.server.shards[1]._channels[0]._socket.shutdown(socket.SHUT_RDWR)

        with pytest.raises(Refused) as caught:
            await client.answer(request)
        assert caught.value.status == StatusCode.SHARD_COMMUNICATION_ERROR
        world.server.shards[1]._call_handler._parked.clear()
        for _, log in world.server.shards[1].directory:
            await log.aclose()


# Bounds


async def test_session_when_it_waits_for_too_much_then_is_told_and_may_again(
    autojump_clock, monkeypatch
):
    monkeypatch.setattr(deferred_slots, "REQUESTS_PER_SESSION_MAX", 3)
    async with running() as world:
        client, other = await world.client(), await world.client()
        route = await client.route("s", "t", 0)
        requests = [await client.send(poll_of(0), route) for _ in range(3)]
        await settle()

        assert await client.refusal(poll_of(0), route) == StatusCode.TOO_MANY_DEFERRED_POLLS
        elsewhere = await other.send(poll_of(0), route)
        await client.cancel(requests[0])
        await settle()
        fourth = await client.send(poll_of(0), route)
        await settle()

        await world.send(0, b"a")
        for peer, request in ((client, requests[1]), (client, fourth), (other, elsewhere)):
            assert payloads(await peer.answer(request)) == [b"a"]
        await client.answer(requests[2])


async def test_shard_when_it_waits_for_too_many_partitions_then_refuses(
    autojump_clock, monkeypatch
):
    monkeypatch.setattr(deferred_slots, "PARTITIONS_MAX", 5)
    async with running() as world:
        client = await world.client(V0_12_0)
        route = await client.route("s", "t", 0)
        targets = tuple(WaitTarget(number, PollingStrategy.next()) for number in range(PARTITIONS))
        wait = WaitForMessages(ONE, "s", "t", 10 * SECOND_US, 11 * SECOND_US, targets)
        request = await client.send(wait, route)
        await settle()

        assert await client.refusal(wait, route) == StatusCode.TOO_MANY_DEFERRED_POLLS

        await world.send(3, b"a")
        assert await client.answer(request) == (3,)


@pytest.mark.parametrize("dialect", [V0_11, V0_12_2], ids=lambda dialect: dialect.name)
async def test_poll_when_its_partition_is_purged_between_its_slices_then_commits_nothing(
    autojump_clock, monkeypatch, dialect
):
    monkeypatch.setattr(conversion, "SLICE_BYTES_MAX", 1000)
    async with running(1) as world:
        client = await world.client(dialect)
        await world.send(0, *[b"before"] * 50)
        command = PollMessages(
            ONE, "s", "t", PollingStrategy.first(), 50, partition_id=0, auto_commit=True
        )
        async with world.server.shards[0].handler_context.conversions._turns:
            request = await client.send(command, await client.route("s", "t", 0))
            await settle()
            await world.root.ask(PurgeTopic("s", "t"))
            await world.send(0, *[b"behind"] * 50)
            assert not client.has_answer(request)

        if dialect is V0_11:
            assert set(payloads(await client.answer(request))) == {b"before"}
        else:
            with pytest.raises(Refused) as refused:
                await client.answer(request)
            assert refused.value.status == StatusCode.PARTITION_HISTORY_UNAVAILABLE
        context = await client.route("s", "t", 0)
        assert await client.ask(GetConsumerOffset(ONE, "s", "t", 0), context) is None


@SHARDS
async def test_polls_when_many_wake_together_then_their_replies_fit_into_the_budget_of_that_moment(
    autojump_clock, shards_count
):
    async with running(shards_count) as world:
        clients = [await world.client() for _ in range(6)]
        route = await clients[0].route("s", "t", 0)
        polls = [
            await client.send(poll_of(0, start=0, messages_min=200, count=200), route)
            for client in clients
        ]
        await settle()
        budgets = [shard.budget for shard in world.server.shards]
        held = [budget.limit_bytes for budget in budgets]
        for budget, size in zip(budgets, held, strict=True):
            budget.hold_for_shards(size)

        for _ in range(100):
            await world.send(0, *[bytes(5_000)] * 2)
        replies = [await client.answer(poll) for client, poll in zip(clients, polls, strict=True)]

        for budget, size in zip(budgets, held, strict=True):
            budget.hold_for_shards(-size)
        assert all(0 < reply.messages_count < 20 for reply in replies)


@SHARDS
@pytest.mark.parametrize("kind", ["poll", "wait", "fetch"])
async def test_request_when_its_user_loses_the_permission_while_it_waits_then_is_refused(
    autojump_clock, shards_count, kind
):
    async with running(shards_count) as world:
        grants = Permissions(GlobalPermissions(poll_messages=True))
        await world.root.ask(CreateUser("joe", "secret", permissions=grants))
        dialect = V0_12_0 if kind == "wait" else V0_12_2
        joe = VsrPeer(world.server, world.nursery, shards_count - 1, vsr_session(dialect))
        await joe.login("joe", "secret")
        route = await joe.route("s", "t", 0)
        command = poll_of(0)
        if kind == "wait":
            command = wait_of((0, PollingStrategy.next()))
        elif kind == "fetch":
            command = await fetch_of(joe, 0)
        request = await joe.send(command, route)
        await settle()

        await world.root.ask(UpdatePermissions("joe", Permissions()))
        await world.send(0, b"secret")

        with pytest.raises(Refused) as refused:
            await joe.answer(request)
        assert refused.value.status == StatusCode.UNAUTHORIZED

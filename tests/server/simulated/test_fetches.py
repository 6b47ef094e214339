"""Waits for many partitions, and fetches of them, on simulated shards and a virtual clock."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from iggy_protocol import (
    CreateConsumerGroup,
    CreatePartitions,
    FetchMessages,
    FetchTarget,
    PollingStrategy,
    StatusCode,
    StoreConsumerOffset,
)
from iggy_ref_server.dispatch.handlers import fetches
from tests.server.simulated.deferred_calls import (
    GROUP,
    NEXT,
    ONE,
    PARTITIONS,
    SECOND_US,
    SHARDS,
    V0_12_0,
    V0_12_2,
    fetch_of,
    join,
    partitions_of,
    running,
    sections_of,
    settle,
    wait_of,
)

pytestmark = [pytest.mark.trio, pytest.mark.virtual_time]


@SHARDS
async def test_wait_when_partitions_hold_messages_then_names_all_of_them_at_once(
    autojump_clock, shards_count
):
    async with running(shards_count) as world:
        client = await world.client(V0_12_0)
        route = await client.route("s", "t", 0)
        for partition_id in (1, 2, 3):
            await world.send(partition_id, b"a")
        await client.ask(StoreConsumerOffset(ONE, "s", "t", 0, 3), await client.route("s", "t", 3))
        beyond, at = PollingStrategy.offset(1), PollingStrategy.offset(0)

        asked = wait_of((0, NEXT), (1, at), (2, NEXT), (3, NEXT), wait_s=0)
        assert await client.ask(asked, route) == (1, 2)
        began = trio.current_time()
        assert await client.ask(wait_of((1, beyond), (0, NEXT), wait_s=5), route) == ()
        assert trio.current_time() - began == pytest.approx(5, abs=0.1)


@pytest.mark.parametrize("partition_id", range(PARTITIONS))
async def test_wait_when_a_message_comes_then_names_its_partition(autojump_clock, partition_id):
    async with running() as world:
        client = await world.client(V0_12_0)
        route = await client.route("s", "t", 0)
        request = await client.send(
            wait_of(*((number, NEXT) for number in range(PARTITIONS))), route
        )
        await settle()

        await world.send(partition_id, b"a")

        assert await client.answer(request) == (partition_id,)


@SHARDS
async def test_fetch_when_partitions_hold_messages_then_has_a_section_for_each(
    autojump_clock, shards_count
):
    async with running(shards_count) as world:
        client = await world.client()
        await world.send(1, b"a", b"b")
        await world.send(3, b"c")

        fetched = await client.ask(await fetch_of(client, 3, 0, 1))

        assert sections_of(fetched) == {3: (0, [b"c"]), 0: (0, []), 1: (0, [b"a", b"b"])}
        assert [one.partition_id for one in fetched] == [3, 0, 1]
        assert [one.next_offset for one in fetched] == [1, 0, 2]
        assert all(one.context.incarnation for one in fetched)


@pytest.mark.parametrize("partition_id", range(PARTITIONS))
async def test_fetch_when_messages_come_then_waits_for_enough_of_all_together(
    autojump_clock, partition_id
):
    async with running() as world:
        client = await world.client()
        request = await client.send(await fetch_of(client, *range(PARTITIONS), messages_min=3))
        other = (partition_id + 1) % PARTITIONS
        for number in (partition_id, other):
            await world.send(number, b"a")
            await settle()
            assert not client.has_answer(request)

        await world.send(partition_id, b"b")

        found = sections_of(await client.answer(request))
        assert found[partition_id] == (0, [b"a", b"b"])
        assert found[other] == (0, [b"a"])


async def test_fetch_when_its_time_is_over_then_has_what_there_is(autojump_clock):
    async with running() as world:
        client = await world.client()
        await world.send(2, b"a")
        began = trio.current_time()

        fetched = await client.ask(await fetch_of(client, 1, 2, messages_min=2, wait_s=4))

        assert sections_of(fetched) == {1: (0, []), 2: (0, [b"a"])}
        assert trio.current_time() - began == pytest.approx(4, abs=0.1)


async def test_fetch_when_it_commits_then_the_next_goes_on_behind_it(autojump_clock):
    async with running() as world:
        client = await world.client()
        for partition_id in range(PARTITIONS):
            await world.send(partition_id, b"a", b"b")
        fetch = await fetch_of(client, *range(PARTITIONS), count=3, auto_commit=True)

        taken = []
        for _ in range(3):
            for one in await client.ask(fetch):
                taken += [(one.partition_id, payload) for payload in one.messages.payloads()]

        expected = [(number, payload) for number in range(PARTITIONS) for payload in (b"a", b"b")]
        assert taken == expected


async def test_fetch_when_one_partition_is_not_what_the_client_means_then_the_others_are_read(
    autojump_clock,
):
    async with running() as world:
        client = await world.client()
        await world.send(0, b"a")
        fetch = await fetch_of(client, 0, 1)
        stale = FetchTarget(1, NEXT, 1 << 20, 12345)
        absent = FetchTarget(77, NEXT, 1 << 20, 12345)
        owned = FetchTarget(2, NEXT, 1 << 20, fetch.targets[1].incarnation, 9)
        targets = (fetch.targets[0], stale, absent, owned)
        asked = FetchMessages(ONE, "s", "t", 10 * SECOND_US, 12 * SECOND_US, targets, 9)
        began = trio.current_time()

        found = sections_of(await client.ask(asked))

        assert found == {
            0: (0, [b"a"]),
            1: (StatusCode.PARTITION_HISTORY_UNAVAILABLE, []),
            77: (StatusCode.PARTITION_NOT_FOUND, []),
            2: (StatusCode.CONSUMER_GROUP_PARTITION_NOT_OWNED, []),
        }
        assert trio.current_time() - began < 1, "what is wrong is told at once"


async def test_fetch_when_limited_in_bytes_then_leaves_the_rest_for_the_next(autojump_clock):
    async with running() as world:
        client = await world.client()
        for partition_id in (0, 1):
            await world.send(partition_id, bytes(1000))
            await world.send(partition_id, bytes(1000))
        # The heads of the sections, and one batch of one message.
        limit = 4 + 2 * 56 + 256 + 48 + 1000

        first = await client.ask(await fetch_of(client, 0, 1, bytes_max=limit, start=0))
        alone = await client.ask(await fetch_of(client, 1, 0, bytes_max=400, start=0))

        assert [one.messages_count for one in first] == [1, 0]
        assert [one.next_offset for one in first] == [1, 0]
        assert [one.messages_count for one in alone] == [1, 0]


async def test_fetch_of_a_member_when_a_partition_is_lost_then_its_section_says_so(
    autojump_clock,
):
    async with running() as world:
        await world.root.ask(CreateConsumerGroup("s", "t", "g"))
        first, second = await world.client(), await world.client(shard_id=1)
        await join(first)
        request = await first.send(await fetch_of(first, *range(PARTITIONS), consumer=GROUP))
        await settle()

        await join(second)

        statuses = {one.partition_id: one.status for one in await first.answer(request)}
        lost = set(await partitions_of(second))
        assert statuses == {
            number: StatusCode.CONSUMER_GROUP_PARTITION_NOT_OWNED if number in lost else 0
            for number in range(PARTITIONS)
        }


class Rounds(trio.abc.Instrument):
    """Counts the rounds of the loop."""

    def __init__(self):
        self.count = 0

    def before_io_wait(self, timeout):
        self.count += 1


async def test_fetch_when_of_many_partitions_then_the_loop_is_free_in_between(autojump_clock):
    async with running(1) as world:
        client = await world.client(V0_12_2)
        await world.root.ask(CreatePartitions("s", "t", 512 - PARTITIONS))
        for partition_id in (0, 300, 511):
            await world.send(partition_id, b"m")
        command = await fetch_of(client, *range(512), wait_s=0, start=0)
        rounds = Rounds()
        trio.lowlevel.add_instrument(rounds)

        sections = sections_of(await client.ask(command))

        trio.lowlevel.remove_instrument(rounds)
        assert [number for number, (_, found) in sections.items() if found] == [0, 300, 511]
        # Twice: they are looked for, and then read.
        assert rounds.count >= 2 * 512 // fetches.PARTITIONS_PER_TURN

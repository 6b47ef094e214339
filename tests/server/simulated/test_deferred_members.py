"""Members of groups that wait, on simulated shards: the fence, hand-overs, who outlives what."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from iggy_protocol import (
    CreateConsumerGroup,
    LeaveConsumerGroup,
    PartitionContext,
    StatusCode,
    StoreConsumerOffset,
)
from tests.server.simulated.deferred_calls import (
    DIALECTS,
    GROUP,
    NEXT,
    PARTITIONS,
    V0_12_0,
    join,
    partitions_of,
    poll_of,
    running,
    settle,
    wait_of,
)
from tests.server.simulated.server import Refused
from tests.server.simulated.vsr_calls import VsrPeer

pytestmark = [pytest.mark.trio, pytest.mark.virtual_time]


@DIALECTS
@pytest.mark.parametrize("shard_id", [0, 1])
async def test_member_when_its_partition_moves_then_its_wait_ends(
    autojump_clock, dialect, shard_id
):
    async with running() as world:
        await world.root.ask(CreateConsumerGroup("s", "t", "g"))
        first = await world.client(dialect, shard_id)
        await join(first)
        requests = {
            partition_id: await first.send(
                poll_of(partition_id, consumer=GROUP), await first.route("s", "t", partition_id)
            )
            for partition_id in await partitions_of(first)
        }
        await settle()

        second = await world.client(dialect, 1 - shard_id)
        await join(second)

        kept = await partitions_of(first)
        assert len(kept) == PARTITIONS // 2
        for partition_id, request in requests.items():
            if partition_id in kept:
                await settle()
                assert not first.has_answer(request)
                await first.cancel(request)
            else:
                with pytest.raises(Refused) as caught:
                    await first.answer(request)
                assert caught.value.status == StatusCode.CONSUMER_GROUP_PARTITION_NOT_OWNED


async def test_member_when_it_has_not_drained_a_promised_partition_then_only_stores_its_offset(
    autojump_clock,
):
    async with running() as world:
        await world.root.ask(CreateConsumerGroup("s", "t", "g"))
        first, second = await world.client(), await world.client(shard_id=1)
        await join(first)
        contexts = {}
        for partition_id in range(PARTITIONS):
            await world.send(partition_id, b"a")
            polled = await first.ask(
                poll_of(partition_id, consumer=GROUP),
                await first.route("s", "t", partition_id),
            )
            contexts[partition_id] = polled.context
            assert polled.context.owner_generation

        await join(second)
        assert await partitions_of(second) == ()
        promised = sorted(set(range(PARTITIONS)) - set(await partitions_of(first)))
        assert len(promised) == PARTITIONS // 2

        for partition_id in promised:
            context = contexts[partition_id]
            poll = poll_of(partition_id, consumer=GROUP)
            not_owned = StatusCode.CONSUMER_GROUP_PARTITION_NOT_OWNED
            assert await first.refusal(poll, context) == not_owned
            await first.ask(StoreConsumerOffset(GROUP, "s", "t", 0, partition_id), context)
            store = StoreConsumerOffset(GROUP, "s", "t", 0, partition_id)
            assert await first.refusal(store, context) == not_owned
        assert await partitions_of(second) == tuple(promised)


async def test_member_when_it_names_an_earlier_ownership_then_is_fenced(autojump_clock):
    async with running() as world:
        await world.root.ask(CreateConsumerGroup("s", "t", "g"))
        client = await world.client(shard_id=1)
        await join(client)
        await world.send(0, b"a")
        route = await client.route("s", "t", 0)
        context = (await client.ask(poll_of(0, consumer=GROUP), route)).context
        await client.ask(LeaveConsumerGroup("s", "t", "g"))
        await join(client)

        assert await client.refusal(poll_of(0, consumer=GROUP), context) == (
            StatusCode.CONSUMER_GROUP_PARTITION_NOT_OWNED
        )
        again = await client.ask(poll_of(0, consumer=GROUP), route)
        assert again.context.owner_generation > context.owner_generation


async def test_single_consumer_when_it_names_an_ownership_then_is_fenced(autojump_clock):
    async with running() as world:
        client = await world.client()
        route = await client.route("s", "t", 0)
        owned = PartitionContext(route.incarnation, 7, route.metadata_position)

        assert await client.refusal(poll_of(0), owned) == (
            StatusCode.CONSUMER_GROUP_PARTITION_NOT_OWNED
        )


async def test_member_when_its_connection_is_lost_then_stays_for_its_session(autojump_clock):
    async with running() as world:
        await world.root.ask(CreateConsumerGroup("s", "t", "g"))
        client, other = await world.client(), await world.client(shard_id=1)
        await join(client)
        await client.aclose()
        await trio.sleep(20)

        again = await world.client(session=client.session, shard_id=1)

        assert await partitions_of(again) == tuple(range(PARTITIONS))
        await join(other)
        await again.aclose()
        await trio.sleep(28)
        assert len(await partitions_of(other)) == PARTITIONS // 2
        await trio.sleep(4)
        assert await partitions_of(other) == tuple(range(PARTITIONS))
        assert await VsrPeer(world.server, world.nursery, 0, client.session).refusal(
            client.session.bind()
        ) == (StatusCode.UNAUTHENTICATED)


async def test_wait_when_a_partition_is_lost_then_the_member_is_told(autojump_clock):
    async with running() as world:
        await world.root.ask(CreateConsumerGroup("s", "t", "g"))
        first, second = await world.client(V0_12_0), await world.client(shard_id=1)
        await join(first)
        route = await first.route("s", "t", 0)
        targets = [(number, NEXT) for number in range(PARTITIONS)]
        request = await first.send(wait_of(*targets, consumer=GROUP), route)
        await settle()

        await join(second)

        with pytest.raises(Refused) as caught:
            await first.answer(request)
        assert caught.value.status == StatusCode.CONSUMER_GROUP_PARTITION_NOT_OWNED
        assert await first.refusal(wait_of(*targets, consumer=GROUP), route) == (
            StatusCode.CONSUMER_GROUP_PARTITION_NOT_OWNED
        )

"""The round-robin of balanced sends, over all shards."""

from __future__ import annotations

import pytest

from iggy_protocol import (
    ConsumerIdentity,
    CreatePartitions,
    CreateStream,
    CreateTopic,
    DeletePartitions,
    DeleteTopic,
    GetTopic,
    HeadroomBuffer,
    Partitioning,
    PollingStrategy,
    PollMessages,
    SendMessages,
    encode_request,
)
from tests.server.simulated.server import open_simulated_server

BALANCED = Partitioning.balanced()


@pytest.mark.trio
@pytest.mark.parametrize("shards_count", [1, 3])
async def test_balanced_sends_of_many_clients_go_round_in_order(shards_count, autojump_clock):
    async with open_simulated_server(shards_count=shards_count) as world:
        clients = [await world.log_in(shard_id) for shard_id in range(shards_count)]
        for life in range(2):
            if life:
                await clients[0].ask(DeleteTopic("s", "t"))
            else:
                await clients[0].ask(CreateStream("s"))
            await clients[0].ask(CreateTopic("s", "t", 4))
            for n in range(8):
                client = clients[n % shards_count]
                await client.ask(SendMessages("s", "t", BALANCED, [b"%d" % n]))
            for partition_id in range(4):
                poll = PollMessages(
                    ConsumerIdentity.single(1), "s", "t", PollingStrategy.first(), 9, partition_id
                )
                found = (await clients[0].ask(poll)).messages.payloads()
                assert found == [b"%d" % partition_id, b"%d" % (partition_id + 4)]


@pytest.mark.trio
async def test_balanced_sends_when_partitions_come_and_go_then_the_turn_stays(autojump_clock):
    async with open_simulated_server(shards_count=2) as world:
        client = await world.log_in(1)
        await client.ask(CreateStream("s"))
        await client.ask(CreateTopic("s", "t", 3))

        async def where_the_next_goes(payload):
            await client.ask(SendMessages("s", "t", BALANCED, [payload]))
            topic = await client.ask(GetTopic("s", "t"))
            assert topic is not None
            for partition_id in range(topic.partitions_count):
                poll = PollMessages(
                    ConsumerIdentity.single(1), "s", "t", PollingStrategy.last(), 1, partition_id
                )
                if (await client.ask(poll)).messages.payloads() == [payload]:
                    return partition_id
            return None

        round_robin_memory = [await where_the_next_goes(b"%d" % n) for n in range(4)]
        await client.ask(CreatePartitions("s", "t", 2))
        round_robin_memory += [await where_the_next_goes(b"more %d" % n) for n in range(3)]
        await client.ask(DeletePartitions("s", "t", 3))
        round_robin_memory += [await where_the_next_goes(b"fewer %d" % n) for n in range(2)]

        assert round_robin_memory == [0, 1, 2, 0, 1, 2, 3, 0, 1]


@pytest.mark.trio
@pytest.mark.parametrize("partitioning", [BALANCED, Partitioning.partition(3)])
async def test_sends_of_http_when_confirmed_then_tell_the_place_on_any_shard(
    partitioning, autojump_clock
):
    async with open_simulated_server(shards_count=2) as world:
        client = await world.log_in(1)
        await client.ask(CreateStream("s"))
        await client.ask(CreateTopic("s", "t", 4))
        session = next(one.session for one in world.shards[1].clients)
        appender = world.shards[1].handler_context.appender
        told = []
        for n in range(8):
            (encoded,) = encode_request(SendMessages("s", "t", partitioning, [b"%d" % n]))
            assert isinstance(encoded, HeadroomBuffer)
            body = memoryview(encoded.buffer)[encoded.headroom :]
            staged = appender.stage_confirmed(session, body)
            appender.commit()
            await staged.pending.wait()
            told += staged.confirmations

        assert len(told) == 8
        for n, place in enumerate(told):
            start = PollingStrategy.offset(place.base_offset)
            poll = PollMessages(ConsumerIdentity.single(1), "s", "t", start, 1, place.partition_id)
            assert (await client.ask(poll)).messages.payloads() == [b"%d" % n]

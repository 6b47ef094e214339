"""A whole server in one process: commands, shards, restarts."""

from __future__ import annotations

import pytest
import trio

from iggy_protocol import (
    ConsumerIdentity,
    CreateConsumerGroup,
    CreateStream,
    CreateTopic,
    DeleteStream,
    GetClients,
    GetConsumerGroup,
    GetConsumerOffset,
    GetMe,
    GetStats,
    GetStream,
    GetStreams,
    GetTopic,
    JoinConsumerGroup,
    Partitioning,
    Ping,
    PollingStrategy,
    PollMessages,
    PurgeTopic,
    SendMessages,
    StatusCode,
)
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.simulated.server import Client, ConnectionLost, Refused, open_simulated_server

SHARDS = [1, 2, 3]


async def make_topic(client: Client, partitions_count: int = 1) -> None:
    await client.ask(CreateStream("s"))
    await client.ask(CreateTopic("s", "t", partitions_count))


def send(*payloads: bytes, to: int | None = 0) -> SendMessages:
    partitioning = Partitioning.balanced() if to is None else Partitioning.partition(to)
    return SendMessages("s", "t", partitioning, list(payloads))


def poll(start: PollingStrategy, partition_id: int = 0, *, commit: bool = False) -> PollMessages:
    consumer = ConsumerIdentity.single(1)
    return PollMessages(consumer, "s", "t", start, 100, partition_id, auto_commit=commit)


async def payloads(client: Client, partition_id: int = 0) -> list[bytes]:
    return (await client.ask(poll(PollingStrategy.first(), partition_id))).messages.payloads()


@pytest.mark.trio
@pytest.mark.parametrize("shards_count", SHARDS)
async def test_what_is_sent_through_one_shard_is_polled_through_all(shards_count, autojump_clock):
    async with open_simulated_server(shards_count=shards_count) as world:
        first = await world.log_in()
        await make_topic(first, 8)
        for partition_id in range(8):
            await first.ask(send(b"%d" % partition_id, to=partition_id))
        for shard_id in range(shards_count):
            client = await world.log_in(shard_id)
            for partition_id in range(8):
                assert await payloads(client, partition_id) == [b"%d" % partition_id]


@pytest.mark.trio
@pytest.mark.parametrize("shards_count", SHARDS)
async def test_pipelined_sends_of_one_client_keep_their_order(shards_count, autojump_clock):
    async with open_simulated_server(shards_count=shards_count) as world:
        await make_topic(await world.log_in(), 4)
        for shard_id in range(shards_count):
            client = await world.log_in(shard_id)
            await client.send(*[send(b"%d" % n, to=2) for n in range(50)])
            for _ in range(50):
                await client.answer()
        start, client = PollingStrategy.offset, await world.log_in()
        for shard_id in range(shards_count):
            polled = await client.ask(poll(start(50 * shard_id), 2))
            assert polled.messages.payloads()[:50] == [b"%d" % n for n in range(50)]


@pytest.mark.trio
async def test_a_poll_behind_a_send_sees_it(autojump_clock):
    async with open_simulated_server(shards_count=2) as world:
        client = await world.log_in()
        await make_topic(client, 2)
        for partition_id in (0, 1):
            await client.send(
                send(b"mine", to=partition_id), poll(PollingStrategy.first(), partition_id), Ping()
            )
            assert await client.answer() is None
            assert (await client.answer()).messages.payloads() == [b"mine"]
            assert await client.answer() is None


@pytest.mark.trio
@pytest.mark.parametrize("shards_count", SHARDS)
async def test_everything_is_there_after_a_restart(shards_count, autojump_clock):
    storage = SimulatedStorage()
    async with open_simulated_server(storage, shards_count=2) as world:
        client = await world.log_in(1)
        await make_topic(client, 3)
        await client.ask(send(b"a", b"b", to=1))
        await client.ask(poll(PollingStrategy.first(), 1, commit=True))
    async with open_simulated_server(storage, shards_count=shards_count) as world:
        client = await world.log_in()
        assert await payloads(client, 1) == [b"a", b"b"]
        offset = await client.ask(GetConsumerOffset(ConsumerIdentity.single(1), "s", "t", 1))
        assert offset is not None
        assert offset.stored_offset == 1
        await client.ask(send(b"c", to=1))
        assert (await client.ask(poll(PollingStrategy.next(), 1))).messages.payloads() == [b"c"]


@pytest.mark.trio
async def test_every_shard_follows_every_change_at_once(autojump_clock):
    async with open_simulated_server(shards_count=3) as world:
        clients = [await world.log_in(shard_id) for shard_id in range(3)]
        await clients[1].ask(CreateStream("s"))
        for client in clients:
            assert await client.ask(GetStream("s")) is not None
        await clients[2].ask(DeleteStream("s"))
        for client in clients:
            assert await client.ask(GetStream("s")) is None


@pytest.mark.trio
async def test_purge_empties_the_partitions_of_all_shards(autojump_clock):
    async with open_simulated_server(shards_count=2) as world:
        client = await world.log_in(1)
        await make_topic(client, 4)
        for partition_id in range(4):
            await client.ask(send(b"old", to=partition_id))
        await client.ask(PurgeTopic("s", "t"))
        topic = await client.ask(GetTopic("s", "t"))
        assert topic is not None
        assert (topic.messages_count, topic.size_bytes) == (0, 0)
        await client.ask(send(b"new", to=3))
        assert await payloads(client, 3) == [b"new"]


@pytest.mark.trio
async def test_members_on_different_shards_share_a_group(autojump_clock):
    async with open_simulated_server(shards_count=2) as world:
        clients = [await world.log_in(shard_id) for shard_id in (0, 1)]
        await make_topic(clients[0], 4)
        await clients[0].ask(CreateConsumerGroup("s", "t", "g"))
        for client in clients:
            await client.ask(JoinConsumerGroup("s", "t", "g"))
        for partition_id in range(4):
            await clients[0].ask(send(b"%d" % partition_id, to=partition_id))
        got = []
        member = PollMessages(
            ConsumerIdentity.group("g"), "s", "t", PollingStrategy.next(), 10, auto_commit=True
        )
        for client in clients:
            for _ in range(2):
                got += (await client.ask(member)).messages.payloads()
        assert sorted(got) == [b"0", b"1", b"2", b"3"]


@pytest.mark.trio
async def test_a_client_that_hangs_up_leaves_its_groups(autojump_clock):
    async with open_simulated_server(shards_count=2) as world:
        stays, goes = await world.log_in(0), await world.log_in(1)
        await make_topic(stays, 4)
        await stays.ask(CreateConsumerGroup("s", "t", "g"))
        for client in (stays, goes):
            await client.ask(JoinConsumerGroup("s", "t", "g"))
        assert len((await goes.ask(GetMe())).consumer_groups) == 1
        await goes.aclose()
        await trio.sleep(1)
        group = await stays.ask(GetConsumerGroup("s", "t", "g"))
        assert group is not None
        assert [len(member.partitions) for member in group.members] == [4]
        assert len(await stays.ask(GetClients())) == 1


@pytest.mark.trio
async def test_statistics_add_up_over_all_shards(autojump_clock):
    async with open_simulated_server(shards_count=3) as world:
        client = await world.log_in(2)
        await make_topic(client, 6)
        for partition_id in range(6):
            await client.ask(send(b"1234", to=partition_id))
        stats = await client.ask(GetStats())
        assert stats.messages_count == stats.segments_count == stats.partitions_count == 6
        assert stats.messages_size_bytes == 6 * 68
        assert stats.clients_count == 1


@pytest.mark.trio
async def test_before_a_login_only_ping_is_answered(autojump_clock):
    async with open_simulated_server(shards_count=2) as world:
        for shard_id in (0, 1):
            client = world.connect(shard_id)
            await client.ask(Ping())
            for command in (GetStats(), CreateStream("s"), send(b"x")):
                with pytest.raises(Refused) as refusal:
                    await client.ask(command)
                assert refusal.value.status == StatusCode.UNAUTHENTICATED


@pytest.mark.trio
async def test_heartbeats_that_stop_end_the_connection(autojump_clock):
    settings = {"HEARTBEAT_ENABLED": "true", "HEARTBEAT_INTERVAL": "2 s"}
    async with open_simulated_server(shards_count=2, settings=settings) as world:
        silent, lively = await world.log_in(1), await world.log_in(0)
        await make_topic(lively)
        await lively.ask(CreateConsumerGroup("s", "t", "g"))
        await silent.ask(JoinConsumerGroup("s", "t", "g"))
        for _ in range(5):
            await trio.sleep(1)
            await lively.ask(Ping())
        group = await lively.ask(GetConsumerGroup("s", "t", "g"))
        assert group is not None
        assert group.members == ()
        assert len(await lively.ask(GetClients())) == 1
        for _ in range(4):
            await trio.sleep(1)
            await lively.ask(Ping())
        await silent.ask(GetStreams())
        for _ in range(2):
            await trio.sleep(1)
            await lively.ask(Ping())
        with pytest.raises(ConnectionLost):
            await silent.ask(GetStreams())


@pytest.mark.trio
@pytest.mark.parametrize("came_s", [0.1, 0.7, 1.3, 1.9])
async def test_client_silent_for_two_intervals_whenever_it_came_keeps_its_place(
    came_s, autojump_clock
):
    settings = {"HEARTBEAT_ENABLED": "true", "HEARTBEAT_INTERVAL": "2 s"}
    async with open_simulated_server(settings=settings) as world:
        lively = await world.log_in()
        await make_topic(lively)
        await lively.ask(CreateConsumerGroup("s", "t", "g"))
        await trio.sleep(came_s)
        silent = await world.log_in()
        await silent.ask(JoinConsumerGroup("s", "t", "g"))
        await lively.ask(Ping())
        for is_member in (True, False):
            await trio.sleep(4.2 if is_member else 0.6)
            group = await lively.ask(GetConsumerGroup("s", "t", "g"))
            assert group is not None
            assert bool(group.members) is is_member


@pytest.mark.trio
@pytest.mark.parametrize("late", [GetMe(), JoinConsumerGroup("s", "t", "g")])
async def test_client_that_missed_its_heartbeats_and_asks_for_its_place_must_come_anew(
    late, autojump_clock
):
    settings = {"HEARTBEAT_ENABLED": "true", "HEARTBEAT_INTERVAL": "2 s"}
    async with open_simulated_server(settings=settings) as world:
        silent, lively = await world.log_in(), await world.log_in()
        await make_topic(lively)
        await lively.ask(CreateConsumerGroup("s", "t", "g"))
        await trio.sleep(5)
        await silent.ask(Ping())
        with pytest.raises(Refused) as refused:
            await silent.ask(late)
        assert refused.value.status in (StatusCode.CLIENT_NOT_FOUND, StatusCode.STALE_CLIENT)
        with pytest.raises(ConnectionLost):
            await silent.ask(Ping())

"""The partitions of a shard when the disk refuses some of them."""

from __future__ import annotations

import errno

import pytest
import trio

from iggy_protocol import (
    ConsumerIdentity,
    CreateStream,
    CreateTopic,
    DeleteTopic,
    Partitioning,
    PollingStrategy,
    PollMessages,
    PurgeTopic,
    SendMessages,
    StatusCode,
)
from iggy_ref_server.storage.simulated.fault_plan import FaultPlan
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.simulated.server import Client, Refused, open_simulated_server

pytestmark = pytest.mark.trio

SHARDS = pytest.mark.parametrize("shards_count", [1, 2])


async def send(client: Client, partition_id: int) -> None:
    """Send one message to a partition."""
    where = Partitioning.partition(partition_id)
    await client.ask(SendMessages("s", "t", where, [b"%d" % partition_id]))


async def read(client: Client, partition_id: int) -> list[bytes]:
    """Read a partition from its beginning."""
    first = PollingStrategy.first()
    poll = PollMessages(ConsumerIdentity.single(1), "s", "t", first, 100, partition_id)
    return (await client.ask(poll)).messages.payloads()


async def refusal(client: Client, partition_id: int) -> int:
    """Send what has to be refused, and return why it is."""
    with pytest.raises(Refused) as refused:
        await send(client, partition_id)
    return refused.value.status


@SHARDS
async def test_partition_when_the_disk_refuses_it_at_a_start_then_the_others_are_served(
    shards_count, autojump_clock
):
    plan = FaultPlan()
    storage = SimulatedStorage(plan)
    async with open_simulated_server(storage) as world:
        client = await world.log_in()
        await client.ask(CreateStream("s"))
        await client.ask(CreateTopic("s", "t", 3))
        for partition_id in range(3):
            await send(client, partition_id)

    plan.fail("open", path="*/partitions/1/*")
    async with open_simulated_server(storage, shards_count=shards_count) as world:
        client = await world.log_in()
        assert await read(client, 0) == [b"0"]
        assert await read(client, 2) == [b"2"]
        assert await refusal(client, 1) == StatusCode.CANNOT_READ_PARTITIONS

        plan.heal()
        await trio.sleep(3)
        await send(client, 1)
        assert await read(client, 1) == [b"1", b"1"]


@SHARDS
async def test_topic_when_made_on_a_full_disk_then_works_when_there_is_room(
    shards_count, autojump_clock
):
    plan = FaultPlan()
    async with open_simulated_server(SimulatedStorage(plan), shards_count=shards_count) as world:
        client = await world.log_in()
        await client.ask(CreateStream("s"))
        plan.fail("open", errno=errno.ENOSPC, path="streams/*")
        await client.ask(CreateTopic("s", "t", 2))
        assert await refusal(client, 0) == StatusCode.CANNOT_WRITE_TO_FILE

        plan.heal()
        await trio.sleep(3)
        for partition_id in range(2):
            await send(client, partition_id)
            assert await read(client, partition_id) == [b"%d" % partition_id]


@SHARDS
async def test_purge_when_the_disk_refuses_it_then_nothing_is_seen_and_it_is_finished_later(
    shards_count, autojump_clock
):
    plan = FaultPlan()
    async with open_simulated_server(SimulatedStorage(plan), shards_count=shards_count) as world:
        client = await world.log_in()
        await client.ask(CreateStream("s"))
        await client.ask(CreateTopic("s", "t", 2))
        for partition_id in range(2):
            await send(client, partition_id)
        plan.fail("remove", path="*/partitions/1/*")
        await client.ask(PurgeTopic("s", "t"))
        for partition_id in range(2):
            assert await read(client, partition_id) == []
        await send(client, 0)
        assert await refusal(client, 1) == StatusCode.CANNOT_APPEND_MESSAGE

        plan.heal()
        await trio.sleep(3)
        await send(client, 1)
        assert await read(client, 1) == [b"1"]


async def test_topic_when_deleted_and_the_disk_keeps_its_files_then_no_client_sees_them(
    autojump_clock,
):
    plan = FaultPlan()
    async with open_simulated_server(SimulatedStorage(plan), shards_count=2) as world:
        client = await world.log_in()
        await client.ask(CreateStream("s"))
        await client.ask(CreateTopic("s", "t", 2))
        await send(client, 0)
        plan.fail("remove_tree")
        await client.ask(DeleteTopic("s", "t"))
        plan.heal()
        await client.ask(CreateTopic("s", "t", 2))
        assert await read(client, 0) == []


async def test_sends_when_the_topic_is_purged_again_and_again_then_none_is_refused(autojump_clock):
    async with open_simulated_server(shards_count=2) as world:
        owner = await world.log_in()
        await owner.ask(CreateStream("s"))
        await owner.ask(CreateTopic("s", "t", 4))

        async def send_on(shard_id: int) -> None:
            client = await world.log_in(shard_id=shard_id)
            for number in range(100):
                await send(client, number % 4)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_on, 0)
            nursery.start_soon(send_on, 1)
            for _ in range(25):
                await owner.ask(PurgeTopic("s", "t"))

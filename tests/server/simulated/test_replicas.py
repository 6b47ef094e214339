"""What clients of different shards see of a change while the shards follow it."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from iggy_protocol import (
    CreateConsumerGroup,
    CreatePartitions,
    CreateStream,
    CreateTopic,
    DeleteStream,
    GetConsumerGroups,
    GetStream,
    GetTopic,
    Partitioning,
    SendMessages,
)
from iggy_ref_server.shard.partition_directory import PartitionKey
from iggy_ref_server.shard.router import owner_shard
from iggy_ref_server.storage.simulated.fault_plan import FaultPlan
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.simulated.server import open_simulated_server

pytestmark = pytest.mark.trio

PARTITIONS = 6


def slow_disk_of(shard_id: int, shards_count: int) -> SimulatedStorage:
    """Make files of the partitions of one shard take their time."""
    plan = FaultPlan()
    for partition_id in range(PARTITIONS):
        if owner_shard(PartitionKey(0, 0, partition_id), shards_count) == shard_id:
            plan.delay("open", path=f"*/partitions/{partition_id}/*", seconds=5)
    assert plan.rules, "the shard has no partition of this topic"
    return SimulatedStorage(plan)


@pytest.mark.parametrize("slow", [0, 1, 2])
@pytest.mark.parametrize("command", [CreateTopic("s", "t", PARTITIONS), CreatePartitions])
async def test_partitions_when_seen_by_any_client_then_can_be_used(slow, command, autojump_clock):
    async with (
        open_simulated_server(slow_disk_of(slow, 3), shards_count=3) as world,
        trio.open_nursery() as all_,
    ):
        maker = await world.log_in(0)
        await maker.ask(CreateStream("s"))
        if command is CreatePartitions:
            await maker.ask(CreateTopic("s", "t", 0))
            command = CreatePartitions("s", "t", PARTITIONS)
        all_.start_soon(maker.ask, command)
        for shard_id in (1, 2, 0):
            client = await world.log_in(shard_id)
            for _ in range(1000):
                topic = await client.ask(GetTopic("s", "t"))
                if topic is not None and topic.partitions:
                    break
                await trio.sleep(0.1)
            for partition_id in range(PARTITIONS):
                where = Partitioning.partition(partition_id)
                await client.ask(SendMessages("s", "t", where, [b"x"]))


async def test_answer_of_shard_0_when_ahead_of_the_replica_then_waits_for_it(autojump_clock):
    """Groups are listed by shard 0, and polled here: what was listed has to be known here."""
    async with open_simulated_server(shards_count=2) as world:
        maker, client = await world.log_in(0), await world.log_in(1)
        await maker.ask(CreateStream("s"))
        await maker.ask(CreateTopic("s", "t", 1))
        replica, listed = world.shards[1].metadata, trio.Event()

        async def list_groups():
            found = await client.ask(GetConsumerGroups("s", "t"))
            assert [group.name for group in found] == ["g"]
            listed.set()

        async with trio.open_nursery() as nursery:
            async with replica._apply_lock:
                nursery.start_soon(maker.ask, CreateConsumerGroup("s", "t", "g"))
                await trio.testing.wait_all_tasks_blocked(0.01)
                nursery.start_soon(list_groups)
                await trio.testing.wait_all_tasks_blocked(0.01)
                assert not listed.is_set()
            await listed.wait()
        assert replica.current.version == world.shards[0].metadata.current.version


async def test_versions_when_many_change_metadata_then_no_client_sees_them_go_back(autojump_clock):
    plan = FaultPlan(seed=5)
    plan.delay("*", seconds=(0, 0.3), probability=0.5)
    async with open_simulated_server(SimulatedStorage(plan), shards_count=3) as world:
        seen: list[list[int]] = [[] for _ in world.shards]

        async def change(shard_id):
            client = await world.log_in(shard_id)
            for number in range(10):
                name = f"{shard_id}-{number}"
                await client.ask(CreateStream(name))
                assert await client.ask(GetStream(name)) is not None
                await client.ask(CreateTopic(name, "t", 2))
                assert (
                    len(found.topics if (found := await client.ask(GetStream(name))) else ()) == 1
                )
                await client.ask(DeleteStream(name))
                assert await client.ask(GetStream(name)) is None

        async def watch(shard_id):
            while True:
                seen[shard_id].append(world.shards[shard_id].metadata.current.version)
                await trio.sleep(0.01)

        async with trio.open_nursery() as watching:
            for shard_id in range(3):
                watching.start_soon(watch, shard_id)
            async with trio.open_nursery() as nursery:
                for shard_id in range(3):
                    nursery.start_soon(change, shard_id)
            watching.cancel_scope.cancel()
        for versions in seen:
            assert versions == sorted(versions)
            assert len(set(versions)) > 10


async def test_changes_when_they_come_together_then_share_a_sync_and_each_shows_its_own(
    autojump_clock,
):
    plan = FaultPlan()
    names = ["first", "second", "third", "fourth"]
    async with open_simulated_server(SimulatedStorage(plan), shards_count=2) as world:
        clients = [await world.log_in(number % 2) for number in range(len(names))]
        slow = plan.delay("sync", seconds=1, path="state/*")
        async with trio.open_nursery() as nursery:

            async def create(number: int) -> None:
                created = await clients[number].ask(CreateStream(names[number]))
                assert created.name == names[number]
                assert await clients[number].ask(GetStream(names[number])) is not None

            for number in range(len(names)):
                nursery.start_soon(create, number)
                await trio.sleep(0.1)
        assert slow.applied_count == 2, "the first one alone, all others together"

"""More is sent to a partition than its disk can take: senders wait, and nothing grows with them."""

from __future__ import annotations

import pytest
import trio

from iggy_protocol import (
    CreateStream,
    CreateTopic,
    GetTopic,
    Partitioning,
    Ping,
    SendMessages,
)
from iggy_ref_server.partitions.append import JOURNAL_BYTES_MAX
from iggy_ref_server.shard.channel import IN_FLIGHT_BYTES_MAX
from iggy_ref_server.shard.partition_directory import PartitionKey
from iggy_ref_server.shard.router import owner_shard
from iggy_ref_server.storage.simulated.fault_plan import FaultPlan
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.simulated.server import open_simulated_server

pytestmark = [pytest.mark.trio, pytest.mark.timeout(60)]

BATCH = bytes(1 << 20)
# A head, a record and the index of one message come with each batch.
ENVELOPE = 4096
SENDERS = 8


def slow_disk() -> SimulatedStorage:
    """Take a second for each write of messages."""
    plan = FaultPlan()
    plan.refuse(path="*.log")
    plan.delay("write", path="*.log", seconds=1)
    return SimulatedStorage(plan)


@pytest.mark.parametrize(("shard_id", "sends"), [(0, 6), (1, 16)])
async def test_senders_when_the_disk_is_slow_then_wait_and_others_are_served(
    shard_id, sends, autojump_clock
):
    """Through the shard channel as locally, what is on its way stays below a mark."""
    assert owner_shard(PartitionKey(0, 0, 0), 2) == 1
    async with open_simulated_server(slow_disk(), shards_count=2) as world:
        client = await world.log_in(shard_id)
        await client.ask(CreateStream("s"))
        await client.ask(CreateTopic("s", "t", 1))
        channel = world.shards[0]._channels[1]
        partition = world.shards[1].directory.get(PartitionKey(0, 0, 0))
        on_the_way: list[int] = []
        staged: list[int] = []

        async def send():
            sender = await world.log_in(shard_id)
            batch = SendMessages("s", "t", Partitioning.partition(0), [BATCH])
            async with trio.open_nursery() as nursery:
                nursery.start_soon(sender.send, *[batch] * sends)
                for _ in range(sends):
                    await sender.answer()

        async def watch():
            while True:
                await trio.sleep(0.1)
                await client.ask(Ping())
                on_the_way.append(channel._in_flight_bytes)
                staged.append(partition._appender.journal.size_bytes)

        async with trio.open_nursery() as watching:
            watching.start_soon(watch)
            async with trio.open_nursery() as nursery:
                for _ in range(SENDERS):
                    nursery.start_soon(send)
            watching.cancel_scope.cancel()
        topic = await client.ask(GetTopic("s", "t"))
        assert topic is not None
        assert topic.messages_count == SENDERS * sends
        extra = SENDERS * (len(BATCH) + ENVELOPE)
        assert max(on_the_way) <= IN_FLIGHT_BYTES_MAX + extra
        assert max(staged) <= JOURNAL_BYTES_MAX + extra
        assert max(staged if shard_id else on_the_way) >= IN_FLIGHT_BYTES_MAX

"""A shard that is still opening its partitions: whoever asks for one waits for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing

from iggy_protocol import (
    ConsumerIdentity,
    CreateStream,
    CreateTopic,
    GetConsumerOffset,
    Partitioning,
    PollingStrategy,
    PollMessages,
    SendMessages,
)
from iggy_ref_server.shard.assembly import open_shard
from iggy_ref_server.shard.partition_directory import PartitionKey
from iggy_ref_server.shard.router import owner_shard
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.simulated.server import SimulatedServer, make_specs, open_simulated_server

pytestmark = pytest.mark.trio

PARTITIONS = 4
THEIRS = next(n for n in range(PARTITIONS) if owner_shard(PartitionKey(0, 0, n), 2) == 1)
READ = PollMessages(ConsumerIdentity.single(1), "s", "t", PollingStrategy.first(), 10, THEIRS)
OFFSET = GetConsumerOffset(ConsumerIdentity.single(1), "s", "t", THEIRS)


class SlowDisk:
    """A storage on which nothing in the directory of partitions can be read before it may."""

    def __init__(self, storage: SimulatedStorage) -> None:
        self._storage = storage
        self.may_read = trio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    async def read_file(self, path: str, **options: Any) -> bytes | None:
        """Read a file, later."""
        if "partitions" in path:
            await self.may_read.wait()
        return await self._storage.read_file(path, **options)


async def fill(storage: SimulatedStorage) -> None:
    """Leave a topic with a message and a stored offset in every partition."""
    async with open_simulated_server(storage, shards_count=2) as world:
        client = await world.log_in()
        await client.ask(CreateStream("s"))
        await client.ask(CreateTopic("s", "t", PARTITIONS))
        for number in range(PARTITIONS):
            to = Partitioning.partition(number)
            await client.ask(SendMessages("s", "t", to, [b"%d" % number]))
            start = PollingStrategy.first()
            await client.ask(
                PollMessages(
                    ConsumerIdentity.single(1), "s", "t", start, 1, number, auto_commit=True
                )
            )


async def test_request_when_the_partitions_shard_is_still_opening_then_waits_and_is_served(
    autojump_clock,
):
    storage = SimulatedStorage()
    await fill(storage)
    first, second = make_specs(storage, shards_count=2)
    slow = SlowDisk(storage)
    answers: list[Any] = []
    is_done = trio.Event()

    async def run_second() -> None:
        async with open_shard(replace(second, storage=slow)):
            await trio.sleep_forever()

    async def ask(world: SimulatedServer) -> None:
        client = await world.log_in()
        answers.append(await client.ask(OFFSET))
        answers.append(await client.ask(READ))
        await client.ask(SendMessages("s", "t", Partitioning.partition(THEIRS), [b"more"]))
        answers.append(await client.ask(READ))
        is_done.set()

    async with open_shard(first) as shard, trio.open_nursery() as nursery:
        world = SimulatedServer([shard])
        nursery.start_soon(ask, world)
        nursery.start_soon(run_second)
        await trio.testing.wait_all_tasks_blocked()
        assert answers == [], "nobody can know yet what is in the partition"
        slow.may_read.set()
        with trio.fail_after(5):
            await is_done.wait()
        world.hang_up()
        nursery.cancel_scope.cancel()

    offset, before, after = answers
    assert offset.stored_offset == 0
    assert before.messages.payloads() == [b"%d" % THEIRS]
    assert after.messages.payloads() == [b"%d" % THEIRS, b"more"]

"""A disk that fails to sync: nobody is told that messages are safe, and everybody can see why."""

from __future__ import annotations

import logging

import pytest

from iggy_protocol import (
    ConsumerIdentity,
    CreateStream,
    CreateTopic,
    FlushUnsavedBuffer,
    Partitioning,
    PollingStrategy,
    PollMessages,
    SendMessages,
    StatusCode,
)
from iggy_ref_server.storage.simulated.fault_plan import FaultPlan
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.simulated.server import Refused, open_simulated_server

pytestmark = pytest.mark.trio


async def refusal(client, command):
    with pytest.raises(Refused) as refused:
        await client.ask(command)
    return refused.value.status


@pytest.mark.parametrize("shards_count", [1, 2])
@pytest.mark.parametrize("ack", ["written", "fsync"])
async def test_partition_when_a_sync_fails_then_is_read_only_until_a_restart(
    shards_count, ack, autojump_clock, caplog
):
    plan = FaultPlan()
    storage = SimulatedStorage(plan)
    settings = {"SYSTEM_PARTITION_ACK": ack}
    first = PollingStrategy.first()
    poll = PollMessages(ConsumerIdentity.single(1), "s", "t", first, 100, 0)
    send = SendMessages("s", "t", Partitioning.partition(0), [b"x"])
    async with open_simulated_server(
        storage, shards_count=shards_count, settings=settings
    ) as world:
        client = await world.log_in(shards_count - 1)
        await client.ask(CreateStream("s"))
        await client.ask(CreateTopic("s", "t", 2))
        await client.ask(send)
        plan.fail("sync", path="*/partitions/0/*.log", times=1)
        trigger = send if ack == "fsync" else FlushUnsavedBuffer("s", "t", 0, fsync=True)
        with caplog.at_level(logging.ERROR):
            assert await refusal(client, trigger) == StatusCode.CANNOT_SYNC_FILE
        assert "partitions/0 is now read_only" in caplog.text
        assert await refusal(client, send) == StatusCode.CANNOT_APPEND_MESSAGE
        assert (await client.ask(poll)).messages.payloads() == [b"x"]
        await client.ask(SendMessages("s", "t", Partitioning.partition(1), [b"others"]))
    async with open_simulated_server(
        storage, shards_count=shards_count, settings=settings
    ) as world:
        client = await world.log_in()
        found = (await client.ask(poll)).messages.payloads()
        assert found[0] == b"x"
        await client.ask(send)
        assert (await client.ask(poll)).messages.payloads() == [*found, b"x"]

"""Disks that fill: old segments go loudly, read ones first, and old open segments are sealed."""

from __future__ import annotations

import logging

import pytest
import trio

from iggy_protocol import (
    ConsumerIdentity,
    CreateStream,
    CreateTopic,
    GetTopic,
    Partitioning,
    PollingStrategy,
    PollMessages,
    SendMessages,
    StoreConsumerOffset,
)
from iggy_ref_server.clock import SimulatedClock
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.simulated.server import open_simulated_server

pytestmark = pytest.mark.trio

SHARDS = pytest.mark.parametrize("shards_count", [1, 2])
SETTINGS = {"SYSTEM_SEGMENT_SIZE": "1 KiB", "SYSTEM_RETENTION_MIN_FREE_SPACE": "100 KB"}


async def first_offset(client, topic):
    """Return the oldest offset that a topic has."""
    poll = PollMessages(ConsumerIdentity.single(9), "s", topic, PollingStrategy.first(), 1, 0)
    (message,) = (await client.ask(poll)).messages
    return message.offset


async def fill(client, clock, topic, count=20):
    """Make a topic with messages of a kilobyte, each in a segment of its own but the last."""
    await client.ask(CreateTopic("s", topic, 1))
    for _ in range(count):
        clock.step(1_000_000)
        await client.ask(SendMessages("s", topic, Partitioning.partition(0), [bytes(1024)]))


async def leave_free(storage, size):
    """Make a disk so small that no more than this is free."""
    storage.plan.capacity_bytes = 1 << 40
    free, total = await storage.free_bytes()
    storage.plan.capacity_bytes = total - free + size


@SHARDS
async def test_space_when_it_runs_low_then_read_segments_go_first_and_each_is_told(
    shards_count, autojump_clock, caplog
):
    clock, storage = SimulatedClock(), SimulatedStorage()
    async with open_simulated_server(
        storage, shards_count=shards_count, settings=SETTINGS, clock=clock
    ) as world:
        client = await world.log_in()
        await client.ask(CreateStream("s"))
        await fill(client, clock, "unread")
        await fill(client, clock, "read")
        await client.ask(StoreConsumerOffset(ConsumerIdentity.single(1), "s", "unread", 0, 0))
        await client.ask(StoreConsumerOffset(ConsumerIdentity.single(1), "s", "read", 19, 0))
        before = await first_offset(client, "unread")
        with caplog.at_level(logging.WARNING):
            await leave_free(storage, 95_000)
            await trio.sleep(3)
        assert await first_offset(client, "unread") == before
        assert 2 <= await first_offset(client, "read") <= 8
        assert "topic 1, partition 0: deleted the messages 0 to" in caplog.text
        assert "NOT read" not in caplog.text
        assert "enough disk space is free again" in caplog.text


@SHARDS
async def test_space_when_everything_is_unread_then_it_goes_all_the_same_and_the_end_is_told(
    shards_count, autojump_clock, caplog
):
    clock, storage = SimulatedClock(), SimulatedStorage()
    async with open_simulated_server(
        storage, shards_count=shards_count, settings=SETTINGS, clock=clock
    ) as world:
        client = await world.log_in()
        await client.ask(CreateStream("s"))
        await fill(client, clock, "t")
        await client.ask(StoreConsumerOffset(ConsumerIdentity.single(1), "s", "t", 0, 0))
        await leave_free(storage, 10)
        await trio.sleep(15)
        assert "which some consumer or group had NOT read" in caplog.text
        assert caplog.text.count("no segment can be deleted") == shards_count
        details = await client.ask(GetTopic("s", "t"))
        assert details is not None
        assert details.partitions[0].segments_count == 1


async def test_space_when_no_bound_is_set_then_nothing_is_deleted(autojump_clock):
    clock, storage = SimulatedClock(), SimulatedStorage()
    settings = {"SYSTEM_SEGMENT_SIZE": "1 KiB"}
    async with open_simulated_server(storage, settings=settings, clock=clock) as world:
        client = await world.log_in()
        await client.ask(CreateStream("s"))
        await fill(client, clock, "t")
        await leave_free(storage, 10)
        await trio.sleep(60)
        assert await first_offset(client, "t") == 0


@pytest.mark.parametrize("ack", ["memory", "written", "fsync"])
async def test_open_segment_when_its_first_message_is_too_old_then_is_sealed(ack, autojump_clock):
    clock = SimulatedClock()
    settings = {"SYSTEM_SEGMENT_MAX_AGE": "1 h", "SYSTEM_PARTITION_ACK": ack}
    storage = SimulatedStorage()
    async with open_simulated_server(storage, settings=settings, clock=clock) as world:
        client = await world.log_in()
        await client.ask(CreateStream("s"))
        await client.ask(CreateTopic("s", "t", 1))

        async def count_after(seconds):
            clock.step(seconds * 1_000_000)
            await trio.sleep(3)
            details = await client.ask(GetTopic("s", "t"))
            assert details is not None
            return details.partitions[0].segments_count

        assert await count_after(7200) == 1, "an empty segment has no age"
        send = SendMessages("s", "t", Partitioning.partition(0), [b"x"])
        await client.ask(send)
        assert await count_after(3500) == 1
        await client.ask(send)
        assert await count_after(200) == 2
        assert await count_after(7200) == 2
        await client.ask(send)
        assert await count_after(0) == 2
        poll = PollMessages(ConsumerIdentity.single(1), "s", "t", PollingStrategy.first(), 9, 0)
        polled = (await client.ask(poll)).messages
        assert [message.offset for message in polled] == [0, 1, 2]
    async with open_simulated_server(storage.kill(), settings=settings, clock=clock) as world:
        client = await world.log_in()
        polled = (await client.ask(poll)).messages
        assert [message.offset for message in polled] == [0, 1, 2]

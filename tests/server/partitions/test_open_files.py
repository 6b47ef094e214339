"""More partitions than descriptors: they take turns, and nobody notices."""

from __future__ import annotations

import gc
import random

import pytest

from iggy_ref_server.clock import SimulatedClock
from iggy_ref_server.partitions.offsets import OffsetKey
from iggy_ref_server.partitions.partition import PartitionLog
from iggy_ref_server.partitions.settings import AckLevel, IndexCache, PartitionSettings
from iggy_ref_server.partitions.steps import run_async, run_if_ready, run_in_background
from iggy_ref_server.storage.simulated.fault_plan import FaultPlan
from iggy_ref_server.storage.simulated.storage import SimulatedFile, SimulatedStorage
from tests.server.partitions.partition_calls import (
    CONSUMER,
    FROM_START,
    commit_at_once,
    fetch,
    offsets,
    payloads,
    send,
    stage,
)

pytestmark = pytest.mark.trio

COUNT = 40
DESCRIPTORS_MAX = 10


def small(plan: FaultPlan | None = None) -> SimulatedStorage:
    """Make a storage that keeps few files open."""
    storage = SimulatedStorage(plan)
    storage.open_files.descriptors_max = DESCRIPTORS_MAX
    return storage


async def open_all(storage: SimulatedStorage, settings: PartitionSettings) -> list[PartitionLog]:
    """Open or make many partitions."""
    clock = SimulatedClock()
    return [
        await PartitionLog.open(
            storage, clock, settings, f"streams/0/topics/0/partitions/{number}", generation=1
        )
        for number in range(COUNT)
    ]


def open_count() -> int:
    """Count the open files of this process."""
    gc.collect()
    return sum(isinstance(thing, SimulatedFile) for thing in gc.get_objects())


@pytest.mark.parametrize("cache", IndexCache)
@pytest.mark.parametrize("ack", AckLevel)
async def test_partitions_when_more_than_descriptors_then_all_are_served(ack, cache):
    storage = small()
    settings = PartitionSettings(
        ack=ack, segment_size_bytes=200, messages_required_to_save=2, index_cache=cache
    )
    before = open_count()
    partitions = await open_all(storage, settings)
    chance = random.Random(1)
    sent: list[list[bytes]] = [[] for _ in partitions]
    for step in range(600):
        number = chance.randrange(COUNT)
        match chance.randrange(4):
            case 0:
                await send(partitions[number], b"%d" % step)
                sent[number].append(b"%d" % step)
            case 1:
                assert await payloads(partitions[number]) == sent[number]
            case 2 if sent[number]:
                key = OffsetKey(CONSUMER.kind, chance.randrange(3))
                offset = chance.randrange(len(sent[number]))
                await run_async(partitions[number].store_offset(key, offset))
            case _:
                await partitions[number].save()
        assert storage.open_files.descriptors_count <= DESCRIPTORS_MAX
    assert open_count() - before <= DESCRIPTORS_MAX
    for partition, wanted in zip(partitions, sent, strict=True):
        assert await payloads(partition) == wanted
        assert await partition.aclose() is None
    assert storage.open_files.descriptors_count == 0

    for partition, wanted in zip(await open_all(storage, settings), sent, strict=True):
        assert await payloads(partition) == wanted


async def test_reply_when_its_file_is_closed_meanwhile_then_can_still_be_read():
    storage = small()
    first, *others = await open_all(storage, PartitionSettings())
    await send(first, b"a", b"b")
    polled = run_if_ready(first.poll(FROM_START))
    assert polled is not None
    for partition in others:
        await send(partition, b"x")
    assert run_if_ready(first.poll(FROM_START)) is None, "the partition had to make room"
    await first.purge(generation=2)

    assert b"a" in await fetch(polled)


async def test_commit_when_the_file_is_closed_while_it_is_synced_then_ends_well(
    autojump_clock, nursery
):
    plan = FaultPlan()
    storage = small(plan)
    first, *others = await open_all(storage, PartitionSettings(ack=AckLevel.FSYNC))
    await send(first, b"zero")
    plan.delay("sync", seconds=1, path="*/partitions/0/*.log")
    group = stage(first, [b"one"])
    run_in_background(first.commit(), nursery)
    for partition in others:
        await send(partition, b"x")
    assert not group.is_done, "the sync is under way, and its file was let go"
    second = stage(first, [b"two"])
    await group.wait()
    await second.wait()

    assert await offsets(first) == [0, 1, 2]


async def test_busy_partition_when_others_come_and_go_then_is_seldom_closed():
    storage = small()
    busy, *others = await open_all(storage, PartitionSettings())
    closed_count = 0
    for partition in others * 5:
        for _ in range(3):
            stage(busy, [b"x"])
            if not commit_at_once(busy):
                closed_count += 1
                await run_async(busy.commit())
        await send(partition, b"y")
    assert closed_count < len(others), "whoever is written all the time stays open"


async def test_torn_write_when_the_file_is_closed_before_it_is_cut_then_cut_all_the_same():
    plan = FaultPlan()
    storage = small(plan)
    first, *others = await open_all(storage, PartitionSettings())
    await send(first, b"kept")
    plan.fail("write", path="*/partitions/0/*.log", times=1)
    plan.fail("truncate", path="*/partitions/0/*.log", times=1)
    with pytest.raises(Exception, match="cannot write"):
        await send(first, b"lost" * 20)
    for partition in others:
        await send(partition, b"x")
    await send(first, b"next")

    assert await payloads(first) == [b"kept", b"next"]

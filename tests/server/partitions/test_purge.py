"""Purging, and the number that tells one life of a partition from another."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from iggy_protocol import NewMessage, PollingStrategy
from iggy_ref_server.clock import SimulatedClock
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.partitions.generation import GENERATION_FILE
from iggy_ref_server.partitions.health import PartitionHealth
from iggy_ref_server.partitions.partition import PartitionLog
from iggy_ref_server.partitions.settings import AckLevel, DeduplicationSettings, PartitionSettings
from iggy_ref_server.partitions.steps import run_async, run_if_ready
from iggy_ref_server.segments.errors import CorruptPartition
from iggy_ref_server.storage.simulated.fault_plan import FaultPlan
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.partitions.partition_calls import (
    CONSUMER,
    GENERATION,
    GROUP,
    PATH,
    commit,
    create,
    file_sizes,
    interrupt,
    offsets,
    payloads,
    poll,
    reopen,
    request,
    send,
    stage,
    unpack,
)

pytestmark = pytest.mark.trio

LEVELS = pytest.mark.parametrize("ack", AckLevel)
NEXT_LIFE = GENERATION + 1


async def open_life(
    storage: SimulatedStorage, generation: int, settings: PartitionSettings | None = None
) -> PartitionLog:
    """Open the partition as the metadata knows it."""
    return await PartitionLog.open(
        storage,
        SimulatedClock(),
        settings or PartitionSettings(),
        PATH,
        generation=generation,
    )


@LEVELS
async def test_partition_when_purged_then_empty_and_starts_at_zero_also_after_a_restart(ack):
    """Unflushed messages survive a purge of the real server (C3)."""
    storage = SimulatedStorage()
    settings = PartitionSettings(ack=ack, segment_size_bytes=200)
    partition = await create(storage, settings)
    for _ in range(10):
        await send(partition, b"old")
    await run_async(partition.store_offset(CONSUMER, 5))
    await run_async(partition.store_offset(GROUP, 6))

    await partition.purge(generation=NEXT_LIFE)

    polled = run_if_ready(partition.poll(request(PollingStrategy.offset(0))))
    assert polled == (0, 0, 0, (), None, 0)
    assert (partition.stored_offset(CONSUMER), partition.stored_offset(GROUP)) == (None, None)
    assert partition.statistics() == (1, 0, 0, 0, None)
    assert await file_sizes(storage) == {"0.log": 0, "0.index": 0}
    for folder in ("consumers", "groups"):
        assert await storage.entries(f"{PATH}/offsets/{folder}") == []
    await send(partition, b"new")
    assert (await offsets(partition), await payloads(partition)) == ([0], [b"new"])
    await run_async(partition.store_offset(CONSUMER, 0))
    await partition.aclose()
    partition = await open_life(storage.kill(), NEXT_LIFE, settings)
    assert await payloads(partition) == [b"new"]
    assert partition.stored_offset(CONSUMER) == 0


@LEVELS
async def test_batches_when_staged_before_a_purge_then_acknowledged_and_purged(ack):
    partition = await create(SimulatedStorage(), PartitionSettings(ack=ack))
    group = stage(partition, [b"old"])

    await partition.purge(generation=NEXT_LIFE)

    assert (group.is_done, group.fault) == (True, None)
    assert await poll(partition) == []
    await send(partition, b"new")
    assert await offsets(partition) == [0]


@LEVELS
async def test_batches_when_staged_during_a_purge_then_belong_to_the_new_life(ack, autojump_clock):
    plan = FaultPlan()
    storage = SimulatedStorage(plan)
    partition = await create(storage, PartitionSettings(ack=ack))
    await send(partition, b"old")
    plan.delay("*", seconds=0.1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: partition.purge(generation=NEXT_LIFE))
        await trio.sleep(0.25)
        group = stage(partition, [b"new"])
        await commit(partition)
        await group.wait()
    plan.heal()

    assert (await offsets(partition), await payloads(partition)) == ([0], [b"new"])
    await partition.flush(fsync=False)
    partition = await open_life(storage.kill(), NEXT_LIFE)
    assert await payloads(partition) == [b"new"]


async def test_stores_when_during_a_purge_then_gone_with_it(autojump_clock):
    plan = FaultPlan()
    storage = SimulatedStorage(plan)
    partition = await create(storage)
    await send(partition, *[b"old"] * 5)
    plan.delay("*", seconds=0.1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_async, partition.store_offset(GROUP, 4))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(lambda: partition.purge(generation=NEXT_LIFE))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(run_async, partition.store_offset(CONSUMER, 3))
        await trio.testing.wait_all_tasks_blocked()
        assert partition.stored_offset(GROUP) is None, "nothing has happened yet"
    plan.heal()

    assert (partition.stored_offset(CONSUMER), partition.stored_offset(GROUP)) == (None, None)
    partition = await open_life(storage.kill(), NEXT_LIFE)
    assert (partition.stored_offset(CONSUMER), partition.stored_offset(GROUP)) == (None, None)


async def test_ids_when_purged_then_no_duplicates_any_more():
    settings = PartitionSettings(deduplication=DeduplicationSettings(entries_max=100, expiry_us=0))
    partition = await create(SimulatedStorage(), settings)
    await send(partition, NewMessage(b"old", id=1))

    await partition.purge(generation=NEXT_LIFE)
    await send(partition, NewMessage(b"new", id=1))

    assert await payloads(partition) == [b"new"]


async def test_slice_when_purged_then_can_still_be_read():
    partition = await create(SimulatedStorage())
    await send(partition, b"old")
    polled = run_if_ready(partition.poll(request(PollingStrategy.offset(0))))
    assert polled is not None

    await partition.purge(generation=NEXT_LIFE)

    assert [message.payload for message in await unpack(polled)] == [b"old"]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("power", [False, True], ids=["kill", "power loss"])
async def test_purge_when_it_is_interrupted_then_done_at_the_next_start(
    seed, power, autojump_clock
):
    """Whatever is left of the files, the number in the metadata decides (D16)."""
    plan = FaultPlan(seed)
    storage = SimulatedStorage(plan)
    settings = PartitionSettings(ack=AckLevel.FSYNC, segment_size_bytes=200)
    partition = await create(storage, settings)
    for _ in range(8):
        await send(partition, b"old")
    await run_async(partition.store_offset(CONSUMER, 3))
    plan.delay("*", seconds=(0, 0.2))
    left = await interrupt(
        storage,
        lambda: partition.purge(generation=NEXT_LIFE),
        after_s=plan.rng.uniform(0, 3),
        power=power,
    )

    partition = await open_life(left, NEXT_LIFE, settings)

    assert await poll(partition) == []
    assert partition.stored_offset(CONSUMER) is None
    await send(partition, b"new")
    partition = await open_life(left.kill(), NEXT_LIFE, settings)
    assert (await offsets(partition), await payloads(partition)) == ([0], [b"new"])


async def test_purge_when_the_disk_refuses_then_read_only_until_the_next_start():
    plan = FaultPlan()
    storage = SimulatedStorage(plan)
    partition = await create(storage)
    await send(partition, b"old")
    plan.fail("remove", times=1)

    with pytest.raises(ServerFault):
        await partition.purge(generation=NEXT_LIFE)

    assert partition.health is PartitionHealth.READ_ONLY
    assert await poll(partition) == []
    with pytest.raises(ServerFault):
        stage(partition, [b"x"])
    partition = await open_life(storage.kill(), NEXT_LIFE)
    assert await poll(partition) == []
    await send(partition, b"new")


async def test_files_when_of_another_life_then_wiped():
    storage = SimulatedStorage()
    partition = await create(storage)
    await send(partition, b"old")
    await run_async(partition.store_offset(CONSUMER, 0))
    await partition.aclose()

    partition = await open_life(storage, GENERATION + 5)

    assert await poll(partition) == []
    assert partition.stored_offset(CONSUMER) is None
    partition = await open_life(storage.kill(), GENERATION + 5)
    assert partition.statistics().segments_count == 1


async def test_files_when_they_have_no_number_then_accepted_as_imported_only():
    storage = SimulatedStorage()
    partition = await create(storage)
    await send(partition, b"imported")
    await partition.aclose()
    await storage.remove(f"{PATH}/{GENERATION_FILE}")

    partition = await open_life(storage, 0)
    assert await payloads(partition) == [b"imported"]
    await partition.aclose()
    partition = await open_life(storage, GENERATION)
    assert await payloads(partition) == []


async def test_number_when_it_makes_no_sense_then_refused_and_nothing_is_wiped():
    storage = SimulatedStorage()
    partition = await create(storage)
    await send(partition, b"kept")
    await partition.aclose()
    await storage.replace(f"{PATH}/{GENERATION_FILE}", b"seven")

    with pytest.raises(CorruptPartition, match=GENERATION_FILE):
        await reopen(storage)

    await storage.replace(f"{PATH}/{GENERATION_FILE}", b"7\n")
    assert await payloads(await reopen(storage)) == [b"kept"]


async def test_directory_when_missing_then_an_empty_partition_is_made():
    partition = await open_life(SimulatedStorage(), 0)
    await send(partition, b"first")

    assert await offsets(partition) == [0]

"""Retention: which segments go, which are held back, and what is left on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from iggy_protocol import ConsumerKind, PollingStrategy
from iggy_ref_server.clock import SimulatedClock
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.partitions.offsets import OffsetKey
from iggy_ref_server.partitions.retention import plan_expiry
from iggy_ref_server.partitions.settings import AckLevel, PartitionSettings
from iggy_ref_server.partitions.steps import run_async
from iggy_ref_server.segments.errors import CorruptPartition
from iggy_ref_server.segments.segment import Segment
from iggy_ref_server.storage.simulated.disk import Survival
from iggy_ref_server.storage.simulated.fault_plan import FaultPlan
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.partitions.partition_calls import (
    CONSUMER,
    GROUP,
    PATH,
    create,
    file_sizes,
    interrupt,
    offsets,
    reopen,
    request,
    send,
    stage,
)

if TYPE_CHECKING:
    from iggy_ref_server.partitions.partition import PartitionLog

pytestmark = pytest.mark.trio

# Seven messages in each sealed segment, four in the open one: as upstream's tests have it.
SETTINGS = PartitionSettings(segment_size_bytes=5120, messages_required_to_save=1)
STARTS = [0, 7, 14, 21]


async def filled(storage: SimulatedStorage, clock: SimulatedClock | None = None) -> PartitionLog:
    """Send 25 messages of 1000 bytes, a second apart."""
    clock = clock or SimulatedClock()
    partition = await create(storage, SETTINGS, clock)
    for _ in range(25):
        await send(partition, bytes(936))
        clock.step(1_000_000)
    return partition


async def starts(storage: SimulatedStorage) -> list[int]:
    """List the segments on disk; every log has its index."""
    sizes = await file_sizes(storage)
    logs = sorted(int(name.removesuffix(".log")) for name in sizes if name.endswith(".log"))
    indexes = sorted(int(name.removesuffix(".index")) for name in sizes if name.endswith(".index"))
    assert logs == indexes
    return logs


async def test_segments_when_no_consumer_reads_then_go_oldest_first_and_the_open_one_stays():
    storage = SimulatedStorage()
    partition = await filled(storage)

    for left in (STARTS[1:], STARTS[2:], STARTS[3:], STARTS[3:]):
        await partition.delete_segments(1)
        assert await starts(storage) == left
        assert await offsets(partition) == list(range(left[0], 25))
        reopened = await reopen(storage, SETTINGS)
        assert await offsets(reopened) == list(range(left[0], 25))
    numbers = partition.statistics()
    assert (numbers.current_offset, numbers.messages_count, numbers.size_bytes) == (24, 4, 4000)


async def test_count_when_zero_then_nothing_and_when_huge_then_all_sealed_ones():
    storage = SimulatedStorage()
    partition = await filled(storage)

    assert await partition.delete_segments(0) == 0
    assert await starts(storage) == STARTS
    assert await partition.delete_segments(2**32 - 1) == 3
    assert await starts(storage) == [21]


@pytest.mark.parametrize("key", [CONSUMER, GROUP], ids=["consumer", "group"])
async def test_barrier_when_an_offset_lies_before_the_end_then_holds_and_releases_exactly(key):
    storage = SimulatedStorage()
    partition = await filled(storage)
    released = []
    for offset in range(25):
        await run_async(partition.store_offset(key, offset))
        if await partition.delete_segments(1):
            released.append(offset)

    assert released == [6, 13, 20]


async def test_barrier_when_several_read_then_the_slowest_decides():
    storage = SimulatedStorage()
    partition = await filled(storage)
    await run_async(partition.store_offset(CONSUMER, 24))
    await run_async(partition.store_offset(GROUP, 12))
    await run_async(partition.store_offset(OffsetKey(ConsumerKind.SINGLE, 2), 20))

    assert await partition.delete_segments(10) == 1
    await partition.delete_offset(GROUP)
    assert await partition.delete_segments(10) == 2
    assert await starts(storage) == [21]


async def test_consumer_when_before_deleted_data_then_not_stuck():
    partition = await filled(SimulatedStorage())
    await run_async(partition.store_offset(CONSUMER, 13))
    assert await partition.delete_segments(10) == 2

    wanted = request(PollingStrategy.next(), 2, consumer=CONSUMER)
    assert await offsets(partition, wanted) == [14, 15]


async def test_segments_when_their_last_message_expires_then_go():
    clock = SimulatedClock()
    storage = SimulatedStorage()
    partition = await filled(storage, clock)
    # Message n is 25 - n seconds old now, so the last ones of the segments are 19, 12 and 5.
    clock.step(-500_000)

    assert await partition.expire_segments(30_000_000) == 0
    assert await partition.expire_segments(12_000_000) == 1
    assert await starts(storage) == STARTS[1:]
    clock.step(3_600_000_000)
    assert await partition.expire_segments(12_000_000) == 2
    assert await starts(storage) == [21], "the open one stays, however old"


async def test_expiry_when_a_consumer_has_not_read_then_waits_and_next_poll_continues():
    clock = SimulatedClock()
    partition = await filled(SimulatedStorage(), clock)
    await run_async(partition.store_offset(CONSUMER, 9))
    clock.step(3_600_000_000)

    assert await partition.expire_segments(1) == 1
    wanted = request(PollingStrategy.next(), 1, consumer=CONSUMER)
    assert await offsets(partition, wanted) == [10]


async def test_expiry_when_restarted_then_ages_are_still_known():
    clock = SimulatedClock()
    storage = SimulatedStorage()
    await filled(storage, clock)
    partition = await reopen(storage.kill(), SETTINGS, clock)

    assert await partition.expire_segments(15_000_000) == 1


def segment(messages_count: int, last_timestamp_us: int) -> Segment:
    """Make a sealed segment."""
    made = Segment("d", 0)
    made.messages_count, made.last_timestamp_us, made.is_sealed = (
        messages_count,
        last_timestamp_us,
        True,
    )
    return made


async def test_expiry_when_the_age_is_unknown_then_kept():
    unknown, empty, old, last = segment(3, 0), segment(0, 0), segment(3, 5), segment(1, 5)

    assert plan_expiry([unknown, old, last], None, expiry_us=1, now_us=100) == ()
    assert plan_expiry([empty, old, last], None, expiry_us=1, now_us=100) == (empty, old)


async def test_oldest_when_dropped_for_size_then_told_and_the_barrier_holds():
    storage = SimulatedStorage()
    partition = await filled(storage)
    first_us = partition.statistics().oldest_sealed_timestamp_us
    assert first_us is not None

    assert await partition.delete_segments(1) == 1
    after_us = partition.statistics().oldest_sealed_timestamp_us
    assert after_us is not None
    assert round((after_us - first_us) / 1_000_000) == 7
    await run_async(partition.store_offset(CONSUMER, 12))
    assert await partition.delete_segments(1) == 0
    await run_async(partition.store_offset(CONSUMER, 24))
    assert await partition.delete_segments(1) == 1
    assert await partition.delete_segments(1) == 1
    assert partition.statistics().oldest_sealed_timestamp_us is None
    assert await partition.delete_segments(1) == 0


async def test_segment_when_only_in_memory_then_not_removed():
    plan = FaultPlan()
    settings = PartitionSettings(
        ack=AckLevel.MEMORY, segment_size_bytes=64, messages_required_to_save=1
    )
    partition = await create(SimulatedStorage(plan), settings)
    plan.refuse()
    for _ in range(6):
        stage(partition, [b"x"])
    assert partition.statistics().segments_count > 1

    assert await partition.delete_segments(10) == 0
    await partition.flush(fsync=False)
    assert await partition.delete_segments(10) == 3


@pytest.mark.parametrize("victim", ["*.log", "*.index"])
async def test_removal_when_the_disk_refuses_then_told_and_the_segment_stays(victim):
    plan = FaultPlan()
    storage = SimulatedStorage(plan)
    partition = await filled(storage)
    before = partition.statistics()
    plan.fail("remove", path=victim, times=1)

    with pytest.raises(ServerFault) as caught:
        await partition.delete_segments(2)
    assert caught.value.status == 10008
    assert partition.statistics() == before
    assert await partition.delete_segments(2) == 2
    assert await starts(storage) == STARTS[2:]


@pytest.mark.parametrize("seed", range(8))
async def test_removal_when_the_process_dies_then_no_orphan_and_no_hole(seed, autojump_clock):
    plan = FaultPlan(seed)
    storage = SimulatedStorage(plan)
    partition = await filled(storage)
    await partition.flush(fsync=True)
    plan.delay("*", seconds=(0, 1))
    left = await interrupt(
        storage,
        lambda: partition.delete_segments(3),
        after_s=plan.rng.uniform(0, 6),
        power=bool(seed % 2),
    )

    partition = await reopen(left, SETTINGS)

    found = await starts(left)
    assert found in ([0, 7, 14, 21], [7, 14, 21], [14, 21], [21])
    assert await offsets(partition) == list(range(found[0], 25))


async def test_removal_when_done_then_a_power_loss_does_not_bring_segments_back():
    storage = SimulatedStorage()
    partition = await filled(storage)
    await partition.flush(fsync=True)
    await partition.delete_segments(2)

    left = storage.crash(Survival.NOTHING)

    assert await starts(left) == STARTS[2:]


async def test_orphan_when_a_removal_was_interrupted_then_removed():
    storage = SimulatedStorage()
    partition = await filled(storage)
    plan = storage.plan
    plan.fail("remove", path="*.index")
    with pytest.raises(ServerFault):
        await partition.delete_segments(1)
    plan.heal()

    partition = await reopen(storage.kill(), SETTINGS)

    assert (await offsets(partition))[0] == 7


@pytest.mark.parametrize("has_index", [True, False])
async def test_first_segment_when_missing_without_a_removal_then_set_aside(has_index):
    storage = SimulatedStorage()
    await filled(storage)
    await storage.remove(f"{PATH}/{0:020}.log")
    if not has_index:
        await storage.remove(f"{PATH}/{0:020}.index")

    with pytest.raises(CorruptPartition, match="the messages 0 to 6 are missing"):
        await reopen(storage, SETTINGS)

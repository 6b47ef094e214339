"""The end of a partition on a disk that refuses: what is lost is named, and nothing else is."""

from __future__ import annotations

import pytest

from iggy_ref_server.partitions.settings import AckLevel, PartitionSettings
from iggy_ref_server.storage.simulated.fault_plan import FaultPlan
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.partitions.partition_calls import (
    CONSUMER,
    create,
    offsets,
    reopen,
    send,
    store_at_once,
)

pytestmark = pytest.mark.trio

MEMORY = PartitionSettings(ack=AckLevel.MEMORY)


@pytest.mark.parametrize("ack", AckLevel)
async def test_close_when_all_is_saved_then_nothing_is_missing(ack):
    partition = await create(SimulatedStorage(), PartitionSettings(ack=ack))
    await send(partition, b"a", b"b")

    assert await partition.aclose() is None
    assert await partition.aclose() is None


@pytest.mark.parametrize("room_bytes", [0, 64, 65, 700, 1949])
async def test_close_when_the_disk_is_full_then_names_exactly_what_the_next_start_lacks(room_bytes):
    plan = FaultPlan()
    storage = SimulatedStorage(plan)
    partition = await create(storage, MEMORY)
    await send(partition, *[b"x"] * 5)
    await partition.flush(fsync=True)
    for _ in range(30):
        await send(partition, b"y")
    used = sum([entry.size_bytes for entry in await storage.entries(partition._path)])
    plan.capacity_bytes = used + room_bytes

    unsaved = await partition.aclose()

    assert unsaved is not None
    kept = 5 + room_bytes // 65
    assert unsaved.lost == range(kept, 35)
    assert not unsaved.unsynced
    assert unsaved.lines == [
        f"messages {kept} to 34 ({35 - kept} of them) are LOST, they could not be written; "
        + unsaved.reason
    ]
    assert "No space left" in unsaved.reason
    plan.heal()
    partition = await reopen(storage.kill(), MEMORY)
    assert await offsets(partition) == list(range(kept))
    await send(partition, b"new")
    assert (await offsets(partition))[-1] >= 35, "offsets of lost messages are never given again"


@pytest.mark.parametrize("ack", [AckLevel.MEMORY, AckLevel.WRITTEN])
async def test_close_when_the_sync_fails_then_says_what_a_power_loss_may_take(ack):
    plan = FaultPlan()
    partition = await create(SimulatedStorage(plan), PartitionSettings(ack=ack))
    await send(partition, *[b"x"] * 5)
    plan.fail("sync", path="*.log", times=1)

    unsaved = await partition.aclose()

    assert unsaved is not None
    assert (unsaved.lost, unsaved.unsynced) == (range(5, 5), range(5))
    assert "messages 0 to 4 (5 of them) are written but not synced" in unsaved.lines[0]


async def test_close_when_messages_wait_and_a_sync_failed_then_they_are_written():
    plan = FaultPlan()
    storage = SimulatedStorage(plan)
    settings = PartitionSettings(ack=AckLevel.MEMORY, segment_size_bytes=64)
    partition = await create(storage, settings)
    await send(partition, b"a")
    await partition.save()
    await send(partition, b"fills the segment")
    plan.fail("sync", path="*.log", times=1)
    await send(partition, b"waits")
    await partition.save()
    plan.heal()

    unsaved = await partition.aclose()

    assert unsaved is not None
    assert not unsaved.lost
    partition = await reopen(storage.kill(), settings)
    assert await offsets(partition) == [0, 1, 2]


async def test_close_when_a_sync_fails_under_fsync_then_nothing_acknowledged_is_in_doubt():
    plan = FaultPlan()
    partition = await create(SimulatedStorage(plan), PartitionSettings(ack=AckLevel.FSYNC))
    await send(partition, b"a")
    plan.fail("sync", times=1)

    assert await partition.aclose() is None


async def test_close_when_a_stored_offset_cannot_be_written_then_that_is_told():
    plan = FaultPlan()
    partition = await create(SimulatedStorage(plan), MEMORY)
    await send(partition, b"a")
    assert store_at_once(partition, CONSUMER, 0)
    plan.fail("replace", path="*/offsets/*")

    unsaved = await partition.aclose()

    assert unsaved is not None
    assert (list(unsaved.lost), unsaved.offsets_count) == ([], 1)
    assert "stored offsets of 1 consumers or groups are LOST" in unsaved.lines[0]

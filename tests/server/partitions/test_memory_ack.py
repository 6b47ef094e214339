"""Acknowledgement from memory: the journal, its thresholds, and offsets that are never reissued."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
import trio
import trio.testing

from iggy_protocol import PollingStrategy
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.partitions import append
from iggy_ref_server.partitions.reservation import RESERVATION_STEP
from iggy_ref_server.partitions.settings import AckLevel, PartitionSettings
from iggy_ref_server.partitions.steps import run_async, run_if_ready
from iggy_ref_server.segments.errors import CorruptPartition
from iggy_ref_server.storage.interface import FileSlice
from iggy_ref_server.storage.simulated.fault_plan import FaultPlan
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.partitions.partition_calls import (
    CONSUMER,
    FROM_START,
    GROUP,
    PATH,
    commit,
    commit_at_once,
    create,
    file_sizes,
    offsets,
    payloads,
    reopen,
    request,
    send,
    stage,
    store_at_once,
)

if TYPE_CHECKING:
    from iggy_ref_server.partitions.partition import PartitionLog

pytestmark = pytest.mark.trio

MEMORY = PartitionSettings(ack=AckLevel.MEMORY, messages_required_to_save=10)


async def log_bytes(storage: SimulatedStorage) -> int:
    """Measure the first log."""
    return (await file_sizes(storage))["0.log"]


async def test_messages_when_staged_then_done_and_visible_at_once():
    storage = SimulatedStorage()
    partition = await create(storage, MEMORY)

    group = stage(partition, [b"a"])

    assert group.is_done
    assert await payloads(partition) == [b"a"]
    assert await log_bytes(storage) == 0
    assert partition.statistics().size_bytes == 65


async def test_journal_when_the_count_is_reached_then_written_whole():
    storage = SimulatedStorage()
    partition = await create(storage, MEMORY)
    for _ in range(4):
        await send(partition, b"a", b"b")
    assert await log_bytes(storage) == 0
    await send(partition, b"c", b"d", b"e")

    assert await log_bytes(storage) == 11 * 65
    assert (await file_sizes(storage))["0.index"] == 11 * 16


async def test_journal_when_the_bytes_are_reached_then_written():
    storage = SimulatedStorage()
    settings = PartitionSettings(ack=AckLevel.MEMORY, bytes_required_to_save=1000)
    partition = await create(storage, settings)
    await send(partition, bytes(800))
    assert await log_bytes(storage) == 0
    await send(partition, bytes(200))

    assert await log_bytes(storage) == 1128


@pytest.mark.parametrize("how", ["save", "flush", "aclose"])
async def test_journal_when_told_then_written(how):
    storage = SimulatedStorage()
    partition = await create(storage, MEMORY)
    await send(partition, b"a")

    if how == "flush":
        await partition.flush(fsync=True)
    else:
        await getattr(partition, how)()

    assert await file_sizes(storage) == {"0.log": 65, "0.index": 16}


async def test_segments_when_flushed_every_message_then_roll_as_upstream():
    storage = SimulatedStorage()
    settings = PartitionSettings(
        ack=AckLevel.MEMORY, segment_size_bytes=5120, messages_required_to_save=1
    )
    partition = await create(storage, settings)
    for _ in range(25):
        await send(partition, bytes(936))

    sizes = await file_sizes(storage)
    assert {name: size for name, size in sizes.items() if "log" in name} == {
        "0.log": 7000,
        "7.log": 7000,
        "14.log": 7000,
        "21.log": 4000,
    }


async def test_segments_when_flushed_seldom_then_full_is_what_is_written():
    """Only written bytes fill a segment: the batch that finds it full is flushed, then it rolls."""
    storage = SimulatedStorage()
    settings = PartitionSettings(
        ack=AckLevel.MEMORY, segment_size_bytes=1000, messages_required_to_save=8
    )
    partition = await create(storage, settings)
    for _ in range(20):
        await send(partition, bytes(136))

    assert await offsets(partition) == list(range(20))
    sizes = await file_sizes(storage)
    assert (sizes["0.log"], sizes["9.log"], sizes["18.log"]) == (1800, 1800, 0)
    assert len(sizes) == 6


async def test_polls_when_a_write_is_under_way_then_see_the_journal(autojump_clock):
    plan = FaultPlan()
    partition = await create(SimulatedStorage(plan), MEMORY)
    plan.delay("write", seconds=1)
    plan.refuse()
    for number in range(12):
        stage(partition, [b"%d" % number])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_async, partition.commit())
        await trio.testing.wait_all_tasks_blocked()
        stage(partition, [b"during"])
        polled = run_if_ready(partition.poll(FROM_START))
        assert polled is not None
        assert not any(isinstance(part, FileSlice) for part in polled.parts)
        assert len(await payloads(partition)) == 13
        assert await offsets(partition, request(PollingStrategy.offset(9), 2)) == [9, 10]
    assert len(await payloads(partition)) == 13


async def test_journal_part_when_kept_by_a_reader_then_unchanged_by_later_messages():
    partition = await create(SimulatedStorage(), MEMORY)
    await send(partition, b"first")
    polled = run_if_ready(partition.poll(FROM_START))
    assert polled is not None
    before = bytes(b"".join(part for part in polled.parts if not isinstance(part, FileSlice)))
    for _ in range(30):
        await send(partition, b"later")

    after = b"".join(part for part in polled.parts if not isinstance(part, FileSlice))

    assert after == before


@pytest.mark.parametrize("sent", [1, 9, 10, 14, 25])
async def test_offsets_when_the_process_dies_then_never_reissued(sent):
    """The real server gave the same offsets to other messages (D2)."""
    storage = SimulatedStorage()
    partition = await create(storage, MEMORY)
    for number in range(sent):
        await send(partition, b"%d" % number)
    storage = storage.kill()

    partition = await reopen(storage, MEMORY)
    kept = await payloads(partition)
    assert kept == [b"%d" % number for number in range(sent - sent % 10)]
    await send(partition, b"new")
    *old, new = await offsets(partition)

    assert old == list(range(len(kept)))
    assert new >= sent
    partition = await reopen(storage.kill(), MEMORY)
    assert await offsets(partition) == old, "the gap is known, not taken for damage"
    await send(partition, b"newer")
    assert (await offsets(partition))[-1] > new


async def test_gap_when_the_level_changes_then_still_known():
    storage = SimulatedStorage()
    partition = await create(storage, MEMORY)
    for _ in range(15):
        await send(partition, b"x")
    storage = storage.kill()
    written = PartitionSettings()
    partition = await reopen(storage, written)
    await send(partition, b"y")
    *_, new = await offsets(partition)
    storage = storage.kill()

    partition = await reopen(storage, written)
    await send(partition, b"z")

    assert await offsets(partition) == [*range(10), new, new + 1]
    assert partition.statistics().messages_count == 12
    assert await offsets(partition, request(PollingStrategy.offset(12))) == [new, new + 1]
    assert await offsets(partition, request(PollingStrategy.offset(8), 4)) == [8, 9, new, new + 1]


async def test_partition_when_stopped_in_order_then_no_gap():
    storage = SimulatedStorage()
    partition = await create(storage, MEMORY)
    await send(partition, b"a")
    await partition.aclose()

    for number in range(1, 4):
        partition = await reopen(storage, MEMORY)
        await send(partition, b"b")
        assert await offsets(partition) == list(range(number + 1))
        await partition.aclose()


async def test_hole_when_no_reservation_explains_it_then_refused():
    storage = SimulatedStorage()
    settings = PartitionSettings(segment_size_bytes=64)
    partition = await create(storage, settings)
    for _ in range(6):
        await send(partition, b"x")
    await partition.flush(fsync=True)
    await storage.remove(f"{PATH}/{2:020}.log")

    with pytest.raises(CorruptPartition, match=r"the log beside 0+2.index is missing"):
        await reopen(storage, settings)


async def test_reservation_when_damaged_then_refused():
    storage = SimulatedStorage()
    await create(storage, MEMORY)
    await storage.replace(f"{PATH}/reservation", b'{"ceiling": tw')

    with pytest.raises(CorruptPartition, match="reservation"):
        await reopen(storage, MEMORY)


async def test_messages_when_above_the_ceiling_then_acknowledged_when_written():
    plan = FaultPlan()
    storage = SimulatedStorage(plan)
    partition = await create(storage, MEMORY)
    plan.fail("replace")
    body = [b""] * (2 * RESERVATION_STEP)
    assert stage(partition, body).is_done
    assert not commit_at_once(partition)
    await run_async(partition.commit())

    group = stage(partition, [b"above"])
    assert not group.is_done
    await commit(partition)
    assert (group.is_done, group.fault) == (True, None)
    partition = await reopen(storage.kill(), MEMORY)
    assert (await payloads(partition, request(PollingStrategy.last(), 1))) == [b"above"]


async def test_ceiling_when_low_then_moved_before_offsets_are_given():
    storage = SimulatedStorage()
    partition = await create(storage, MEMORY)

    async def ceiling() -> int:
        content = await storage.read_file(f"{PATH}/reservation")
        assert content is not None
        return int(msgspec.json.decode(content.partition(b"\n")[0])["ceiling"])

    assert await ceiling() == 2 * RESERVATION_STEP
    assert stage(partition, [b""] * (RESERVATION_STEP + 1)).is_done
    await commit(partition)
    assert await ceiling() == 3 * RESERVATION_STEP + 1


async def test_journal_when_the_disk_is_slow_then_producers_wait(monkeypatch):
    monkeypatch.setattr(append, "JOURNAL_BYTES_MAX", 1000)
    plan = FaultPlan()
    partition = await create(SimulatedStorage(plan), MEMORY)
    plan.refuse()
    assert stage(partition, [bytes(800)]).is_done

    group = stage(partition, [bytes(100)])
    behind = stage(partition, [b"small"])

    assert (group.is_done, behind.is_done) == (False, False)
    assert len(await payloads(partition)) == 1
    await partition.flush(fsync=False)
    assert (group.is_done, behind.is_done) == (True, True)
    assert stage(partition, [bytes(100)]).is_done
    assert await offsets(partition) == [0, 1, 2, 3]


async def fill_disk(partition: PartitionLog) -> None:
    """Send until the journal had to be written and could not."""
    for _ in range(10):
        await send(partition, b"acknowledged")


async def test_disk_when_full_then_acknowledged_stay_and_others_are_refused_until_it_is_not():
    plan = FaultPlan()
    storage = SimulatedStorage(plan)
    partition = await create(storage, MEMORY)
    plan.capacity_bytes = 400
    await fill_disk(partition)

    with pytest.raises(ServerFault) as caught:
        await send(partition, b"refused")
    assert caught.value.status == 10006
    with pytest.raises(ServerFault):
        await partition.flush(fsync=False)
    await partition.save()
    assert await payloads(partition) == [b"acknowledged"] * 10

    plan.heal()
    await send(partition, b"later")
    await partition.flush(fsync=True)
    partition = await reopen(storage.crash(), MEMORY)
    assert await payloads(partition) == [b"acknowledged"] * 10 + [b"later"]


async def test_stored_offset_when_its_message_is_in_memory_then_not_on_disk_before_it():
    """The real server wrote the offset first, and clamped or skipped after a crash (D3)."""
    storage = SimulatedStorage()
    partition = await create(storage, MEMORY)
    await send(partition, *[b"x"] * 10)
    await send(partition, *[b"y"] * 5)
    await run_async(partition.store_offset(CONSUMER, 9))
    assert store_at_once(partition, CONSUMER, 12)
    assert store_at_once(partition, GROUP, 11)
    assert (partition.stored_offset(CONSUMER), partition.stored_offset(GROUP)) == (12, 11)

    partition = await reopen(storage.kill(), MEMORY)

    assert (partition.stored_offset(CONSUMER), partition.stored_offset(GROUP)) == (9, None)
    await send(partition, b"new")
    wanted = request(PollingStrategy.next(), consumer=CONSUMER)
    assert await payloads(partition, wanted) == [b"new"]


async def test_stored_offset_when_its_message_is_saved_then_on_disk_too():
    storage = SimulatedStorage()
    partition = await create(storage, MEMORY)
    await send(partition, *[b"y"] * 5)
    assert store_at_once(partition, CONSUMER, 3)

    await partition.save()

    partition = await reopen(storage.kill(), MEMORY)
    assert partition.stored_offset(CONSUMER) == 3

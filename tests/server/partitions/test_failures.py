"""Disks that are full, slow or broken, and what becomes of messages then."""

from __future__ import annotations

from functools import partial

import pytest
import trio
import trio.testing

from iggy_ref_server.faults import ServerFault
from iggy_ref_server.partitions.health import PartitionHealth
from iggy_ref_server.partitions.reservation import RESERVATION_STEP
from iggy_ref_server.partitions.settings import AckLevel, PartitionSettings
from iggy_ref_server.partitions.steps import run_async, run_in_background
from iggy_ref_server.storage.simulated.fault_plan import FaultPlan
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.partitions.partition_calls import (
    CONSUMER,
    PATH,
    commit,
    commit_at_once,
    create,
    file_sizes,
    offsets,
    payloads,
    reopen,
    send,
    stage,
)

pytestmark = pytest.mark.trio

WAITING_LEVELS = pytest.mark.parametrize("ack", [AckLevel.WRITTEN, AckLevel.FSYNC])

CANNOT_WRITE_TO_FILE = 10006
CANNOT_SYNC_FILE = 10009
CANNOT_APPEND_MESSAGE = 4010


@WAITING_LEVELS
async def test_disk_when_full_then_refused_and_nothing_moves_and_later_it_works(ack):
    """The real server counted refused messages and got stuck for good (D11)."""
    plan = FaultPlan(seed=3)
    storage = SimulatedStorage(plan)
    settings = PartitionSettings(ack=ack, messages_required_to_save=1)
    partition = await create(storage, settings)
    await send(partition, b"kept")
    before = partition.statistics()
    plan.capacity_bytes = 120

    for number in range(5):
        with pytest.raises(ServerFault) as caught:
            await send(partition, b"refused %d" % number * 9)
        assert caught.value.status == CANNOT_WRITE_TO_FILE
    assert partition.statistics() == before
    assert await payloads(partition) == [b"kept"]
    assert (await file_sizes(storage))["0.log"] == 68, "what a failed write left is cut"

    plan.heal()
    await send(partition, b"later")
    assert await payloads(partition) == [b"kept", b"later"]
    assert await offsets(partition) == [0, 1]
    partition = await reopen(storage.kill(), settings)
    assert await payloads(partition) == [b"kept", b"later"]


@WAITING_LEVELS
@pytest.mark.parametrize("seed", range(6))
async def test_write_when_it_fails_half_way_then_no_message_of_it_ever_appears(ack, seed):
    """A leftover of equal length must not be taken for the message that follows."""
    plan = FaultPlan(seed)
    storage = SimulatedStorage(plan)
    partition = await create(storage, PartitionSettings(ack=ack))
    await send(partition, b"first")
    plan.fail("write", path="*.log", times=1)
    group = stage(partition, [b"ghost", b"ghost", b"ghost"])
    await commit(partition)
    assert group.fault is not None

    await send(partition, b"right")
    partition = await reopen(storage.kill())

    assert await payloads(partition) == [b"first", b"right"]


async def test_groups_when_one_fails_then_those_behind_it_fail_too_and_offsets_stay_dense():
    plan = FaultPlan()
    partition = await create(SimulatedStorage(plan), PartitionSettings(segment_size_bytes=64))
    await send(partition, b"a")
    plan.fail("write", path="*.log", times=1)

    rolling = stage(partition, [b"b"])
    following = stage(partition, [b"c"])
    assert rolling is not following
    await commit(partition)

    assert (rolling.fault is not None, following.fault is not None) == (True, True)
    await send(partition, b"d")
    assert (await offsets(partition), await payloads(partition)) == ([0, 1], [b"a", b"d"])


async def test_disk_when_full_then_told_once_and_again_when_it_is_not(caplog):
    plan = FaultPlan()
    partition = await create(SimulatedStorage(plan))
    plan.capacity_bytes = 10
    for _ in range(20):
        with pytest.raises(ServerFault):
            await send(partition, b"refused" * 9)
    plan.heal()
    await send(partition, b"stored")

    told = [record.message.partition(":")[0] for record in caplog.records]
    assert told == ["messages are not stored", f"messages are stored again in {PATH}"]


async def test_cut_when_it_fails_then_tried_again_before_the_next_write():
    plan = FaultPlan(seed=1)
    storage = SimulatedStorage(plan)
    partition = await create(storage)
    await send(partition, b"a")
    plan.fail("write", path="*.log", times=1)
    plan.fail("truncate", times=2)
    group = stage(partition, [b"ghost"] * 3)
    await commit(partition)
    assert group.fault is not None

    with pytest.raises(ServerFault):
        await send(partition, b"refused")
    await send(partition, b"b")

    assert (await file_sizes(storage))["0.log"] == 130
    assert await payloads(partition) == [b"a", b"b"]


async def test_sync_when_it_fails_then_read_only_with_a_reason_and_polls_go_on():
    plan = FaultPlan()
    partition = await create(SimulatedStorage(plan), PartitionSettings(ack=AckLevel.FSYNC))
    await send(partition, b"kept")
    plan.fail("sync", path="*.log", times=1)

    with pytest.raises(ServerFault) as caught:
        await send(partition, b"unknown")
    assert caught.value.status == CANNOT_SYNC_FILE
    assert partition.health is PartitionHealth.READ_ONLY
    assert "cannot sync" in partition.reason
    with pytest.raises(ServerFault) as caught:
        stage(partition, [b"refused"])
    assert caught.value.status == CANNOT_APPEND_MESSAGE
    assert partition.reason in caught.value.message

    assert await payloads(partition) == [b"kept"]
    await run_async(partition.store_offset(CONSUMER, 0))
    await partition.save()
    await partition.aclose()


@pytest.mark.parametrize("ack", AckLevel)
async def test_flush_when_the_sync_fails_then_read_only(ack):
    plan = FaultPlan()
    partition = await create(SimulatedStorage(plan), PartitionSettings(ack=ack))
    await send(partition, b"kept")
    plan.fail("sync", path="*.log", times=1)

    with pytest.raises(ServerFault) as caught:
        await partition.flush(fsync=True)

    assert caught.value.status == CANNOT_SYNC_FILE
    assert partition.health is PartitionHealth.READ_ONLY
    assert await payloads(partition) == [b"kept"]


async def test_saver_when_a_sealed_segment_cannot_be_synced_then_read_only():
    plan = FaultPlan()
    partition = await create(SimulatedStorage(plan), PartitionSettings(segment_size_bytes=64))
    for _ in range(3):
        await send(partition, b"x")
    plan.fail("sync", times=1)

    await partition.save()

    assert partition.health is PartitionHealth.READ_ONLY
    assert await offsets(partition) == [0, 1, 2]


async def test_index_when_it_cannot_be_written_then_messages_are_stored_all_the_same():
    plan = FaultPlan()
    storage = SimulatedStorage(plan)
    settings = PartitionSettings(messages_required_to_save=1, segment_size_bytes=150)
    partition = await create(storage, settings)
    plan.fail("write", path="*.index")
    for _ in range(7):
        await send(partition, bytes(36))

    assert await offsets(partition) == list(range(7))
    assert await offsets(await reopen(storage.kill(), settings)) == list(range(7))


async def test_indexes_when_they_can_be_written_again_then_the_saver_does():
    plan = FaultPlan()
    storage = SimulatedStorage(plan)
    settings = PartitionSettings(messages_required_to_save=1, segment_size_bytes=150)
    partition = await create(storage, settings)
    plan.fail("write", path="*.index")
    for _ in range(7):
        await send(partition, bytes(36))
    plan.heal()

    await partition.save()

    sizes = await file_sizes(storage)
    assert [size for name, size in sizes.items() if "index" in name] == [48, 48, 16]


async def test_roll_when_the_next_segment_cannot_be_made_then_stored_and_rolled_later():
    plan = FaultPlan()
    storage = SimulatedStorage(plan)
    settings = PartitionSettings(segment_size_bytes=64, messages_required_to_save=1)
    partition = await create(storage, settings)
    await send(partition, b"a")
    rule = plan.fail("open", path="*2.log")

    await send(partition, b"b")
    assert await payloads(partition) == [b"a", b"b"]
    with pytest.raises(ServerFault):
        await send(partition, b"refused")
    assert rule.applied_count == 2
    plan.heal()
    await send(partition, b"c")

    assert await file_sizes(storage) == {
        "0.log": 130,
        "0.index": 32,
        "2.log": 65,
        "2.index": 16,
    }
    assert await payloads(await reopen(storage.kill(), settings)) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("ack", AckLevel)
async def test_engine_when_under_pressure_then_commit_has_to_be_awaited_and_all_is_well(ack):
    plan = FaultPlan()
    settings = PartitionSettings(ack=ack, messages_required_to_save=1)
    partition = await create(SimulatedStorage(plan), settings)
    plan.refuse()
    group = stage(partition, [b"a"])

    assert not commit_at_once(partition)
    assert not partition._writer.is_committing
    await run_async(partition.commit())

    assert (group.is_done, group.fault) == (True, None)
    assert await payloads(partition) == [b"a"]
    assert commit_at_once(partition)


async def test_commit_when_another_task_is_at_it_then_returns_and_the_other_does_both(
    autojump_clock,
):
    plan = FaultPlan()
    partition = await create(SimulatedStorage(plan), PartitionSettings(ack=AckLevel.FSYNC))
    syncs = plan.delay("sync", seconds=1, path="*.log")
    async with trio.open_nursery() as nursery:
        first = stage(partition, [b"a"])
        nursery.start_soon(run_async, partition.commit())
        await trio.testing.wait_all_tasks_blocked()
        later = [stage(partition, [b"b"]), stage(partition, [b"c"])]
        assert partition._writer.is_committing
        await run_async(partition.commit())
        assert [group.is_done for group in (first, *later)] == [False, False, False]
        assert await payloads(partition) == []
    assert [group.is_done for group in (first, *later)] == [True, True, True]
    assert first is not later[0] is later[1]
    assert syncs.matched_count == 2, "one sync for everything that waited"
    assert await payloads(partition) == [b"a", b"b", b"c"]


async def test_commit_when_cancelled_then_the_write_is_seen_through(autojump_clock):
    plan = FaultPlan()
    partition = await create(SimulatedStorage(plan), PartitionSettings(ack=AckLevel.FSYNC))
    plan.delay("write", seconds=1, path="*.log")
    group = stage(partition, [b"a"])

    with trio.move_on_after(0.5):
        await run_async(partition.commit())

    assert (group.is_done, group.fault) == (True, None)
    assert not partition._writer.is_committing
    assert await payloads(partition) == [b"a"]


@pytest.mark.parametrize("ack", AckLevel)
@pytest.mark.parametrize("seed", range(4))
async def test_disk_when_it_fails_at_random_then_acknowledged_messages_are_all_there(ack, seed):
    plan = FaultPlan(seed)
    storage = SimulatedStorage(plan)
    settings = PartitionSettings(ack=ack, segment_size_bytes=400, messages_required_to_save=3)
    partition = await create(storage, settings)
    for verb in ("write", "open", "truncate", "replace", "sync_directory"):
        plan.fail(verb, probability=0.15)
    plan.refuse(probability=0.2)
    acknowledged = []
    for number in range(120):
        payload = b"%d" % number * 5
        try:
            await send(partition, payload)
        except ServerFault:
            continue
        acknowledged.append(payload)
    plan.heal()

    assert await payloads(partition) == acknowledged
    assert await offsets(partition) == list(range(len(acknowledged)))
    await partition.flush(fsync=False)
    partition = await reopen(storage.kill(), settings)
    assert await payloads(partition) == acknowledged


@WAITING_LEVELS
async def test_batch_when_staged_while_a_commit_tidies_up_then_written_by_it(ack, autojump_clock):
    """Whoever sees that a task is committing starts no other one, so that one must not miss it."""
    plan = FaultPlan(seed=2)
    partition = await create(SimulatedStorage(plan), PartitionSettings(ack=ack))
    await send(partition, b"a")
    plan.fail("write", path="*.log", times=1)
    plan.delay("truncate", seconds=1)
    plan.refuse()
    async with trio.open_nursery() as nursery:
        failed = stage(partition, [b"b"])
        assert not commit_at_once(partition)
        nursery.start_soon(run_async, partition.commit())
        await trio.sleep(0.5)
        late = stage(partition, [b"late"])
        assert partition._writer.is_committing
    assert failed.fault is not None
    assert (late.is_done, late.fault) == (True, None)
    assert await payloads(partition) == [b"a", b"late"]


async def test_acknowledged_when_staged_while_offsets_are_reserved_then_written_when_due(
    autojump_clock,
):
    plan = FaultPlan()
    storage = SimulatedStorage(plan)
    settings = PartitionSettings(ack=AckLevel.MEMORY, messages_required_to_save=1)
    partition = await create(storage, settings)
    plan.delay("replace", seconds=1)
    plan.refuse()
    async with trio.open_nursery() as nursery:
        stage(partition, [b""] * (RESERVATION_STEP + 1))
        nursery.start_soon(run_async, partition.commit())
        await trio.sleep(0.5)
        assert partition._writer.is_committing
        stage(partition, [b"late"])
    assert (await file_sizes(storage))["0.log"] == (RESERVATION_STEP + 1) * 64 + 68


async def test_cut_when_it_can_never_be_done_then_commit_still_returns():
    plan = FaultPlan()
    partition = await create(SimulatedStorage(plan))
    plan.fail("write", path="*.log", times=1)
    plan.fail("truncate")
    stage(partition, [b"x"])

    await commit(partition)

    assert not partition._writer.is_committing
    assert not commit_at_once(partition)
    plan.heal()
    await run_async(partition.commit())
    assert commit_at_once(partition)


async def test_commit_soon_when_the_disk_works_then_later_batches_share_the_next_sync(
    autojump_clock,
):
    plan = FaultPlan()
    partition = await create(SimulatedStorage(plan), PartitionSettings(ack=AckLevel.FSYNC))
    syncs = plan.delay("sync", seconds=1, path="*.log")
    ends = []

    began_s = trio.current_time()
    groups = [stage(partition, [b"a"])]
    async with trio.open_nursery() as nursery:
        run_in_background(partition.commit(), nursery)
        groups += [stage(partition, [b"b"]), stage(partition, [b"c"])]
        for group in groups:
            group.add_done_callback(lambda _: ends.append(trio.current_time() - began_s))
        assert commit_at_once(partition), "one at a time, and that one goes on"
        assert await payloads(partition) == []
        await groups[0].wait()
        assert [group.is_done for group in groups] == [True, False, False]
        await groups[2].wait()
        assert not nursery.child_tasks, "the ends of the syncs call back"

    assert ends == pytest.approx([1, 2, 2], abs=0.01)
    assert syncs.matched_count == 2
    assert not partition._writer.is_committing
    assert await payloads(partition) == [b"a", b"b", b"c"]


async def test_commit_soon_when_the_sync_fails_then_refused_and_the_partition_is_read_only(nursery):
    plan = FaultPlan()
    partition = await create(SimulatedStorage(plan), PartitionSettings(ack=AckLevel.FSYNC))
    await send(partition, b"a")
    plan.fail("sync", path="*.log")
    group = stage(partition, [b"b"])

    run_in_background(partition.commit(), nursery)
    await group.settled()

    assert group.fault is not None
    assert group.fault.status == CANNOT_SYNC_FILE
    assert partition.health is PartitionHealth.READ_ONLY
    assert await payloads(partition) == [b"a"]


async def test_commit_soon_when_the_write_fails_then_refused_at_once_and_a_task_tidies_up():
    plan = FaultPlan(seed=2)
    storage = SimulatedStorage(plan)
    partition = await create(storage, PartitionSettings(ack=AckLevel.FSYNC))
    await send(partition, b"a")
    plan.fail("write", path="*.log", times=1)
    group = stage(partition, [b"b"])

    async with trio.open_nursery() as nursery:
        run_in_background(partition.commit(), nursery)
        assert group.fault is not None
        assert group.fault.status == CANNOT_WRITE_TO_FILE
        assert nursery.child_tasks, "what is left of it has to be cut"

    assert (await file_sizes(storage))["0.log"] == 65
    await send(partition, b"c")
    assert await payloads(partition) == [b"a", b"c"]


@pytest.mark.parametrize("ack", [AckLevel.MEMORY, AckLevel.WRITTEN])
async def test_commit_soon_when_nothing_is_to_be_synced_then_done_at_once(ack, nursery):
    partition = await create(SimulatedStorage(), PartitionSettings(ack=ack))
    group = stage(partition, [b"a"])

    run_in_background(partition.commit(), nursery)

    assert group.is_done
    assert not partition._writer.is_committing
    assert not nursery.child_tasks


async def test_commit_soon_when_the_index_fails_behind_the_sync_then_acknowledged_and_logged(
    nursery, caplog
):
    plan = FaultPlan()
    partition = await create(SimulatedStorage(plan), PartitionSettings(ack=AckLevel.FSYNC))
    plan.refuse(path="*.index", times=1)
    plan.fail("sync", path="*.index")
    group = stage(partition, [b"a"])

    run_in_background(partition.commit(), nursery)
    await group.wait()

    assert [
        record.message for record in caplog.records if "an index is not written" in record.message
    ]
    assert partition.health is PartitionHealth.OK
    assert not partition._writer.lock.is_locked
    plan.heal()
    await send(partition, b"b")
    assert await payloads(partition) == [b"a", b"b"]


async def test_flush_when_a_sync_was_begun_then_waits_for_it_and_comes_next(autojump_clock):
    plan = FaultPlan()
    storage = SimulatedStorage(plan)
    partition = await create(storage, PartitionSettings(ack=AckLevel.FSYNC))
    plan.delay("sync", seconds=1, path="*.log")
    first = stage(partition, [b"a"])

    async with trio.open_nursery() as nursery:
        run_in_background(partition.commit(), nursery)
        nursery.start_soon(partial(partition.flush, fsync=False))
        await trio.sleep(0.5)
        second = stage(partition, [b"b"])
        assert not first.is_done

    assert (first.is_done, second.is_done) == (True, True)
    assert (await file_sizes(storage))["0.index"] == 32


async def test_close_when_a_sync_was_begun_then_waits_for_it(autojump_clock, nursery):
    plan = FaultPlan()
    partition = await create(SimulatedStorage(plan), PartitionSettings(ack=AckLevel.FSYNC))
    plan.delay("sync", seconds=1, path="*.log")
    group = stage(partition, [b"a"])
    run_in_background(partition.commit(), nursery)

    await partition.aclose()

    assert (group.is_done, group.fault) == (True, None)

"""Appending: offsets, times, groups, files, and what is visible when."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from iggy_protocol import NewMessage, PollingStrategy
from iggy_ref_server.clock import SimulatedClock
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.partitions import append
from iggy_ref_server.partitions.settings import AckLevel, PartitionSettings
from iggy_ref_server.partitions.steps import run_async
from iggy_ref_server.storage.simulated.fault_plan import FaultPlan
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.partitions.partition_calls import (
    CONSUMER,
    FROM_START,
    PATH,
    body_of,
    commit,
    commit_at_once,
    create,
    file_sizes,
    offsets,
    payloads,
    poll,
    reopen,
    request,
    send,
    stage,
)

pytestmark = pytest.mark.trio

LEVELS = pytest.mark.parametrize("ack", AckLevel)


@LEVELS
async def test_messages_when_sent_then_polled_in_order_with_offsets_times_and_ids(ack):
    partition = await create(SimulatedStorage(), PartitionSettings(ack=ack))

    await send(partition, b"a", NewMessage(b"b", id=77, user_headers=b"headers"))
    await send(partition, b"c")

    first, second, third = await poll(partition)
    assert [first.offset, second.offset, third.offset] == [0, 1, 2]
    assert [first.payload, second.payload, third.payload] == [b"a", b"b", b"c"]
    assert (second.id, second.user_headers) == (77, b"headers")
    assert first.id not in {0, third.id}
    assert first.timestamp_us == second.timestamp_us > 0


@pytest.mark.parametrize("ack", [AckLevel.WRITTEN, AckLevel.FSYNC])
async def test_messages_when_staged_then_invisible_until_the_group_is_done(ack):
    partition = await create(SimulatedStorage(), PartitionSettings(ack=ack))
    group = stage(partition, [b"a"])

    assert (await payloads(partition), group.is_done) == ([], False)
    assert partition.statistics().messages_count == 0
    await commit(partition)

    assert (await payloads(partition), group.is_done, group.fault) == ([b"a"], True, None)


async def test_batches_when_staged_in_one_wake_then_one_write_and_one_group():
    plan = FaultPlan()
    partition = await create(SimulatedStorage(plan))
    writes = plan.delay("write", seconds=0, path="*.log")

    groups = [stage(partition, [b"x"] * count) for count in (1, 3, 2)]

    assert commit_at_once(partition)
    assert writes.matched_count <= 1
    assert groups[0] is groups[1] is groups[2]
    assert await offsets(partition) == [0, 1, 2, 3, 4, 5]


async def test_group_when_asked_in_every_way_then_tells():
    partition = await create(SimulatedStorage())
    told: list[str] = []
    group = stage(partition, [b"a"])
    group.add_done_callback(lambda done: told.append(f"before {done.is_done}"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(group.wait)
        await trio.testing.wait_all_tasks_blocked()
        commit_at_once(partition)
    group.add_done_callback(lambda done: told.append("after"))
    await group.wait()

    assert told == ["before True", "after"]


@LEVELS
async def test_body_when_written_then_its_buffer_is_free(ack):
    partition = await create(SimulatedStorage(), PartitionSettings(ack=ack))
    body, shape = body_of([b"payload"])
    with memoryview(body) as view:
        group = partition.stage(view, shape)
        await commit(partition)
        await group.wait()

    body.clear()  # a BufferError if anybody still looked at it

    assert await payloads(partition) == [b"payload"]


@LEVELS
async def test_body_when_the_write_fails_then_its_buffer_is_free(ack):
    plan = FaultPlan()
    partition = await create(SimulatedStorage(plan), PartitionSettings(ack=ack))
    plan.fail("write")
    body, shape = body_of([b"payload"])
    with memoryview(body) as view:
        group = partition.stage(view, shape)
        await commit(partition)
    assert group.is_done

    body.clear()


@LEVELS
async def test_body_when_read_only_then_copied(ack):
    partition = await create(SimulatedStorage(), PartitionSettings(ack=ack))
    body, shape = body_of([b"payload"])
    frozen = bytes(body)

    group = partition.stage(memoryview(frozen), shape)
    await commit(partition)
    await group.wait()

    assert await payloads(partition) == [b"payload"]
    assert frozen == bytes(body)


async def test_clock_when_it_steps_back_then_times_do_not():
    clock = SimulatedClock()
    storage = SimulatedStorage()
    partition = await create(storage, clock=clock)
    await send(partition, b"a")
    clock.step(-10_000_000)
    await send(partition, b"b")
    await partition.aclose()
    partition = await reopen(storage, clock=clock)
    await send(partition, b"c")

    times = [message.timestamp_us for message in await poll(partition)]

    assert times == sorted(times)
    assert await offsets(partition, request(PollingStrategy.timestamp(times[0]))) == [0, 1, 2]


@pytest.mark.parametrize("ack", [AckLevel.WRITTEN, AckLevel.FSYNC])
@pytest.mark.parametrize("grouped", [1, 5], ids=["one by one", "five in a wake"])
async def test_segments_when_5_kib_and_1000_byte_records_then_roll_at_0_7_14_21(ack, grouped):
    storage = SimulatedStorage()
    settings = PartitionSettings(segment_size_bytes=5120, messages_required_to_save=1, ack=ack)
    partition = await create(storage, settings)
    for _ in range(25 // grouped):
        for _ in range(grouped):
            stage(partition, [bytes(936)])
        await commit(partition)

    assert await file_sizes(storage) == {
        "0.log": 7000,
        "0.index": 112,
        "7.log": 7000,
        "7.index": 112,
        "14.log": 7000,
        "14.index": 112,
        "21.log": 4000,
        "21.index": 64,
    }
    assert await offsets(partition) == list(range(25))
    assert partition.statistics().segments_count == 4


async def test_batch_when_it_overflows_then_goes_into_the_full_segment_whole():
    storage = SimulatedStorage()
    partition = await create(storage, PartitionSettings(segment_size_bytes=100))

    await send(partition, *[bytes(36)] * 50)
    await send(partition, *[bytes(36)] * 7)
    await send(partition, bytes(36))

    await partition.flush(fsync=False)
    assert await file_sizes(storage) == {
        "0.log": 5700,
        "0.index": 57 * 16,
        "57.log": 100,
        "57.index": 16,
    }


async def test_index_file_when_it_lags_then_exact_after_flush_roll_and_close():
    storage = SimulatedStorage()
    partition = await create(storage, PartitionSettings(messages_required_to_save=10))
    for _ in range(9):
        await send(partition, b"x")
    assert (await file_sizes(storage))["0.index"] == 0
    await send(partition, b"x")
    assert (await file_sizes(storage))["0.index"] == 160
    await send(partition, b"x")
    await partition.flush(fsync=False)
    assert (await file_sizes(storage))["0.index"] == 176
    await send(partition, b"x")
    await partition.save()
    assert (await file_sizes(storage))["0.index"] == 192
    await send(partition, b"x")
    await partition.aclose()
    assert (await file_sizes(storage))["0.index"] == 208


async def test_batch_when_the_segment_cannot_hold_it_then_it_rolls_before(monkeypatch):
    """Positions in an index have 32 bits, so a segment never grows beyond 4 GiB."""
    monkeypatch.setattr(append, "POSITION_MAX", 1000)
    storage = SimulatedStorage()
    partition = await create(storage, PartitionSettings(messages_required_to_save=1))
    await send(partition, bytes(736))

    await send(partition, bytes(136))
    stage(partition, [bytes(36)])
    await send(partition, bytes(136))

    assert await file_sizes(storage) == {
        "0.log": 1000,
        "0.index": 32,
        "2.log": 300,
        "2.index": 32,
    }
    with pytest.raises(ServerFault):
        stage(partition, [bytes(937)])
    assert await offsets(partition) == [0, 1, 2, 3]
    partition = await reopen(storage.kill())
    assert await offsets(partition) == [0, 1, 2, 3]


async def test_early_roll_when_its_write_fails_then_the_old_segment_stays_closed(monkeypatch):
    monkeypatch.setattr(append, "POSITION_MAX", 1000)
    plan = FaultPlan()
    storage = SimulatedStorage(plan)
    partition = await create(storage)
    await send(partition, bytes(736))
    plan.fail("write", path="*1.log", times=1)
    group = stage(partition, [bytes(236)])
    await commit(partition)
    assert group.fault is not None

    await send(partition, bytes(36))

    assert await file_sizes(storage) == {"0.log": 800, "0.index": 16, "1.log": 100, "1.index": 0}
    partition = await reopen(storage.kill())
    assert await offsets(partition) == [0, 1]


async def test_message_when_alone_at_offset_0_and_restarted_then_next_gets_offset_1():
    storage = SimulatedStorage()
    await send(await create(storage), b"a")
    partition = await reopen(storage.kill())
    await send(partition, b"b")

    assert await offsets(partition) == [0, 1]


@LEVELS
async def test_partition_when_closed_and_opened_then_everything_is_there(ack):
    storage = SimulatedStorage()
    settings = PartitionSettings(ack=ack, segment_size_bytes=500)
    partition = await create(storage, settings)
    for number in range(30):
        await send(partition, b"message %d" % number)
    before = partition.statistics()
    await partition.aclose()
    await partition.aclose()

    partition = await reopen(storage.crash(), settings)

    assert partition.statistics() == before
    assert await payloads(partition) == [b"message %d" % number for number in range(30)]
    await send(partition, b"more")
    assert (await offsets(partition))[-1] == 30


async def test_partition_when_closed_then_takes_nothing():
    partition = await create(SimulatedStorage())
    await partition.aclose()

    with pytest.raises(ServerFault):
        stage(partition, [b"x"])


async def test_partition_when_created_over_old_files_then_they_are_gone():
    storage = SimulatedStorage()
    settings = PartitionSettings(segment_size_bytes=100)
    partition = await create(storage, settings)
    for _ in range(5):
        await send(partition, b"old")
    await run_async(partition.store_offset(CONSUMER, 2))

    partition = await create(storage, settings)

    assert await poll(partition, FROM_START) == []
    assert partition.stored_offset(CONSUMER) is None
    assert await file_sizes(storage) == {"0.log": 0, "0.index": 0}
    assert [entry.name for entry in await storage.entries(f"{PATH}/offsets")] == [
        "consumers",
        "groups",
    ]

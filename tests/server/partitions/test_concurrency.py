"""Writing, reading, saving and removing at the same time, on files in memory and on real ones."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
import trio

from iggy_protocol import PollingStrategy
from iggy_ref_server.partitions.settings import AckLevel, PartitionSettings
from iggy_ref_server.partitions.steps import run_async
from iggy_ref_server.process.shard_process import open_storage
from iggy_ref_server.storage.files import WritebackLimit
from iggy_ref_server.storage.interface import StorageError
from iggy_ref_server.storage.simulated.fault_plan import FaultPlan
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from iggy_ref_server.storage.threads import ThreadStorage
from tests.server.partitions.partition_calls import (
    CONSUMER,
    commit,
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

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from iggy_ref_server.partitions.partition import PartitionLog
    from iggy_ref_server.storage.interface import Storage

pytestmark = pytest.mark.trio

LEVELS = pytest.mark.parametrize("ack", AckLevel)


@pytest.fixture(params=["memory", "threads", "io_uring", "io_uring without inline writes"])
async def storage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Storage]:
    """Offer files in memory that are slow and cold at times, and files on a disk."""
    if request.param == "memory":
        yield SimulatedStorage(slow_and_cold())
        return
    engine, _, is_never_inline = request.param.partition(" ")
    # Without inline writes every append goes through the ring.
    writeback_limit = WritebackLimit(inline_bytes_max=0) if is_never_inline else None
    try:
        opened = await open_storage(tmp_path, engine, writeback_limit=writeback_limit)
    except StorageError as error:
        pytest.skip(str(error))
    yield opened
    await opened.aclose()


def slow_and_cold() -> FaultPlan:
    """Plan for a disk that answers when it likes."""
    plan = FaultPlan(seed=11)
    plan.delay("*", seconds=(0, 0.001), probability=0.3)
    plan.refuse(probability=0.3)
    plan.uncache(probability=0.3)
    return plan


async def produce(partition: PartitionLog, number: int, count: int) -> None:
    """Send messages one by one."""
    for place in range(count):
        group = stage(partition, [b"%d/%d" % (number, place)])
        await commit(partition)
        await group.wait()


async def consume(partition: PartitionLog, total: int) -> list[bytes]:
    """Read with auto-commit until everything came; no offset is left out or comes twice."""
    found: list[bytes] = []
    wanted = request(PollingStrategy.next(), 7, consumer=CONSUMER)
    while len(found) < total:
        messages = await poll(partition, wanted)
        for message in messages:
            assert message.offset == len(found)
            found.append(message.payload)
        if messages:
            last = messages[-1].offset
            await run_async(partition.store_offset(CONSUMER, last))
        await trio.lowlevel.checkpoint()
    return found


@LEVELS
async def test_messages_when_produced_consumed_and_saved_at_once_then_none_is_skipped(storage, ack):
    settings = PartitionSettings(ack=ack, segment_size_bytes=512, messages_required_to_save=3)
    partition = await create(storage, settings)
    producers, each = 3, 12
    found: list[bytes] = []

    async def read() -> None:
        found.extend(await consume(partition, producers * each))
        nursery.cancel_scope.cancel()

    async def save() -> None:
        while True:
            await partition.save()
            await trio.sleep(0.001)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        nursery.start_soon(save)
        for number in range(producers):
            nursery.start_soon(produce, partition, number, each)
    for number in range(producers):
        own = [payload for payload in found if payload.startswith(b"%d/" % number)]
        assert own == [b"%d/%d" % (number, place) for place in range(each)]
    await partition.aclose()
    partition = await reopen(storage, settings)
    assert await payloads(partition) == found
    assert partition.stored_offset(CONSUMER) == producers * each - 1


async def test_readers_when_old_segments_go_then_move_up_and_never_see_a_hole(storage):
    settings = PartitionSettings(segment_size_bytes=300, messages_required_to_save=1)
    partition = await create(storage, settings)
    is_over = trio.Event()

    async def read() -> None:
        next_offset = 0
        while not is_over.is_set():
            found = await offsets(partition, request(PollingStrategy.offset(next_offset), 9))
            if found:
                assert found == list(range(found[0], found[0] + len(found)))
                assert found[0] >= next_offset
                next_offset = found[-1] + 1
            await trio.lowlevel.checkpoint()

    async def remove() -> None:
        while not is_over.is_set():
            await partition.delete_segments(1)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(read)
        nursery.start_soon(remove)
        for number in range(3):
            await produce(partition, number, 10)
        is_over.set()
    assert partition.statistics().current_offset == 29


@LEVELS
async def test_partition_when_purged_under_load_then_ends_consistent(storage, ack):
    settings = PartitionSettings(ack=ack, segment_size_bytes=400, messages_required_to_save=3)
    partition = await create(storage, settings)

    async def read() -> None:
        while True:
            await poll(partition)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        async with trio.open_nursery() as producers:
            producers.start_soon(produce, partition, 0, 15)
            producers.start_soon(produce, partition, 1, 15)
            await trio.sleep(0.002)
            await partition.purge(generation=7)
        nursery.cancel_scope.cancel()

    left = await offsets(partition)
    assert left == list(range(len(left)))
    await partition.aclose()
    assert await offsets(await reopen(storage, settings)) == left


async def test_files_when_on_a_real_disk_then_have_the_sizes_of_upstream(tmp_path):
    storage = ThreadStorage(tmp_path)
    settings = PartitionSettings(segment_size_bytes=5120, messages_required_to_save=1)
    partition = await create(storage, settings)
    for _ in range(15):
        await send(partition, bytes(936))
    await partition.delete_segments(1)
    await partition.purge(generation=7)
    for _ in range(9):
        await send(partition, bytes(936))

    assert await file_sizes(storage) == {
        "0.log": 7000,
        "0.index": 112,
        "7.log": 2000,
        "7.index": 32,
    }


async def test_partition_when_closed_while_a_commit_runs_then_waits_for_it(storage):
    partition = await create(storage, PartitionSettings(ack=AckLevel.FSYNC))
    async with trio.open_nursery() as nursery:
        group = stage(partition, [b"a"])
        nursery.start_soon(run_async, partition.commit())
        await trio.lowlevel.checkpoint()
        await partition.aclose()

    assert group.is_done
    with suppress(AttributeError):
        storage.plan.heal()
    assert await payloads(await reopen(storage)) == [b"a"]

"""Stored offsets: files, limits, and files that make no sense."""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING

import pytest
import trio

from iggy_protocol import ConsumerKind, PollingStrategy
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.partitions.offsets import OffsetKey
from iggy_ref_server.partitions.settings import AckLevel, PartitionSettings
from iggy_ref_server.partitions.steps import run_async
from iggy_ref_server.storage.simulated.disk import Survival
from iggy_ref_server.storage.simulated.fault_plan import FaultPlan
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.partitions.partition_calls import (
    CONSUMER,
    GROUP,
    PATH,
    create,
    offsets,
    payloads,
    reopen,
    request,
    send,
    store_at_once,
)

if TYPE_CHECKING:
    from iggy_ref_server.partitions.partition import PartitionLog

pytestmark = pytest.mark.trio

KINDS = (ConsumerKind.SINGLE, ConsumerKind.GROUP)
INVALID_OFFSET = 4100
CONSUMER_OFFSET_NOT_FOUND = 3021
KEYS = pytest.mark.parametrize("key", [CONSUMER, GROUP], ids=["consumer", "group"])


async def filled(
    storage: SimulatedStorage, settings: PartitionSettings | None = None
) -> PartitionLog:
    """Make a partition with ten messages."""
    partition = await create(storage, settings)
    await send(partition, *[b"x"] * 10)
    return partition


def path_of(key: OffsetKey) -> str:
    """Name the file of a stored offset."""
    folder = {ConsumerKind.SINGLE: "consumers", ConsumerKind.GROUP: "groups"}[key.kind]
    return f"{PATH}/offsets/{folder}/{key.id}"


@KEYS
@pytest.mark.parametrize("offset", [0, 1])
async def test_offset_when_partition_is_empty_then_invalid(key, offset):
    partition = await create(SimulatedStorage())

    with pytest.raises(ServerFault) as caught:
        await run_async(partition.store_offset(key, offset))
    assert caught.value.status == INVALID_OFFSET
    with pytest.raises(ServerFault):
        store_at_once(partition, key, offset)


@KEYS
async def test_offset_when_up_to_the_current_one_then_stored_and_beyond_it_invalid(key):
    partition = await filled(SimulatedStorage())

    for offset in (3, 9, 5):
        await run_async(partition.store_offset(key, offset))
        assert partition.stored_offset(key) == offset
    with pytest.raises(ServerFault) as caught:
        await run_async(partition.store_offset(key, 10))
    assert caught.value.status == INVALID_OFFSET
    assert partition.stored_offset(key) == 5


@KEYS
async def test_file_when_stored_then_eight_bytes_under_the_id(key):
    storage = SimulatedStorage()
    partition = await filled(storage)

    await run_async(partition.store_offset(key, 7))

    assert await storage.read_file(path_of(key)) == struct.pack("<Q", 7)


async def test_store_when_the_file_is_open_then_at_once_with_one_write():
    plan = FaultPlan()
    storage = SimulatedStorage(plan)
    partition = await filled(storage)
    assert not store_at_once(partition, CONSUMER, 1), "the file has to be made first"
    await run_async(partition.store_offset(CONSUMER, 1))
    plan.fail("replace")
    plan.fail("open")

    assert store_at_once(partition, CONSUMER, 2)
    await run_async(partition.store_offset(CONSUMER, 3))

    assert await storage.read_file(path_of(CONSUMER)) == struct.pack("<Q", 3)


async def test_store_when_synced_then_survives_a_power_loss():
    storage = SimulatedStorage()
    settings = PartitionSettings(ack=AckLevel.FSYNC)
    partition = await filled(storage, settings)
    for offset in (1, 2, 3):
        await run_async(partition.store_offset(CONSUMER, offset))
        assert not store_at_once(partition, CONSUMER, offset)

    partition = await reopen(storage.crash(Survival.NOTHING), settings)

    assert partition.stored_offset(CONSUMER) == 3


@pytest.mark.parametrize("ack", [AckLevel.WRITTEN, AckLevel.FSYNC])
async def test_store_when_it_fails_then_the_old_one_stays(ack):
    plan = FaultPlan()
    partition = await filled(SimulatedStorage(plan), PartitionSettings(ack=ack))
    plan.fail("replace", times=1)
    with pytest.raises(ServerFault):
        await run_async(partition.store_offset(CONSUMER, 1))
    assert partition.stored_offset(CONSUMER) is None
    await run_async(partition.store_offset(CONSUMER, 2))
    plan.fail("write", times=1)

    with pytest.raises(ServerFault):
        await run_async(partition.store_offset(CONSUMER, 3))

    assert partition.stored_offset(CONSUMER) == 2
    await run_async(partition.store_offset(CONSUMER, 4))
    assert partition.stored_offset(CONSUMER) == 4


@KEYS
async def test_offset_when_deleted_then_gone_from_memory_and_disk(key):
    storage = SimulatedStorage()
    partition = await filled(storage)
    await run_async(partition.store_offset(key, 5))

    await partition.delete_offset(key)

    assert partition.stored_offset(key) is None
    assert await storage.read_file(path_of(key)) is None
    with pytest.raises(ServerFault) as caught:
        await partition.delete_offset(key)
    assert caught.value.status == CONSUMER_OFFSET_NOT_FOUND
    await run_async(partition.store_offset(key, 6))
    assert (await reopen(storage.kill())).stored_offset(key) == 6


async def test_group_when_forgotten_then_only_its_offset_goes_and_absence_is_no_error():
    partition = await filled(SimulatedStorage())
    await run_async(partition.store_offset(CONSUMER, 5))
    await run_async(partition.store_offset(GROUP, 6))

    await partition.delete_other_groups({GROUP.id + 1})
    await partition.delete_other_groups({GROUP.id + 1})

    assert (partition.stored_offset(CONSUMER), partition.stored_offset(GROUP)) == (5, None)


async def test_offsets_when_restarted_then_the_same():
    storage = SimulatedStorage()
    partition = await filled(storage)
    keys = [OffsetKey(kind, number) for kind in KINDS for number in (0, 1, 2**32 - 1)]
    for number, key in enumerate(keys):
        await run_async(partition.store_offset(key, number))

    partition = await reopen(storage.kill())

    assert [partition.stored_offset(key) for key in keys] == list(range(6))
    assert not store_at_once(partition, keys[0], 9)
    await run_async(partition.store_offset(keys[0], 9))
    assert store_at_once(partition, keys[0], 8)


async def test_files_when_more_consumers_than_may_be_open_then_all_stored():
    storage = SimulatedStorage()
    partition = await filled(storage)
    keys = [OffsetKey(ConsumerKind.SINGLE, number) for number in range(40)]
    for offset in (3, 4):
        for key in keys:
            await run_async(partition.store_offset(key, offset))

    partition = await reopen(storage.kill())

    assert {partition.stored_offset(key) for key in keys} == {4}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("2", b""),
        ("2", b"\x01" * 7),
        ("2", b"\x01" * 9),
        ("two", b"\x01" * 8),
        ("002", b"\x01" * 8),
        ("-2", b"\x01" * 8),
        ("4294967296", b"\x01" * 8),
        ("²", b"\x01" * 8),
    ],
)
async def test_file_when_it_makes_no_sense_then_passed_over_and_the_others_count(
    name, content, caplog
):
    """On the real server one such file loses all offsets, or stops the start (D12)."""
    storage = SimulatedStorage()
    partition = await filled(storage)
    await run_async(partition.store_offset(CONSUMER, 5))
    await run_async(partition.store_offset(GROUP, 6))
    await storage.replace(f"{PATH}/offsets/consumers/{name}", content)
    storage = storage.kill()

    with caplog.at_level(logging.WARNING):
        partition = await reopen(storage)

    assert (partition.stored_offset(CONSUMER), partition.stored_offset(GROUP)) == (5, 6)
    assert f"offsets/consumers/{name}" in caplog.text
    bad = OffsetKey(ConsumerKind.SINGLE, 2)
    assert partition.stored_offset(bad) is None
    await run_async(partition.store_offset(bad, 7))
    assert (await reopen(storage.kill())).stored_offset(bad) == 7


async def test_offset_when_ahead_of_the_data_then_clamped_and_new_messages_are_delivered():
    storage = SimulatedStorage()
    partition = await filled(storage)
    await run_async(partition.store_offset(CONSUMER, 5))
    await storage.replace(path_of(CONSUMER), struct.pack("<Q", 999))
    storage = storage.kill()
    partition = await reopen(storage)
    assert partition.stored_offset(CONSUMER) == 9
    assert await storage.read_file(path_of(CONSUMER)) == struct.pack("<Q", 9), "also after a kill"

    await send(partition, b"new")

    wanted = request(PollingStrategy.next(), consumer=CONSUMER)
    assert await payloads(partition, wanted) == [b"new"]


async def test_offset_when_partition_lost_everything_then_nothing_counts_as_read():
    storage = SimulatedStorage()
    partition = await filled(storage)
    await run_async(partition.store_offset(CONSUMER, 5))
    await storage.replace(f"{PATH}/{0:020}.log", b"")
    partition = await reopen(storage.kill())
    await send(partition, b"new")

    assert await offsets(partition, request(PollingStrategy.next(), consumer=CONSUMER)) == [0]


async def test_stores_when_many_at_once_then_the_last_one_counts_in_memory_and_on_disk(
    autojump_clock,
):
    plan = FaultPlan(seed=5)
    storage = SimulatedStorage(plan)
    partition = await filled(storage)
    plan.delay("*", seconds=(0, 1))
    async with trio.open_nursery() as nursery:
        for offset in range(10):
            nursery.start_soon(run_async, partition.store_offset(CONSUMER, offset))
    stored = partition.stored_offset(CONSUMER)

    assert await storage.read_file(path_of(CONSUMER)) == struct.pack("<Q", stored)

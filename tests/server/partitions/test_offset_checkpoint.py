"""Files of stored offsets that somebody changed: no consumer misses messages because of it."""

from __future__ import annotations

import pytest

from iggy_ref_server.partitions.offsets import OFFSET_CHECKPOINT_FILE
from iggy_ref_server.partitions.settings import PartitionSettings
from iggy_ref_server.partitions.steps import run_async
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.partitions.partition_calls import CONSUMER, GROUP, PATH, create, reopen, send

pytestmark = pytest.mark.trio

FILE = f"{PATH}/offsets/consumers/1"
SURVIVED = PartitionSettings(writes_survived=True)


async def stored(*, is_orderly: bool) -> SimulatedStorage:
    """Send twenty messages, store two offsets, and end."""
    storage = SimulatedStorage()
    partition = await create(storage, SURVIVED)
    for _ in range(20):
        await send(partition, b"x")
    await run_async(partition.store_offset(CONSUMER, 3))
    await run_async(partition.store_offset(GROUP, 5))
    await partition.flush(fsync=True)
    if is_orderly:
        await partition.aclose()
    return storage.kill()


@pytest.mark.parametrize("bit", [0, 2, 3, 40, 63])
async def test_offset_when_a_bit_is_flipped_after_an_orderly_stop_then_put_right(bit):
    storage = await stored(is_orderly=True)
    await storage.replace(FILE, (3 ^ 1 << bit).to_bytes(8, "little"))

    partition = await reopen(storage, SURVIVED)

    assert partition.stored_offset(CONSUMER) == 3
    assert partition.stored_offset(GROUP) == 5
    assert await storage.read_file(FILE) == (3).to_bytes(8, "little")


@pytest.mark.parametrize("content", [b"", b"short", None])
async def test_offset_when_cut_or_missing_after_an_orderly_stop_then_put_right(content):
    storage = await stored(is_orderly=True)
    await storage.remove(FILE)
    if content is not None:
        await storage.replace(FILE, content)

    assert (await reopen(storage, SURVIVED)).stored_offset(CONSUMER) == 3


async def test_offset_when_beyond_the_last_message_after_a_kill_then_its_consumer_starts_over():
    storage = await stored(is_orderly=False)
    await storage.replace(FILE, (3 + 2**40).to_bytes(8, "little"))

    partition = await reopen(storage, SURVIVED)

    assert partition.stored_offset(CONSUMER) is None
    assert partition.stored_offset(GROUP) == 5


async def test_offset_when_its_message_may_be_lost_then_counts_as_the_last_one():
    storage = await stored(is_orderly=False)
    await storage.replace(FILE, (30).to_bytes(8, "little"))

    assert (await reopen(storage, PartitionSettings())).stored_offset(CONSUMER) == 19


async def test_offset_when_too_far_for_any_loss_then_its_consumer_starts_over():
    storage = await stored(is_orderly=False)
    await storage.replace(FILE, (3 + 2**24).to_bytes(8, "little"))

    assert (await reopen(storage, PartitionSettings())).stored_offset(CONSUMER) is None


async def test_note_when_offsets_change_then_gone_before():
    storage = await stored(is_orderly=True)
    assert await storage.read_file(f"{PATH}/{OFFSET_CHECKPOINT_FILE}") is not None
    partition = await reopen(storage, SURVIVED)

    await run_async(partition.store_offset(CONSUMER, 9))

    assert await storage.read_file(f"{PATH}/{OFFSET_CHECKPOINT_FILE}") is None
    assert (await reopen(storage.kill(), SURVIVED)).stored_offset(CONSUMER) == 9


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_note_when_damaged_or_an_offset_is_deleted_then_the_files_count(is_deleted):
    storage = await stored(is_orderly=True)
    if is_deleted:
        partition = await reopen(storage, SURVIVED)
        await partition.delete_offset(CONSUMER)
        storage = storage.kill()
    else:
        content = bytearray(await storage.read_file(f"{PATH}/{OFFSET_CHECKPOINT_FILE}") or b"")
        content[3] ^= 1
        await storage.replace(f"{PATH}/{OFFSET_CHECKPOINT_FILE}", content)

    partition = await reopen(storage, SURVIVED)

    assert partition.stored_offset(CONSUMER) == (None if is_deleted else 3)
    assert partition.stored_offset(GROUP) == 5


@pytest.mark.parametrize("settings", [SURVIVED, PartitionSettings()], ids=["killed", "power lost"])
@pytest.mark.parametrize("is_orderly", [True, False])
async def test_offset_when_it_did_not_count_then_never_counts_later(settings, is_orderly):
    """The log grows beyond it, and then it looks like one that a consumer has stored."""
    storage = await stored(is_orderly=False)
    await storage.replace(FILE, (30).to_bytes(8, "little"))
    partition = await reopen(storage, settings)
    expected = partition.stored_offset(CONSUMER)
    assert expected in (None, 19)
    for _ in range(20):
        await send(partition, b"new")
    if is_orderly:
        await partition.aclose()

    storage = storage.kill()
    again = await reopen(storage, SURVIVED)

    assert again.stored_offset(CONSUMER) == expected
    assert again.stored_offset(GROUP) == 5
    kept = await storage.read_file(f"quarantine/at-start/{FILE}")
    assert kept == (None if expected else (30).to_bytes(8, "little"))


async def test_offset_when_there_never_was_a_message_then_never_counts_later():
    storage = SimulatedStorage()
    await create(storage, SURVIVED)
    await storage.replace(FILE, (7).to_bytes(8, "little"))
    storage = storage.kill()
    partition = await reopen(storage, SURVIVED)
    assert partition.stored_offset(CONSUMER) is None
    for _ in range(20):
        await send(partition, b"new")

    again = await reopen(storage.kill(), SURVIVED)

    assert again.stored_offset(CONSUMER) is None


@pytest.mark.parametrize(("is_orderly", "expected"), [(True, 3), (False, 19)])
async def test_offset_when_the_disk_refuses_to_put_it_right_then_opened_all_the_same(
    is_orderly, expected
):
    storage = await stored(is_orderly=is_orderly)
    await storage.replace(FILE, (30).to_bytes(8, "little"))
    storage.plan.fail("replace")

    assert (await reopen(storage, PartitionSettings())).stored_offset(CONSUMER) == expected

"""Files of stored offsets that somebody changed: no consumer misses messages because of it."""

from __future__ import annotations

import pytest

from iggy_ref_server.partitions import PartitionSettings
from iggy_ref_server.partitions.offset_note import NAME
from iggy_ref_server.storage.memory import MemoryStorage
from tests.server.partitions.partition_talk import CONSUMER, GROUP, PATH, create, reopen, send

pytestmark = pytest.mark.trio

FILE = f"{PATH}/offsets/consumers/1"
SURVIVED = PartitionSettings(writes_survived=True)


async def stored(*, is_orderly: bool) -> MemoryStorage:
    """Send twenty messages, store two offsets, and end."""
    storage = MemoryStorage()
    partition = await create(storage, SURVIVED)
    for _ in range(20):
        await send(partition, b"x")
    await partition.store_offset(CONSUMER, 3)
    await partition.store_offset(GROUP, 5)
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
    assert await storage.read_file(f"{PATH}/{NAME}") is not None
    partition = await reopen(storage, SURVIVED)

    await partition.store_offset(CONSUMER, 9)

    assert await storage.read_file(f"{PATH}/{NAME}") is None
    assert (await reopen(storage.kill(), SURVIVED)).stored_offset(CONSUMER) == 9


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_note_when_damaged_or_an_offset_is_deleted_then_the_files_count(is_deleted):
    storage = await stored(is_orderly=True)
    if is_deleted:
        partition = await reopen(storage, SURVIVED)
        await partition.delete_offset(CONSUMER)
        storage = storage.kill()
    else:
        content = bytearray(await storage.read_file(f"{PATH}/{NAME}") or b"")
        content[3] ^= 1
        await storage.replace(f"{PATH}/{NAME}", content)

    partition = await reopen(storage, SURVIVED)

    assert partition.stored_offset(CONSUMER) == (None if is_deleted else 3)
    assert partition.stored_offset(GROUP) == 5

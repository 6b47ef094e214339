"""Up to which generation partitions were on the disk: what notes of shards say together."""

from __future__ import annotations

import pytest

from iggy_ref_server.partitions.generation import (
    NO_GENERATION,
    read_opened_generation,
    write_opened_generation,
)
from iggy_ref_server.storage.simulated.storage import SimulatedStorage

pytestmark = pytest.mark.trio


async def noted(*generations: int) -> SimulatedStorage:
    """Have each of these shards note its generation."""
    storage = SimulatedStorage()
    await storage.make_directories("state")
    for shard_id, generation in enumerate(generations):
        await write_opened_generation(
            storage, shard_id, shards_count=len(generations), generation=generation
        )
    return storage


async def test_notes_when_all_shards_have_written_theirs_then_the_lowest_counts():
    assert await read_opened_generation(await noted(7, 5, 6)) == 5


async def test_notes_when_there_are_none_then_nothing_is_known():
    assert await read_opened_generation(SimulatedStorage()) == NO_GENERATION


@pytest.mark.parametrize("shard_id", [0, 1])
async def test_notes_when_one_is_damaged_then_nothing_is_known(shard_id):
    storage = await noted(7, 5)
    path = f"state/opened.{shard_id}"
    content = bytearray(await storage.read_file(path) or b"")
    content[len(content) // 2] ^= 1
    await storage.replace(path, bytes(content))
    assert await read_opened_generation(storage) == NO_GENERATION


async def test_notes_when_exchanged_between_shards_then_nothing_is_known():
    storage = await noted(7, 5)
    await storage.replace("state/opened.0", await storage.read_file("state/opened.1") or b"")
    assert await read_opened_generation(storage) == NO_GENERATION


async def test_notes_when_of_another_number_of_shards_then_nothing_is_known():
    storage = await noted(7, 5)
    await write_opened_generation(storage, 0, shards_count=3, generation=9)
    assert await read_opened_generation(storage) == NO_GENERATION

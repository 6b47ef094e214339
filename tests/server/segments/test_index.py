"""The index of a segment: memory, file, and the border between them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_ref_server.segments.errors import IndexDamaged
from iggy_ref_server.segments.index import ENTRY, ENTRY_BYTES, IndexEntry, SegmentIndex
from iggy_ref_server.storage.interface import StorageError
from iggy_ref_server.storage.simulated.fault_plan import FaultPlan
from iggy_ref_server.storage.simulated.storage import SimulatedStorage


def entries(first: int, count: int) -> bytes:
    """Make entries of messages of 100 bytes."""
    return b"".join(
        ENTRY.pack(ordinal, (ordinal + 1) * 100, ordinal) for ordinal in range(first, first + count)
    )


def entry(ordinal: int) -> IndexEntry:
    """Say what an entry should be."""
    return IndexEntry(ordinal, (ordinal + 1) * 100, ordinal)


async def index_on(storage: SimulatedStorage, content: bytes = b"") -> SegmentIndex:
    """Open an index whose file holds something."""
    index = SegmentIndex(0, len(content) // ENTRY_BYTES)
    await storage.replace("index", content)
    index.file = await storage.open("index")
    return index


@pytest.mark.trio
async def test_entry_when_on_disk_and_cold_then_has_to_be_awaited():
    plan = FaultPlan()
    index = await index_on(SimulatedStorage(plan), entries(0, 600))
    plan.uncache()

    assert index.entry_nowait(300) is None
    assert await index.entry(300) == entry(300)
    assert index.entry_nowait(301) == entry(301), "the page around it is known now"
    assert index.entry_nowait(599) is None


@pytest.mark.trio
async def test_entry_when_file_is_not_open_then_only_memory_answers():
    index = SegmentIndex(0, 5)
    index.extend(entries(5, 1))

    assert index.entry_nowait(4) is None
    assert index.entry_nowait(5) == entry(5)


@pytest.mark.trio
async def test_save_when_lagging_then_file_holds_exactly_what_was_asked():
    storage = SimulatedStorage()
    index = await index_on(storage, entries(0, 3))
    index.extend(entries(3, 4))

    assert index.save_nowait(5)
    assert await storage.read_file("index") == entries(0, 5)
    await index.save(7)
    assert await storage.read_file("index") == entries(0, 7)
    assert (index.count, index.written_count) == (7, 7)


@pytest.mark.trio
async def test_save_when_refused_then_nothing_moves():
    plan = FaultPlan()
    storage = SimulatedStorage(plan)
    index = await index_on(storage)
    index.extend(entries(0, 2))
    plan.refuse(times=1)

    assert not index.save_nowait(2)
    assert (index.written_count, await storage.read_file("index")) == (0, b"")
    assert index.save_nowait(2)


@pytest.mark.trio
async def test_save_when_it_fails_then_window_can_still_grow():
    plan = FaultPlan()
    storage = SimulatedStorage(plan)
    index = await index_on(storage)
    index.extend(entries(0, 2))
    plan.fail("write", times=2)

    with pytest.raises(StorageError):
        index.save_nowait(2)
    with pytest.raises(StorageError):
        await index.save(2)
    index.extend(entries(2, 1))
    await index.save(3)

    assert await storage.read_file("index") == entries(0, 3)


@pytest.mark.trio
async def test_forget_when_not_all_is_written_then_keeps_the_rest():
    index = await index_on(SimulatedStorage())
    index.extend(entries(0, 10))
    await index.save(6)

    index.forget(keep=0)

    assert index.memory_bytes == 4 * ENTRY_BYTES
    assert [index.entry_nowait(ordinal) for ordinal in range(10)] == [entry(n) for n in range(10)]


@pytest.mark.trio
async def test_block_when_a_failed_write_left_bytes_then_they_are_not_believed():
    plan = FaultPlan()
    storage = SimulatedStorage(plan)
    index = await index_on(storage, entries(0, 2))
    index.extend(entries(2, 2))
    assert index.file is not None
    await index.file.write([entries(7, 2)], 2 * ENTRY_BYTES)

    assert index.entry_nowait(1) == entry(1)
    await index.save(4)
    index.forget(keep=0)

    assert index.entry_nowait(3) == entry(3)


@pytest.mark.trio
async def test_load_when_asked_then_all_is_in_memory():
    plan = FaultPlan()
    index = await index_on(SimulatedStorage(plan), entries(0, 300))
    index.extend(entries(300, 2))

    await index.load()
    plan.uncache()

    assert [index.entry_nowait(ordinal) for ordinal in range(302)] == [entry(n) for n in range(302)]


@pytest.mark.parametrize(
    "content",
    [
        bytes(3 * ENTRY_BYTES),
        entries(1, 3),
        entries(0, 1) + bytes(ENTRY_BYTES) + entries(2, 1),
        entries(0, 1),
    ],
    ids=["zeros", "shifted", "hole", "short"],
)
@pytest.mark.trio
async def test_entry_when_the_file_lies_then_damage_is_told(content):
    storage = SimulatedStorage()
    index = await index_on(storage, content)
    index.count = index.written_count = index._base = 3

    with pytest.raises(IndexDamaged) as caught:
        index.entry_nowait(1)
    with pytest.raises(IndexDamaged):
        await index.entry(1)
    assert caught.value.start_offset == 0


@given(st.lists(st.tuples(st.sampled_from(["extend", "save", "forget"]), st.integers(0, 40))))
@pytest.mark.trio
async def test_index_when_used_in_any_order_then_every_entry_is_found(steps):
    storage = SimulatedStorage()
    index = await index_on(storage)
    for step, amount in steps:
        if step == "extend":
            index.extend(entries(index.count, amount))
        elif step == "save":
            await index.save(min(index.written_count + amount, index.count))
        else:
            index.forget(keep=amount)
            unwritten = index.count - index.written_count
            assert index.memory_bytes <= max(amount, unwritten) * ENTRY_BYTES
        found = [index.entry_nowait(ordinal) for ordinal in range(index.count)]
        assert found == [entry(ordinal) for ordinal in range(index.count)]
    assert await storage.read_file("index") == entries(0, index.written_count)

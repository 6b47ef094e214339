"""What a killed process leaves, and what a power loss leaves."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from iggy_ref_server.storage.interface import StorageError
from iggy_ref_server.storage.simulated.disk import Survival
from iggy_ref_server.storage.simulated.fault_plan import FaultPlan
from iggy_ref_server.storage.simulated.storage import SimulatedStorage

pytestmark = pytest.mark.trio


@pytest.fixture
def storage():
    return SimulatedStorage(FaultPlan(seed=1))


async def write_durable(storage, path, content):
    """Make a file that survives everything."""
    file = await storage.open(path, create=True)
    await file.write([content], 0, sync=True)
    await storage.sync_directory(path.rpartition("/")[0])
    return file


async def names(storage, path=""):
    """List the names in a directory."""
    return [entry.name for entry in await storage.entries(path)]


async def test_kill_when_nothing_was_synced_then_all_that_was_written_is_there(storage):
    await storage.make_directories("folder")
    file = await storage.open("folder/file", create=True)
    await file.write([b"abc"], 0)
    assert file.write_nowait([b"def"], 3)

    storage = storage.kill()

    assert await storage.read_file("folder/file") == b"abcdef"


async def test_kill_when_power_fails_later_then_unsynced_bytes_can_still_be_lost(storage):
    file = await write_durable(storage, "file", b"synced")
    await file.write([b" and not"], 6)

    storage = storage.kill()
    storage = storage.crash(Survival.NOTHING)

    assert await storage.read_file("file") == b"synced"


@pytest.mark.parametrize("end", [SimulatedStorage.kill, SimulatedStorage.crash])
async def test_end_when_the_old_storage_is_used_again_then_is_refused(storage, end):
    file = await write_durable(storage, "file", b"old")

    after = end(storage)

    with pytest.raises(StorageError):
        file.write_nowait([b"new"], 0)
    with pytest.raises(StorageError):
        await file.write([b"new"], 0)
    with pytest.raises(StorageError):
        await storage.replace("file", b"new")
    assert await after.read_file("file") == b"old"


async def test_kill_when_a_write_is_under_way_then_any_part_of_it_is_there(autojump_clock):
    found = set()
    for seed in range(40):
        storage = SimulatedStorage(FaultPlan(seed))
        file = await write_durable(storage, "file", b"....")
        storage.plan.delay("write", seconds=1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(expect_refusal, file.write, [b"ABCD"], 0)
            nursery.start_soon(expect_refusal, file.write, [b"later"], 4)
            await trio.testing.wait_all_tasks_blocked()
            found.add(await storage.kill().read_file("file"))

    assert (
        {b"....", b"ABCD"}
        < found
        <= {b"....", b"A...", b"AB..", b"ABC.", b"ABCD"}
        | {b"....later"[: 4 + size] for size in range(6)}
    )


async def expect_refusal(verb, *arguments):
    """Call somebody who is dead before the answer comes."""
    with pytest.raises(StorageError, match="closed"):
        await verb(*arguments)


async def test_crash_when_bytes_and_names_were_synced_then_they_are_there(storage):
    await storage.make_directories("a/b")
    await write_durable(storage, "a/b/file", b"content")
    await storage.replace("a/small", b"value")

    storage = storage.crash(Survival.NOTHING)

    assert await storage.read_file("a/b/file") == b"content"
    assert await storage.read_file("a/small") == b"value"


async def test_crash_when_bytes_were_not_synced_then_they_may_be_gone(storage):
    file = await write_durable(storage, "file", b"synced")
    await file.write([b"lost"], 6)
    await file.sync()
    await file.write([b"lost"], 10)
    await file.truncate(3)

    storage = storage.crash(Survival.NOTHING)

    assert await storage.read_file("file") == b"syncedlost"


async def test_crash_when_the_directory_was_not_synced_then_a_new_name_may_be_gone(storage):
    await storage.make_directories("folder")
    file = await storage.open("folder/file", create=True)
    await file.write([b"synced"], 0, sync=True)
    await storage.sync_directory("")

    assert await names(storage.crash(Survival.NOTHING), "folder") == []


async def test_crash_when_the_directory_was_not_synced_then_a_removed_name_may_return(storage):
    await write_durable(storage, "file", b"content")
    await storage.remove("file")

    storage = storage.crash(Survival.NOTHING)

    assert await storage.read_file("file") == b"content"


async def test_crash_when_a_removal_was_synced_then_it_holds(storage):
    await write_durable(storage, "file", b"content")
    await storage.make_directories("folder/below")
    await write_durable(storage, "folder/below/file", b"content")
    await storage.remove("file")
    await storage.remove_tree("folder")
    await storage.sync_directory("")

    assert await names(storage.crash(Survival.NOTHING)) == []


async def test_crash_when_names_survive_by_chance_then_their_order_is_kept(storage):
    for number in range(5):
        await storage.open(f"{number}", create=True)

    found = {tuple(await names(storage.crash())) for _ in range(100)}

    assert found == {tuple(map(str, range(count))) for count in range(6)}


async def test_crash_when_a_tree_was_being_removed_then_a_part_of_it_may_be_left():
    found = set()
    for seed in range(60):
        storage = SimulatedStorage(FaultPlan(seed))
        await storage.make_directories("folder")
        await write_durable(storage, "folder/a", b"")
        await write_durable(storage, "folder/b", b"")
        await storage.remove_tree("folder")
        storage = storage.crash()
        found.add((*await names(storage), *await names(storage, "folder")))

    assert found == {("folder", "a", "b"), ("folder", "b"), ("folder",), ()}


async def test_crash_when_a_file_moved_between_directories_then_it_is_in_exactly_one(storage):
    await storage.make_directories("one")
    await storage.make_directories("two")
    file = await storage.open("one/file", create=True)
    await file.write([b"content"], 0, sync=True)
    await storage.rename("one/file", "two/file")

    storage = storage.crash(Survival.NOTHING)

    assert (await names(storage, "one"), await names(storage, "two")) == ([], ["file"])
    assert await storage.read_file("two/file") == b"content"


async def test_crash_when_only_the_target_directory_was_synced_then_no_file_is_doubled(storage):
    await storage.make_directories("one")
    await storage.make_directories("two")
    await write_durable(storage, "one/other", b"")
    await storage.open("one/file", create=True)
    storage.plan.fail("sync_directory", times=1)
    with pytest.raises(StorageError):
        await storage.rename("one/file", "two/file")
    await storage.sync_directory("two")

    storage = storage.crash(Survival.EVERYTHING)

    assert (await names(storage, "one"), await names(storage, "two")) == (["other"], ["file"])


@pytest.mark.parametrize("seed", range(8))
async def test_crash_when_it_hits_a_replace_then_the_old_or_the_new_is_there(autojump_clock, seed):
    storage = SimulatedStorage(FaultPlan(seed))
    await storage.replace("file", b"old content")
    storage.plan.delay("*", seconds=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(expect_refusal, storage.replace, "file", b"new")
        await trio.sleep(0.5 + seed % 2)
        after = storage.crash()
        after.plan.heal()

        assert await after.read_file("file") in (b"old content", b"new")
        assert await names(after) == ["file"]


async def test_crash_when_a_sync_is_under_way_then_it_promises_nothing(storage, autojump_clock):
    file = await write_durable(storage, "file", b"old")
    await file.write([b"new"], 0)
    storage.plan.delay("sync", seconds=1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(expect_refusal, file.sync)
        await trio.sleep(0.5)
        after = storage.crash(Survival.NOTHING)

    assert await after.read_file("file") == b"old"


async def test_crash_when_the_seed_is_the_same_then_the_outcome_is_the_same():
    async def outcome(seed):
        storage = SimulatedStorage(FaultPlan(seed))
        for number in range(3):
            file = await write_durable(storage, f"{number}", b"." * 50)
            await file.write([b"x" * 20], 10)
            await file.write([b"y" * 20], 30)
        storage = storage.crash()
        return [await storage.read_file(f"{number}") for number in range(3)]

    outcomes = [[await outcome(seed), await outcome(seed)] for seed in range(10)]

    assert all(first == second for first, second in outcomes)
    assert any(outcomes[0] != other for other in outcomes)

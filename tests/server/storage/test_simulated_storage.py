"""Files in memory, and what the fault plan does to them."""

from __future__ import annotations

import errno

import pytest
import trio
import trio.testing

from iggy_ref_server.storage.interface import DiskFull, Storage, StorageError
from iggy_ref_server.storage.simulated.disk import Survival
from iggy_ref_server.storage.simulated.fault_plan import FaultPlan
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.storage.conformance import StorageConformance


class TestMemory(StorageConformance):
    """The conformance of the engine."""

    @pytest.fixture
    async def storage(self):
        """Open an empty storage without faults."""
        storage: Storage = SimulatedStorage()
        yield storage
        await storage.aclose()


class TestSlowMemory(StorageConformance):
    """The same when everything takes its time and every write happens in parts."""

    @pytest.fixture
    async def storage(self):
        """Open an empty storage on a disk slow enough that others run meanwhile."""
        plan = FaultPlan(seed=5)
        plan.delay("*", seconds=(1e-9, 1e-5), probability=0.5)
        plan.shorten(probability=0.5)
        storage = SimulatedStorage(plan)
        yield storage
        await storage.aclose()


@pytest.fixture
def storage():
    return SimulatedStorage(FaultPlan(seed=1))


@pytest.mark.trio
async def test_file_when_in_memory_then_has_no_descriptor(storage):
    assert (await storage.open("file", create=True)).descriptor is None


@pytest.mark.trio
@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS])
async def test_write_when_it_fails_then_the_error_says_so(storage, number):
    file = await storage.open("a.log", create=True)
    storage.plan.fail("write", path="*.log", errno=number)

    with pytest.raises(StorageError) as now:
        file.write_nowait([b"abc"], 0)
    with pytest.raises(StorageError) as later:
        await file.write([b"abc"], 0)

    for caught in (now, later):
        assert type(caught.value) is StorageError
        assert (caught.value.action, caught.value.path) == ("write", "a.log")
        assert caught.value.errno == number


@pytest.mark.trio
async def test_write_when_it_fails_then_any_part_of_it_is_there(storage):
    storage.plan.fail("write")
    found = set()
    for number in range(150):
        file = await storage.open(f"{number}", create=True)
        with pytest.raises(StorageError):
            file.write_nowait([b"ABCDEFGH", b"I"], 0)
        found.add(file.read_nowait(10, 0))

    assert found == {b"ABCDEFGHI"[:size] for size in range(10)}


@pytest.mark.trio
async def test_sync_when_the_third_fails_then_the_others_do_not(storage):
    file = await storage.open("0.log", create=True)
    rule = storage.plan.fail("sync", path="*.log", at=3)

    await file.sync()
    await file.write([b"abc"], 0, sync=True)
    with pytest.raises(StorageError) as caught:
        await file.write([b"abc"], 3, sync=True)
    await file.sync()

    assert (caught.value.action, caught.value.errno) == ("sync", errno.EIO)
    assert rule.applied_count == 1
    assert file.read_nowait(10, 0) == b"abcabc"


@pytest.mark.trio
async def test_sync_when_it_failed_then_a_later_success_promises_nothing(storage):
    file = await storage.open("file", create=True)
    await storage.sync_directory("")
    storage.plan.fail("sync", at=1)
    await file.write([b"abc"], 0)
    with pytest.raises(StorageError):
        await file.sync()

    await file.sync()

    assert await storage.crash(Survival.NOTHING).read_file("file") == b""


@pytest.mark.trio
async def test_write_when_the_disk_is_full_then_what_fits_is_there(storage):
    await storage.replace("other", bytes(90))
    file = await storage.open("file", create=True)
    storage.plan.capacity_bytes = 100

    assert file.write_nowait([b"12345678"], 0)
    with pytest.raises(DiskFull) as caught:
        await file.write([b"abcd"], 8)

    assert (caught.value.action, caught.value.errno) == ("write", errno.ENOSPC)
    assert file.read_nowait(20, 0) == b"12345678ab"
    assert await storage.free_bytes() == (0, 100)


@pytest.mark.trio
async def test_write_when_the_disk_is_full_then_old_bytes_can_be_replaced(storage):
    file = await storage.open("file", create=True)
    storage.plan.capacity_bytes = 8
    await file.write([b"12345678"], 0)

    assert file.write_nowait([b"ABC"], 5)
    await file.write([], 8)

    assert file.read_nowait(20, 0) == b"12345ABC"


@pytest.mark.trio
async def test_disk_when_it_was_full_then_removing_makes_room(storage):
    await storage.replace("large", bytes(100))
    await storage.replace("small", b"old")
    storage.plan.capacity_bytes = 100

    with pytest.raises(DiskFull):
        await storage.replace("small", b"new content")
    assert await storage.read_file("small") == b"old"
    await storage.remove("large")
    await storage.replace("small", b"new content")

    assert await storage.read_file("small") == b"new content"


@pytest.mark.trio
async def test_write_now_when_refused_then_writes_nothing(storage):
    file = await storage.open("file", create=True)
    storage.plan.refuse(at=[1, 2])

    answers = [file.write_nowait([b"abc"], 0) for _ in range(3)]

    assert answers == [False, False, True]
    assert file.read_nowait(10, 0) == b"abc"


@pytest.mark.trio
async def test_read_now_when_the_bytes_are_cold_then_only_a_waiting_read_has_them(storage):
    file = await storage.open("file", create=True)
    await file.write([b"abc"], 0)
    storage.plan.uncache(path="file")

    assert file.read_nowait(3, 0) is None
    assert not file.is_cached(3, 0)
    assert await file.read(3, 0) == b"abc"


@pytest.mark.trio
async def test_read_when_it_fails_then_the_error_says_so(storage):
    file = await storage.open("file", create=True)
    storage.plan.fail("read", times=1)

    with pytest.raises(StorageError) as caught:
        await file.read(3, 0)

    assert caught.value.action == "read"
    assert await file.read(3, 0) == b""


@pytest.mark.trio
async def test_delay_when_on_the_virtual_clock_then_takes_that_long(storage, autojump_clock):
    file = await storage.open("file", create=True)
    storage.plan.delay("sync", seconds=3)
    began_s = trio.current_time()

    await file.write([b"abc"], 0, sync=True)
    await file.sync()

    assert trio.current_time() - began_s == pytest.approx(6)


@pytest.mark.trio
async def test_delay_when_cancelled_meanwhile_then_the_write_is_finished(storage, autojump_clock):
    file = await storage.open("file", create=True)
    storage.plan.delay("write", seconds=3)

    with trio.move_on_after(1):
        await file.write([b"abc"], 0)

    assert trio.current_time() >= 3
    assert file.read_nowait(10, 0) == b"abc"


@pytest.mark.trio
async def test_write_now_when_a_slow_write_is_under_way_then_does_not_overtake(
    storage, autojump_clock
):
    file = await storage.open("file", create=True)
    storage.plan.delay("write", seconds=3)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(file.write, [b"early"], 0)
        await trio.testing.wait_all_tasks_blocked()

        assert file.write_nowait([b"late"], 0) is False
        await file.write([b"late"], 0)

    assert file.read_nowait(10, 0) == b"latey"


@pytest.mark.trio
async def test_write_now_when_only_a_sync_is_under_way_then_writes(storage, autojump_clock):
    file = await storage.open("file", create=True)
    storage.plan.delay("sync", seconds=3)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(file.sync)
        await trio.testing.wait_all_tasks_blocked()

        assert file.write_nowait([b"now"], 0) is True


@pytest.mark.trio
async def test_shorten_when_a_write_is_cut_then_others_may_see_the_part(storage, autojump_clock):
    file = await storage.open("file", create=True)
    storage.plan.shorten(times=1)
    storage.plan.delay("write", seconds=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(file.write, [b"0123456789"], 0)
        await trio.sleep(1.5)
        part = file.read_nowait(10, 0)

    assert b"" < part < b"0123456789"
    assert file.read_nowait(10, 0) == b"0123456789"


@pytest.mark.trio
@pytest.mark.parametrize(
    ("verb", "call"),
    [
        ("open", lambda storage: storage.open("file")),
        ("read_file", lambda storage: storage.read_file("file")),
        ("replace", lambda storage: storage.replace("file", b"new")),
        ("rename", lambda storage: storage.rename("file", "other")),
        ("remove", lambda storage: storage.remove("file")),
        ("remove_tree", lambda storage: storage.remove_tree("folder")),
        ("make_directories", lambda storage: storage.make_directories("new/folder")),
        ("entries", lambda storage: storage.entries("folder")),
        ("sync_directory", lambda storage: storage.sync_directory("folder")),
        ("free_bytes", lambda storage: storage.free_bytes()),
    ],
)
async def test_storage_verb_when_it_fails_then_says_so_and_changes_nothing(storage, verb, call):
    await storage.make_directories("folder")
    await storage.replace("file", b"old")
    storage.plan.fail(verb, times=1)

    with pytest.raises(StorageError) as caught:
        await call(storage)

    assert (caught.value.action, caught.value.errno) == (verb, errno.EIO)
    assert [entry.name for entry in await storage.entries("")] == ["file", "folder"]
    assert await storage.read_file("file") == b"old"
    await call(storage)


@pytest.mark.trio
async def test_replace_when_the_directory_cannot_be_synced_then_is_not_durable(storage):
    await storage.replace("file", b"old")
    storage.plan.fail("sync_directory", times=1)

    with pytest.raises(StorageError) as caught:
        await storage.replace("file", b"new")

    assert caught.value.action == "replace"
    assert await storage.crash(Survival.NOTHING).read_file("file") == b"old"

"""io_uring on real files: the conformance of the engine, and what its own mechanism must bear."""

from __future__ import annotations

import errno
import os
import resource
from functools import partial

import pytest
import trio
import trio.testing

from iggy_ref_server.storage.interface import DiskFull, StorageError
from tests.server.storage.conformance import StorageConformance
from tests.server.storage.conformance_files import FileConformance
from tests.server.storage.conformance_lifetime import LifetimeConformance
from tests.server.storage.ring_support import (
    NEEDS_RING,
    is_resizable,
    make_storage,
)

pytestmark = [*NEEDS_RING, pytest.mark.trio]


@pytest.fixture
async def storage(tmp_path):
    """Open an empty data directory."""
    storage = make_storage(tmp_path)
    yield storage
    await storage.aclose()


@pytest.fixture
def ring(storage):
    """Show the ring, to plant faults."""
    return storage.driver.ring


@pytest.fixture
async def file(storage):
    """Open an empty file."""
    return await storage.open("file", create=True)


class TestUring(StorageConformance):
    """The conformance of the engine."""

    @pytest.fixture
    async def storage(self, tmp_path):
        """Open an empty data directory."""
        storage = make_storage(tmp_path)
        yield storage
        await storage.aclose()


class TestUringWithTheSmallestRing(FileConformance, LifetimeConformance):
    """The same where hardly anything finds room at once, and the kernel does things by halves."""

    @pytest.fixture
    async def storage(self, tmp_path):
        """Open an empty data directory."""
        storage = make_storage(tmp_path, entries=2)
        storage.driver.ring.inject("write", 0, 30_000)
        storage.driver.ring.inject("read", 0, 50_000)
        yield storage
        await storage.aclose()


async def test_ring_when_smaller_than_a_write_with_its_sync_then_is_refused(tmp_path):
    with pytest.raises(ValueError, match="two entries"):
        make_storage(tmp_path, entries=1)


async def test_engine_when_asked_then_says_io_uring(storage):
    assert storage.engine == "io_uring"


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.EIO, StorageError), (errno.ENOSPC, DiskFull), (errno.EDQUOT, DiskFull)],
)
@pytest.mark.parametrize("sync", [False, True])
async def test_write_when_the_disk_fails_then_says_so_and_goes_on(ring, file, number, kind, sync):
    ring.inject("write", 1, -number)
    buffer = bytearray(b"abc")

    with pytest.raises(StorageError) as caught:
        await file.write([buffer], 0, sync=sync)

    assert type(caught.value) is kind
    assert (caught.value.action, caught.value.path, caught.value.errno) == ("write", "file", number)
    assert is_resizable(buffer)
    await file.write([b"later"], 0, sync=sync)
    assert await file.read(9, 0) == b"later"


async def test_write_when_nothing_is_written_then_fails_instead_of_trying_for_ever(ring, file):
    ring.inject("write", 0, 0)

    with pytest.raises(StorageError) as caught:
        await file.write([b"abc"], 0)

    assert caught.value.errno == errno.EIO


@pytest.mark.parametrize("verb", ["sync", "write and sync"])
async def test_sync_when_the_disk_fails_then_says_that_it_was_the_sync(ring, file, verb):
    ring.inject("fsync", 1, -errno.EIO)

    with pytest.raises(StorageError) as caught:
        await (file.sync() if verb == "sync" else file.write([b"abc"], 0, sync=True))

    assert (caught.value.action, caught.value.errno) == ("sync", errno.EIO)
    await file.write([b"abc"], 0, sync=True)
    await file.sync()


async def test_sync_when_it_fails_after_a_short_write_then_the_failure_is_not_lost(ring, file):
    ring.inject("write", 1, 2)
    ring.inject("fsync", 1, -errno.EIO)

    with pytest.raises(StorageError) as caught:
        await file.write([b"abc"], 0, sync=True)

    assert caught.value.action == "sync"


async def test_read_when_the_disk_fails_then_says_so(ring, file):
    await file.write([b"abc"], 0)
    ring.inject("read", 1, -errno.EIO)

    with pytest.raises(StorageError) as caught:
        await file.read(3, 0)

    assert (caught.value.action, caught.value.errno) == ("read", errno.EIO)
    assert await file.read(3, 0) == b"abc"


@pytest.mark.parametrize("sync", [False, True])
async def test_write_when_the_kernel_does_it_by_pieces_then_goes_on_inside_buffers(
    storage, ring, file, sync
):
    ring.inject("write", 0, 7)
    buffers = [bytearray(b"0123456789"), b"", memoryview(bytes(range(16))).cast("I"), b"end"]

    await file.write(buffers, 3, sync=sync)

    expected = bytes(3) + b"0123456789" + bytes(range(16)) + b"end"
    assert os.pread(file.descriptor, 99, 0) == expected
    assert is_resizable(buffers[0])
    assert storage.driver.statistics().operations_count == (10 if sync else 5)


async def test_write_when_cut_short_by_a_limit_then_fails_and_leaves_the_buffers_free(file):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    buffer = bytearray(b"0123456789")
    resource.setrlimit(resource.RLIMIT_FSIZE, (6, hard))
    try:
        with pytest.raises(StorageError) as caught:
            await file.write([buffer], 0, sync=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert (caught.value.action, caught.value.errno) == ("write", errno.EFBIG)
    assert is_resizable(buffer)


async def test_write_when_its_sync_was_left_out_then_syncs_afterwards(storage, ring, file):
    ring.inject("submit", 1, 1)  # the kernel stops between the write and its sync
    ring.inject("fsync", 2, -errno.EIO)

    with pytest.raises(StorageError) as caught:
        await file.write([b"abc"], 0, sync=True)

    assert caught.value.action == "sync"
    assert storage.driver.statistics().operations_count == 3


async def test_read_when_the_kernel_does_it_by_pieces_then_goes_on(ring, file):
    content = bytes(range(256))
    await file.write([content], 0)
    ring.inject("read", 0, 100)

    assert await file.read(1000, 0) == content
    assert await file.read(150, 20) == content[20:170]


async def test_read_when_the_file_is_cut_meanwhile_then_gives_what_was_there(ring, file):
    await file.write([b"0123456789"], 0)
    ring.inject("read", 1, 4)
    ring.inject("read", 2, 0)

    assert await file.read(10, 0) == b"0123"


async def test_operations_when_asked_for_in_one_round_then_are_submitted_together(storage):
    files = [await storage.open(f"file {number}", create=True) for number in range(20)]
    before = storage.driver.statistics()

    async with trio.open_nursery() as nursery:
        for file in files:
            nursery.start_soon(partial(file.write, [b"abc"], 0, sync=True))

    after = storage.driver.statistics()
    assert after.operations_count - before.operations_count == 40
    assert after.submissions_count - before.submissions_count == 1
    assert (after.in_flight_count, after.waiting_count) == (0, 0)


async def test_operations_when_more_than_the_ring_holds_then_wait_in_line(tmp_path):
    storage = make_storage(tmp_path, entries=2)  # which makes 8 operations under way at most
    ring = storage.driver.ring
    files = [await storage.open(f"file {number}", create=True) for number in range(15)]
    ring.hold("write", 0)

    async with trio.open_nursery() as nursery:
        for number, file in enumerate(files):
            nursery.start_soon(partial(file.write, [b"%d" % number], 0, sync=number % 2 == 0))
        await trio.testing.wait_all_tasks_blocked()
        crowded = storage.driver.statistics()
        ring.heal()

    assert crowded.waiting_count > 0
    assert storage.driver.statistics()[2:] == (0, 0)
    for number, file in enumerate(files):
        assert os.pread(file.descriptor, 9, 0) == b"%d" % number
    await storage.aclose()


async def test_operations_when_in_line_then_small_ones_do_not_overtake(tmp_path):
    storage = make_storage(tmp_path, entries=2)
    large, small = [await storage.open(name, create=True) for name in ("large", "small")]
    await large.write([b"abc"], 0)
    storage.driver.ring.hold("read", 0)

    async with trio.open_nursery() as nursery:
        for _ in range(7):  # of the 8 that there is room for
            nursery.start_soon(large.read, 3, 0)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(partial(large.write, [b"large"], 0, sync=True))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(small.write, [b"small"], 0)
        await trio.testing.wait_all_tasks_blocked()
        waiting_count = storage.driver.statistics().waiting_count
        storage.driver.ring.heal()

    assert waiting_count == 2
    assert (large.size(), small.size()) == (5, 5)
    await storage.aclose()


async def test_operation_when_it_cannot_be_prepared_then_its_task_learns_why(tmp_path):
    storage = make_storage(tmp_path, entries=2)
    first, second = [await storage.open(name, create=True) for name in ("first", "second")]
    storage.driver.ring.hold("write", 0)
    errors = []

    async def write_nonsense(file):
        with pytest.raises(BufferError) as caught:
            await file.write([memoryview(b"abcdef")[::2]], 0)
        errors.append(caught.value)

    async with trio.open_nursery() as nursery:
        for number in range(8):
            file = await storage.open(f"file {number}", create=True)
            nursery.start_soon(file.write, [b"abc"], 0)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(write_nonsense, first)
        await trio.testing.wait_all_tasks_blocked()
        assert not errors
        storage.driver.ring.heal()
    await write_nonsense(second)

    assert len(errors) == 2
    await storage.aclose()


async def test_submission_when_the_kernel_is_busy_then_is_tried_again(ring, file):
    ring.inject("submit", 1, -errno.EAGAIN)
    ring.inject("submit", 2, -errno.EBUSY)

    await file.write([b"abc"], 0, sync=True)

    assert await file.read(9, 0) == b"abc"


async def test_submission_when_the_kernel_refuses_then_the_operation_fails(ring, file):
    ring.inject("submit", 1, -errno.EFAULT)

    with pytest.raises(StorageError) as caught:
        await file.write([b"abc"], 0, sync=True)

    assert (caught.value.action, caught.value.errno) == ("sync", errno.EFAULT)
    await file.write([b"abc"], 0, sync=True)


async def test_sync_when_many_ask_while_one_runs_then_one_more_serves_them_all(storage, ring, file):
    ring.hold("fsync", 1)
    before = storage.driver.statistics().operations_count

    async with trio.open_nursery() as nursery:
        nursery.start_soon(file.sync)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(5):
            nursery.start_soon(file.sync)
        await trio.testing.wait_all_tasks_blocked()
        ring.release()

    assert storage.driver.statistics().operations_count - before == 2


async def test_sync_when_shared_and_failed_then_all_who_waited_learn_it(ring, file):
    ring.hold("fsync", 1)
    ring.inject("fsync", 2, -errno.EIO)
    numbers = []

    async def sync():
        with pytest.raises(StorageError) as caught:
            await file.sync()
        numbers.append(caught.value.errno)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(file.sync)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(5):
            nursery.start_soon(sync)
        await trio.testing.wait_all_tasks_blocked()
        ring.release()

    assert numbers == [errno.EIO] * 5
    await file.sync()


async def test_sync_when_a_write_with_sync_fails_then_does_not_share_its_failure(ring, file):
    ring.hold("fsync", 1)
    ring.inject("write", 1, -errno.EIO)

    async def write():
        with pytest.raises(StorageError):
            await file.write([b"abc"], 0, sync=True)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(file.sync)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(write)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(file.sync)
        await trio.testing.wait_all_tasks_blocked()
        ring.release()


async def test_write_when_a_sync_runs_then_need_not_wait_for_it(ring, file):
    ring.hold("fsync", 1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(file.sync)
        await trio.testing.wait_all_tasks_blocked()
        was_written = file.write_nowait([b"abc"], 0)
        await file.write([b"def"], 3)
        ring.release()

    assert was_written
    assert await file.read(9, 0) == b"abcdef"


async def test_write_when_cancelled_in_the_kernel_then_is_finished_and_its_buffer_free(ring, file):
    ring.hold("write", 1)
    buffer = bytearray(b"abc")
    finished = []

    async def write():
        await file.write([buffer], 0)
        finished.append(True)
        await trio.lowlevel.checkpoint()
        finished.append(False)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await trio.testing.wait_all_tasks_blocked()
        was_held = not is_resizable(buffer)
        ring.release()

    assert was_held
    assert finished == [True]
    assert is_resizable(buffer)
    assert await file.read(9, 0) == b"abc"


async def test_read_when_cancelled_in_the_kernel_then_is_given_up(storage):
    reading, writing = os.pipe()
    target, returned = bytearray(8), []

    async def read():
        returned.append(await storage.driver.read(reading, target, 0, 0))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        assert not is_resizable(target)
        nursery.cancel_scope.cancel()

    assert returned == []
    assert is_resizable(target)
    os.close(reading)
    os.close(writing)


async def test_read_when_cancelled_in_line_then_is_taken_out(tmp_path):
    storage = make_storage(tmp_path, entries=2)
    file = await storage.open("file", create=True)
    await file.write([b"abc"], 0)
    storage.driver.ring.hold("read", 0)

    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(file.read, 3, 0)
        await trio.testing.wait_all_tasks_blocked()
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as hopeless:
                hopeless.start_soon(file.read, 3, 0)
                await trio.testing.wait_all_tasks_blocked()
                waiting_count = storage.driver.statistics().waiting_count
                scope.cancel()
        assert scope.cancelled_caught
        assert (waiting_count, storage.driver.statistics().waiting_count) == (1, 0)
        storage.driver.ring.heal()
    await storage.aclose()


async def test_write_soon_when_the_sync_fails_then_done_is_told_and_later_ones_work(ring, file):
    tell, outcomes = trio.open_memory_channel[StorageError | None](1)
    ring.inject("fsync", 1, -errno.EIO)

    assert file.begin_write([b"abc"], 0, tell.send_nowait)
    failed = await outcomes.receive()
    assert file.begin_write([b"def"], 0, tell.send_nowait)
    later = await outcomes.receive()

    assert failed is not None
    assert (failed.action, failed.path, failed.errno) == ("sync", "file", errno.EIO)
    assert later is None


async def test_write_soon_when_the_write_fails_then_raises_and_others_can_sync(file, tmp_path):
    outcomes: list[StorageError | None] = []
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, limits[1]))
    try:
        with pytest.raises(StorageError) as caught:
            file.begin_write([b"too long"], 0, outcomes.append)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert (caught.value.action, caught.value.errno) == ("write", errno.EFBIG)
    await file.sync()
    assert outcomes == []


async def test_write_soon_when_a_sync_runs_or_the_ring_is_full_then_does_nothing(tmp_path):
    storage = make_storage(tmp_path, entries=2)
    file = await storage.open("file", create=True)
    other = await storage.open("other", create=True)
    outcomes: list[StorageError | None] = []
    storage.driver.ring.hold("fsync", 0)

    assert file.begin_write([b"abc"], 0, outcomes.append)
    assert not file.begin_write([b"xyz"], 0, outcomes.append), "one sync of a file at a time"
    others_count = 0
    while other.begin_write([b"o"], 0, outcomes.append):
        others_count += 1
        other = await storage.open(f"other-{others_count}", create=True)

    assert other.size() == 0
    assert storage.driver.statistics().in_flight_count == 1 + others_count
    storage.driver.ring.heal()
    await storage.aclose()
    assert outcomes == [None] * (1 + others_count), "closing waits for them"


async def test_sync_when_a_write_was_begun_before_then_waits_for_a_sync_of_its_own(ring, file):
    order = []
    ring.hold("fsync", 1)
    assert file.begin_write([b"abc"], 0, lambda error: order.append("begun"))

    async def sync():
        await file.sync()
        order.append("asked for")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sync)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert order == []
        ring.release()

    assert order == ["begun", "asked for"]

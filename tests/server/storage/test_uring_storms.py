"""Storms over io_uring: cancellations, faults, closing under load; nothing may leak or be torn."""

from __future__ import annotations

import errno
import gc
import random
import weakref

import pytest
import trio
import trio.testing

from iggy_ref_server.storage.interface import StorageError
from tests.server.storage.ring_support import (
    NEEDS_RING,
    is_resizable,
    make_storage,
    open_files_count,
    reference_counts,
    ring_descriptors,
)

pytestmark = NEEDS_RING

REGION = 3000
WRITERS = 8
ROUNDS = 12


class Writer:
    """Owns a region of a file, and knows what must be in it."""

    def __init__(self, number, file, source):
        self.file = file
        self.position = number * REGION
        self.source = source
        self.promised = bytes(REGION)
        self.buffers = []
        self.scope = trio.CancelScope()

    async def run(self):
        """Write and read, each time in a scope that the storm may cancel."""
        for _ in range(ROUNDS):
            self.scope = trio.CancelScope()
            with self.scope:
                await self.source.choice([self.write, self.read, self.file.sync])()

    async def write(self):
        """Write all of the region; a write that was cancelled has written nothing."""
        buffer = bytearray(self.source.randbytes(REGION))
        self.buffers.append(buffer)
        cut = self.source.randrange(REGION)
        with memoryview(buffer) as view, view[:cut] as head, view[cut:] as tail:
            await self.file.write([head, tail], self.position, sync=self.source.random() < 0.3)
        self.promised = bytes(buffer)

    async def read(self):
        """Read all of the region."""
        assert await self.file.read(REGION, self.position) == self.promised


async def storm(writers, source):
    """Cancel whatever is under way, again and again."""
    while True:
        for _ in range(source.randrange(4)):
            await trio.lowlevel.checkpoint()
        source.choice(writers).scope.cancel()


@pytest.mark.trio
@pytest.mark.parametrize("seed", range(12))
async def test_files_when_calls_are_cancelled_at_random_then_hold_what_was_promised(tmp_path, seed):
    source = random.Random(seed)
    storage = make_storage(tmp_path, entries=source.choice([2, 4, 256]))
    ring = storage.driver.ring
    ring.inject("write", 0, source.choice([700, 1 << 20]))
    ring.inject("read", 0, source.choice([900, 1 << 20]))
    files = [await storage.open(name, create=True) for name in ("one", "two")]
    for file in files:
        await file.truncate(WRITERS * REGION)
    writers = [Writer(n, files[n % 2], random.Random(source.random())) for n in range(WRITERS)]

    async with trio.open_nursery() as nursery:
        nursery.start_soon(storm, writers, source)
        async with trio.open_nursery() as working:
            for writer in writers:
                working.start_soon(writer.run)
        nursery.cancel_scope.cancel()

    assert storage.driver.statistics()[2:] == (0, 0)
    assert all(is_resizable(buffer) for writer in writers for buffer in writer.buffers)
    for writer in writers:
        await writer.read()
    await storage.aclose()


@pytest.mark.trio
@pytest.mark.parametrize("seed", range(3))
async def test_buffers_when_operations_fail_at_random_then_no_reference_is_left(tmp_path, seed):
    source = random.Random(seed)
    storage = make_storage(tmp_path, entries=4)
    file = await storage.open("file", create=True)
    buffers = [bytearray(500) for _ in range(24)]
    counts = reference_counts(buffers)
    for _ in range(6):
        number = source.choice([errno.EIO, errno.ENOSPC])
        storage.driver.ring.inject("write", source.randrange(1, 12), -number)
        storage.driver.ring.inject("fsync", source.randrange(1, 10), -number)
    failures = []

    async def write(buffer):
        try:
            await file.write([buffer], 0, sync=source.random() < 0.5)
        except StorageError as error:
            failures.append(error)

    async with trio.open_nursery() as nursery:
        for buffer in buffers:
            nursery.start_soon(write, buffer)
    del buffer

    assert failures
    assert all(is_resizable(buffer) for buffer in buffers)
    failures.clear()
    gc.collect()
    assert reference_counts(buffers) == counts
    await storage.aclose()


@pytest.mark.trio
async def test_storage_when_opened_and_closed_then_leaves_no_descriptor_behind(tmp_path):
    await use_and_close(tmp_path)  # the first use starts threads and loads modules
    count = open_files_count()

    for _ in range(5):
        await use_and_close(tmp_path)

    assert open_files_count() == count


async def use_and_close(root):
    """Open a storage, use all of it, and close it."""
    storage = make_storage(root)
    for number in range(5):
        file = await storage.open(f"file {number}", create=True)
        await file.write([b"abc"], 0, sync=True)
        assert await file.read(3, 0) == b"abc"
    await storage.aclose()


@pytest.mark.trio
async def test_storage_when_closed_then_no_reference_is_left(tmp_path):
    storage = make_storage(tmp_path)
    file = await storage.open("file", create=True)
    await file.write([b"abc"], 0, sync=True)
    gone = [weakref.ref(storage), weakref.ref(storage.driver), weakref.ref(file)]

    await storage.aclose()
    del storage, file
    await trio.testing.wait_all_tasks_blocked()
    gc.collect()

    assert [reference() for reference in gone] == [None] * 3


@pytest.mark.trio
async def test_aclose_when_under_load_then_finishes_what_is_under_way_and_refuses_the_rest(
    tmp_path,
):
    storage = make_storage(tmp_path, entries=2)
    files = [await storage.open(f"file {number}", create=True) for number in range(20)]
    outcomes = []

    async def write_for_ever(file):
        size = 0
        try:
            while True:
                await file.write([b"x" * 10_000], size, sync=size % 3 == 0)
                size += 10_000
        except StorageError as error:
            outcomes.append((error.errno, file.size() == size))

    async with trio.open_nursery() as nursery:
        for file in files:
            nursery.start_soon(write_for_ever, file)
        for _ in range(10):
            await trio.lowlevel.checkpoint()
        with trio.CancelScope() as scope:
            scope.cancel()
            await storage.aclose()

    assert scope.cancelled_caught
    assert outcomes == [(errno.EBADF, True)] * len(files)


def test_run_when_it_ends_without_closing_then_the_ring_is_closed_all_the_same(tmp_path):
    async def forget():
        storage = make_storage(tmp_path)
        file = await storage.open("file", create=True)
        await file.write([b"abc"], 0)
        return storage

    count = len(ring_descriptors())
    storage = trio.run(forget)

    assert len(ring_descriptors()) == count
    with pytest.raises(ValueError, match="closed"):
        storage.driver.ring.submit()

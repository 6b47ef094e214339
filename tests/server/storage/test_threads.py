"""Worker threads on real files."""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from iggy_ref_server.storage.files import PosixFile, WritebackLimit
from iggy_ref_server.storage.threads import ThreadStorage, read_all
from tests.server.storage.conformance import StorageConformance

if TYPE_CHECKING:
    from iggy_ref_server.storage.interface import Storage


class TestThreads(StorageConformance):
    """The conformance of the engine."""

    @pytest.fixture
    async def storage(self, tmp_path):
        """Open an empty data directory on a disk that is never slow."""
        storage: Storage = ThreadStorage(
            tmp_path, writeback_limit=WritebackLimit(clock=lambda: 0.0)
        )
        yield storage
        await storage.aclose()


def test_read_all_when_the_file_ends_early_then_gives_what_there_is(tmp_path):
    (tmp_path / "file").write_bytes(b"0123456789")
    descriptor = os.open(tmp_path / "file", os.O_RDONLY)

    assert read_all(descriptor, 100, 4) == b"456789"
    assert read_all(descriptor, 100, 40) == b""

    os.close(descriptor)


@pytest.mark.trio
async def test_write_now_when_the_file_is_locked_then_writes_nothing(tmp_path):
    storage = ThreadStorage(tmp_path, writeback_limit=WritebackLimit(clock=lambda: 0.0))
    file = await storage.open("file", create=True)
    assert isinstance(file, PosixFile)

    async with file.write_lock:
        assert file.write_nowait([b"abc"], 0) is False
    assert file.size() == 0

    assert file.write_nowait([b"abc"], 0) is True


@pytest.mark.trio
async def test_sync_when_the_file_is_locked_then_waits_for_it(tmp_path):
    storage = ThreadStorage(tmp_path)
    file = await storage.open("file", create=True)
    assert isinstance(file, PosixFile)
    synced = trio.Event()

    async def sync():
        await file.sync()
        synced.set()

    async with trio.open_nursery() as nursery:
        async with file.write_lock:
            nursery.start_soon(sync)
            await trio.testing.wait_all_tasks_blocked()
            assert not synced.is_set()
        await synced.wait()


@pytest.mark.trio
async def test_storage_when_there_are_few_threads_then_the_rest_waits_and_is_done(tmp_path):
    storage = ThreadStorage(tmp_path, threads_max=1)
    files = [await storage.open(f"{number}", create=True) for number in range(5)]

    async with trio.open_nursery() as nursery:
        for file in files:
            nursery.start_soon(file.write, [b"abc"], 0)

    assert [file.size() for file in files] == [3] * 5


@pytest.mark.trio
async def test_write_when_cancelled_while_all_threads_are_busy_then_writes_nothing(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    storage = ThreadStorage(tmp_path, threads_max=1)
    file = await storage.open("file", create=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(storage.read_file, "fifo")  # its thread waits for a writer
        await trio.testing.wait_all_tasks_blocked()
        with trio.CancelScope() as scope:
            nursery.start_soon(cancel_when_blocked, scope)
            await file.write([b"abc"], 0)
        assert scope.cancelled_caught
        os.close(os.open(tmp_path / "fifo", os.O_WRONLY))

    assert file.size() == 0
    assert file.write_nowait([b"abc"], 0)


async def cancel_when_blocked(scope):
    """Cancel a scope once everybody waits."""
    await trio.testing.wait_all_tasks_blocked()
    scope.cancel()


@pytest.mark.trio
@pytest.mark.parametrize("is_write", [False, True])
async def test_syncs_when_asked_for_at_once_then_one_waits_for_the_other(
    tmp_path, monkeypatch, is_write
):
    """The kernel tells of lost data once; of two side by side the other would say all is well."""
    storage = ThreadStorage(tmp_path)
    file = await storage.open("file", create=True)
    begun: list[threading.Event] = []
    overlaps: list[bool] = []

    def slow_sync(_):
        """Sync for so long that another one would begin meanwhile."""
        for earlier in begun:
            earlier.set()
        begun.append(threading.Event())
        overlaps.append(begun[-1].wait(0.2))

    monkeypatch.setattr(os, "fdatasync", slow_sync)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(file.sync)
        while not begun:
            await trio.lowlevel.checkpoint()
        nursery.start_soon(partial(file.write, [b"abc"], 0, sync=True) if is_write else file.sync)

    assert overlaps == [False, False]

"""Which engine is taken, and what is said when it is not the one that was wished for."""

from __future__ import annotations

import errno
import logging
import os
import resource
from contextlib import contextmanager

import pytest

from iggy_ref_server.process.shard_process import open_storage
from iggy_ref_server.storage.interface import StorageError
from tests.server.storage.ring_support import NEEDS_RING, open_files_count

pytestmark = pytest.mark.trio


@pytest.fixture
def without_extensions(monkeypatch):
    """Switch the C extensions off."""
    monkeypatch.setenv("IGGY_NO_EXTENSIONS", "1")


@contextmanager
def no_more_files():
    """Let the kernel refuse every new descriptor, and so every ring."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def use(storage):
    """See that a storage works."""
    file = await storage.open("file", create=True)
    await file.write([b"abc"], 0, sync=True)
    assert await storage.read_file("file") == b"abc"
    await storage.aclose()


async def test_threads_when_asked_for_then_serve(tmp_path):
    storage = await open_storage(tmp_path, "threads")

    assert storage.engine == "worker threads"
    await use(storage)


class TestRing:
    """Where the kernel has a ring for us."""

    pytestmark = NEEDS_RING

    @pytest.mark.parametrize("engine", ["auto", "io_uring"])
    async def test_ring_when_it_can_be_had_then_serves(self, tmp_path, engine):
        storage = await open_storage(tmp_path, engine)

        assert storage.engine == "io_uring"
        await use(storage)


async def test_auto_when_the_extension_is_off_then_threads_serve_and_say_why(
    tmp_path, caplog, without_extensions
):
    with caplog.at_level(logging.WARNING, "iggy_ref_server.storage"):
        storage = await open_storage(tmp_path)

    assert storage.engine == "worker threads (no io_uring: IGGY_NO_EXTENSIONS is set)"
    assert "IGGY_NO_EXTENSIONS is set" in caplog.text
    await use(storage)


async def test_auto_when_the_kernel_refuses_then_threads_serve_and_say_why(tmp_path):
    pytest.importorskip("iggy_ref_server._uring", exc_type=ImportError)
    count = open_files_count()

    with no_more_files():
        storage = await open_storage(tmp_path)

    assert "cannot set up io_uring" in storage.engine
    assert os.strerror(errno.EMFILE) in storage.engine
    assert open_files_count() == count
    await use(storage)


async def test_ring_when_demanded_and_not_there_then_is_an_error(tmp_path, without_extensions):
    with pytest.raises(StorageError, match="no io_uring: IGGY_NO_EXTENSIONS is set") as caught:
        await open_storage(tmp_path, "io_uring")

    assert caught.value.errno == errno.ENOSYS


@pytest.mark.parametrize("engine", ["auto", "threads"])
async def test_directory_when_missing_then_is_made(tmp_path, engine):
    storage = await open_storage(tmp_path / "not" / "yet", engine)

    assert (tmp_path / "not" / "yet").is_dir()
    await use(storage)


@pytest.mark.parametrize("engine", ["auto", "threads"])
async def test_directory_when_it_cannot_be_made_then_nothing_stays_open(tmp_path, engine):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError):
        await open_storage(tmp_path / "file" / "below", "threads")  # which may start a thread
    count = open_files_count()

    with pytest.raises(StorageError):
        await open_storage(tmp_path / "file" / "below", engine)

    assert open_files_count() == count

"""A real data directory: links, leftovers, full disks, and the order of changes."""

from __future__ import annotations

import errno
import os

import pytest
import trio

from iggy_ref_server.storage.files import PosixDirectory, WritebackLimit
from iggy_ref_server.storage.interface import DirectoryEntry, DiskFull, StorageError, storage_error
from iggy_ref_server.storage.threads import ThreadStorage


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_storage_error_when_no_space_is_left_then_says_so(number):
    for cause in (number, OSError(number, "text")):
        error = storage_error("write", "a/b.log", cause)

        assert type(error) is DiskFull
        assert (error.action, error.path, error.errno) == ("write", "a/b.log", number)


def test_storage_error_when_something_else_fails_then_tells_what():
    error = storage_error("sync", "a", OSError(errno.EIO, "Input/output error"))

    assert type(error) is StorageError
    assert str(error) == "cannot sync a: Input/output error"
    assert str(storage_error("sync", "a", errno.EIO)) == str(error)
    assert storage_error("sync", "a", OSError("odd")).errno == 0


@pytest.mark.trio
async def test_make_directories_when_the_root_is_missing_then_it_is_made(tmp_path):
    directory = PosixDirectory(tmp_path / "one" / "two")

    await directory.make_directories("")
    await directory.make_directories("three")

    assert (tmp_path / "one" / "two" / "three").is_dir()


@pytest.mark.trio
async def test_make_directories_when_many_at_once_then_all_succeed(tmp_path):
    directory = PosixDirectory(tmp_path)

    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(directory.make_directories, f"a/b/c/{number}")

    assert len(await directory.entries("a/b/c")) == 10


@pytest.mark.trio
async def test_entries_when_a_crash_left_content_aside_then_it_is_not_listed(tmp_path):
    (tmp_path / ".file.aside").write_bytes(b"half of somethi")
    (tmp_path / "file").write_bytes(b"old")
    directory = PosixDirectory(tmp_path)

    assert await directory.entries("") == [DirectoryEntry("file", is_directory=False, size_bytes=3)]
    await directory.replace("file", b"new!")

    assert os.listdir(tmp_path) == ["file"]
    assert await directory.read_file("file") == b"new!"


@pytest.mark.trio
async def test_replace_when_it_fails_then_removes_what_it_put_aside(tmp_path):
    (tmp_path / "folder").mkdir()

    with pytest.raises(StorageError):
        await PosixDirectory(tmp_path).replace("folder", b"content")

    assert os.listdir(tmp_path) == ["folder"]


@pytest.mark.trio
async def test_links_when_an_administrator_made_them_then_are_followed(tmp_path):
    root, other_disk = tmp_path / "root", tmp_path / "other"
    root.mkdir()
    other_disk.mkdir()
    (other_disk / "file").write_bytes(b"abc")
    (root / "streams").symlink_to(other_disk)
    (root / "dangling").symlink_to(tmp_path / "nowhere")
    directory = PosixDirectory(root)

    assert await directory.entries("") == [
        DirectoryEntry("streams", is_directory=True, size_bytes=0)
    ]
    assert await directory.read_file("streams/file") == b"abc"


@pytest.mark.trio
async def test_remove_tree_when_it_holds_a_link_then_only_the_link_goes(tmp_path):
    root, other_disk = tmp_path / "root", tmp_path / "other"
    (root / "folder").mkdir(parents=True)
    other_disk.mkdir()
    (other_disk / "file").write_bytes(b"abc")
    (root / "folder" / "link").symlink_to(other_disk)

    await PosixDirectory(root).remove_tree("folder")

    assert (other_disk / "file").read_bytes() == b"abc"
    assert os.listdir(root) == []


@pytest.mark.trio
async def test_remove_tree_when_two_do_it_at_once_then_both_succeed(tmp_path):
    directory = PosixDirectory(tmp_path)
    for number in range(30):
        await directory.make_directories(f"a/{number}")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(directory.remove_tree, "a")
        for number in range(30):
            nursery.start_soon(directory.remove_tree, f"a/{number}")

    assert await directory.entries("") == []


@pytest.mark.trio
async def test_changes_when_started_on_one_name_then_happen_in_order(tmp_path):
    directory = PosixDirectory(tmp_path)
    started = []

    async def call(name, verb, *arguments):
        started.append(name)
        await verb(*arguments)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call, "replace", directory.replace, "file", b"content" * 10_000)
        nursery.start_soon(call, "remove", directory.remove, "file")

    assert await directory.read_file("file") == (
        None if started[-1] == "remove" else b"content" * 10_000
    )


@pytest.mark.trio
async def test_write_when_the_device_is_full_then_says_so(tmp_path):
    (tmp_path / "full").symlink_to("/dev/full")
    storage = ThreadStorage(tmp_path, writeback_limit=WritebackLimit(clock=lambda: 0.0))
    file = await storage.open("full")
    buffer = bytearray(b"abc")

    with pytest.raises(DiskFull) as now:
        file.write_nowait([buffer], 0)
    with pytest.raises(DiskFull) as later:
        await file.write([buffer], 0, sync=True)

    for caught in (now, later):
        assert (caught.value.action, caught.value.path) == ("write", "full")
        assert caught.value.errno == errno.ENOSPC
    buffer.extend(b"free")


@pytest.mark.trio
async def test_write_when_only_the_sync_fails_then_the_error_names_the_sync(tmp_path):
    (tmp_path / "null").symlink_to("/dev/null")  # takes all writes, and cannot be synced
    storage = ThreadStorage(tmp_path)
    file = await storage.open("null")

    await file.write([b"abc"], 0)
    with pytest.raises(StorageError) as together:
        await file.write([b"abc"], 0, sync=True)
    with pytest.raises(StorageError) as alone:
        await file.sync()

    assert together.value.action == alone.value.action == "sync"
    assert together.value.errno == alone.value.errno == errno.EINVAL


@pytest.mark.trio
async def test_write_now_when_the_disk_is_slow_then_steps_aside(tmp_path):
    times_s = iter([0.0, 0.1, 0.15, 0.3, 0.3, 0.3])
    storage = ThreadStorage(
        tmp_path, writeback_limit=WritebackLimit(clock=lambda: next(times_s), pause_s=0.1)
    )
    file = await storage.open("file", create=True)

    written = [file.write_nowait([b"x"], position) for position in range(3)]

    assert written == [True, False, True]
    assert await file.read(10, 0) == b"x\0x"

"""What every engine must do when somebody gives up: cancellation, closing, lost references."""

from __future__ import annotations

import errno
import gc

import pytest
import trio
import trio.testing

from iggy_ref_server.storage.interface import FileSlice, StorageError

OLD = b"old!" * 25_000
NEW = b"new?" * 25_000

FILE_VERBS = {
    "write": lambda file, buffers: file.write(buffers, 0),
    "write and sync": lambda file, buffers: file.write(buffers, 0, sync=True),
    "read": lambda file, buffers: file.read(len(OLD), 0),
    "sync": lambda file, buffers: file.sync(),
    "truncate": lambda file, buffers: file.truncate(0),
}
STORAGE_VERBS = {
    "open": lambda storage: storage.open("file"),
    "create": lambda storage: storage.open("made", create=True),
    "read_file": lambda storage: storage.read_file("file"),
    "replace": lambda storage: storage.replace("file", NEW),
    "rename": lambda storage: storage.rename("file", "renamed"),
    "remove": lambda storage: storage.remove("file"),
    "remove_tree": lambda storage: storage.remove_tree("folder"),
    "make_directories": lambda storage: storage.make_directories("folder/a/b"),
    "entries": lambda storage: storage.entries("folder"),
    "sync_directory": lambda storage: storage.sync_directory("folder"),
    "free_bytes": lambda storage: storage.free_bytes(),
}


def by_name(verbs):
    """Run a test once for each verb."""
    return pytest.mark.parametrize("verb", list(verbs.values()), ids=list(verbs))


@pytest.mark.trio
class LifetimeConformance:
    """Cancelled, closed, forgotten."""

    @pytest.fixture
    async def old_file(self, storage):
        """Open a file with content, beside a folder with content."""
        await storage.make_directories("folder")
        await storage.open("folder/inside", create=True)
        file = await storage.open("file", create=True)
        await file.write([OLD], 0)
        return file

    @by_name(FILE_VERBS)
    async def test_file_verb_when_cancelled_before_then_nothing_happens(self, old_file, verb):
        buffers = [bytearray(NEW[:100]), bytearray(NEW[100:])]

        with trio.CancelScope() as scope:
            scope.cancel()
            await verb(old_file, buffers)

        assert scope.cancelled_caught
        assert await old_file.read(len(OLD) + 1, 0) == OLD
        buffers[0].extend(b"free")

    @by_name(FILE_VERBS)
    async def test_file_verb_when_cancelled_meanwhile_then_all_or_nothing(self, old_file, verb):
        buffers = [bytearray(NEW[:100]), bytearray(NEW[100:])]

        async with trio.open_nursery() as nursery:
            nursery.start_soon(verb, old_file, buffers)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        for buffer in buffers:
            buffer[:] = b"free again"

        assert await old_file.read(len(OLD) + 1, 0) in (OLD, NEW, b"")
        await old_file.write([NEW], 0, sync=True)
        assert await old_file.read(len(OLD) + 1, 0) == NEW

    async def test_writes_when_all_but_the_first_are_cancelled_then_later_ones_go_on(
        self, old_file
    ):
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(old_file.write, [b"%d" % number * len(OLD)], 0)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

        content = await old_file.read(len(OLD) + 1, 0)
        assert content in {OLD, *(b"%d" % number * len(OLD) for number in range(5))}
        assert old_file.write_nowait([b"late"], 0) is True
        assert await old_file.read(4, 0) == b"late"

    @by_name(STORAGE_VERBS)
    async def test_storage_verb_when_cancelled_before_then_nothing_happens(
        self, storage, old_file, verb
    ):
        with trio.CancelScope() as scope:
            scope.cancel()
            await verb(storage)

        assert scope.cancelled_caught
        assert [entry.name for entry in await storage.entries("")] == ["file", "folder"]
        assert [entry.name for entry in await storage.entries("folder")] == ["inside"]
        assert await storage.read_file("file") == OLD

    @by_name(STORAGE_VERBS)
    async def test_storage_verb_when_cancelled_meanwhile_then_the_storage_goes_on(
        self, storage, old_file, verb
    ):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(verb, storage)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

        assert await storage.read_file("file") in (OLD, NEW, None)
        await verb(await self.mended(storage))

    async def mended(self, storage):
        """Put back what a verb may have removed."""
        await storage.make_directories("folder")
        file = await storage.open("file", create=True)
        await file.write([OLD], 0)
        return storage

    async def test_aclose_when_repeated_then_no_error(self, storage):
        await storage.aclose()
        await storage.aclose()

    async def test_aclose_when_writes_are_under_way_then_they_are_finished(self, storage, old_file):
        finished = []

        async def finish(name, verb, *arguments):
            await verb(*arguments)
            finished.append(name)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(finish, "write", old_file.write, [NEW], 0)
            nursery.start_soon(finish, "write again", old_file.write, [OLD], 0)
            nursery.start_soon(finish, "replace", storage.replace, "replaced", NEW)
            await trio.testing.wait_all_tasks_blocked()
            await storage.aclose()

        assert sorted(finished) == ["replace", "write", "write again"]

    @by_name(STORAGE_VERBS)
    async def test_storage_verb_when_closed_then_is_refused(self, storage, old_file, verb):
        await storage.aclose()

        with pytest.raises(StorageError) as caught:
            await verb(storage)

        assert caught.value.errno == errno.EBADF

    @by_name(FILE_VERBS)
    async def test_file_verb_when_closed_then_is_refused(self, storage, old_file, verb):
        await storage.aclose()

        with pytest.raises(StorageError) as caught:
            await verb(old_file, [b"new"])

        assert caught.value.errno == errno.EBADF

    async def test_verbs_that_do_not_wait_when_closed_then_are_refused(self, storage, old_file):
        await storage.aclose()

        with pytest.raises(StorageError):
            old_file.write_nowait([b"new"], 0)
        with pytest.raises(StorageError):
            old_file.read_nowait(10, 0)

    async def test_file_when_only_a_slice_refers_to_it_then_stays_readable(self, storage):
        file = await storage.open("file", create=True)
        await file.write([b"0123456789"], 0)
        piece = FileSlice(file, 2, 4)
        del file
        await storage.remove("file")
        gc.collect()

        assert await piece.file.read(piece.size, piece.position) == b"2345"

"""What every engine must do with names: open, replace, rename, remove, list, refuse to escape."""

from __future__ import annotations

import errno

import pytest
import trio

from iggy_ref_server.storage.interface import DirectoryEntry, StorageError

ESCAPES = (
    "/etc/passwd",
    "..",
    "../outside",
    "inside/../../outside",
    "inside/..",
    "./inside",
    "inside//file",
    "inside/",
    "in\0side",
)


async def write_file(storage, path, content):
    """Make a file with some content."""
    file = await storage.open(path, create=True)
    await file.write([content], 0)
    return file


async def names(storage, path=""):
    """List the names in a directory."""
    return [entry.name for entry in await storage.entries(path)]


@pytest.mark.trio
class NameConformance:
    """Files and directories by name."""

    async def test_engine_when_asked_then_has_a_name(self, storage):
        assert storage.engine

    async def test_open_when_missing_then_says_so(self, storage):
        with pytest.raises(StorageError) as caught:
            await storage.open("missing")

        assert (caught.value.action, caught.value.path) == ("open", "missing")
        assert caught.value.errno == errno.ENOENT
        assert await names(storage) == []

    async def test_open_when_the_directory_is_missing_then_says_so(self, storage):
        with pytest.raises(StorageError) as caught:
            await storage.open("no/such/file", create=True)

        assert caught.value.errno == errno.ENOENT

    async def test_open_when_it_is_a_directory_then_refuses(self, storage):
        await storage.make_directories("folder")

        with pytest.raises(StorageError) as caught:
            await storage.open("folder")

        assert caught.value.errno == errno.EISDIR

    async def test_open_when_a_file_stands_in_the_way_then_refuses(self, storage):
        await write_file(storage, "file", b"")

        with pytest.raises(StorageError) as caught:
            await storage.open("file/below", create=True)

        assert caught.value.errno == errno.ENOTDIR

    async def test_open_when_the_file_exists_then_keeps_its_content(self, storage):
        await write_file(storage, "file", b"abc")

        again = await storage.open("file", create=True)

        assert await again.read(10, 0) == b"abc"

    async def test_open_when_twice_then_both_see_the_same(self, storage):
        first = await write_file(storage, "file", b"abc")
        second = await storage.open("file")

        await second.write([b"def"], 3)

        assert await first.read(10, 0) == b"abcdef"
        assert first.size() == 6

    async def test_read_file_when_present_then_gives_all_of_it(self, storage):
        await write_file(storage, "file", b"abc")

        assert await storage.read_file("file") == b"abc"
        assert await storage.read_file("file", size_max=3) == b"abc"

    async def test_read_file_when_missing_then_gives_none(self, storage):
        assert await storage.read_file("missing") is None
        assert await storage.read_file("no/such/file") is None

    async def test_read_file_when_too_large_then_refuses(self, storage):
        await write_file(storage, "file", b"abcd")

        with pytest.raises(StorageError) as caught:
            await storage.read_file("file", size_max=3)

        assert caught.value.errno == errno.EFBIG

    @pytest.mark.parametrize("content", [b"", b"new", bytearray(b"x" * 70_000), memoryview(b"v")])
    async def test_replace_when_missing_then_makes_the_file(self, storage, content):
        await storage.replace("file", content)

        assert await storage.read_file("file") == content
        assert await names(storage) == ["file"]

    async def test_replace_when_present_then_an_open_file_keeps_the_old_content(self, storage):
        old = await write_file(storage, "file", b"old content")

        await storage.replace("file", b"new")

        assert await storage.read_file("file") == b"new"
        assert await old.read(100, 0) == b"old content"

    async def test_replace_when_read_meanwhile_then_never_seen_in_part(self, storage):
        contents = [b"%d" % number * 50_000 for number in range(8)]
        await storage.replace("file", contents[0])
        seen = []

        async def read_often():
            while True:
                seen.append(await storage.read_file("file"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read_often)
            for content in contents:
                await storage.replace("file", content)
            nursery.cancel_scope.cancel()

        assert seen
        assert set(seen) <= set(contents)

    async def test_replaces_when_started_together_then_the_last_started_wins(self, storage):
        started = []

        async def replace(number):
            started.append(number)
            await storage.replace("file", b"%d" % number * 5000)

        async with trio.open_nursery() as nursery:
            for number in range(6):
                nursery.start_soon(replace, number)

        assert await storage.read_file("file") == b"%d" % started[-1] * 5000
        assert await names(storage) == ["file"]

    async def test_replace_when_it_fails_then_leaves_nothing_behind(self, storage):
        await storage.make_directories("folder")
        await write_file(storage, "folder/inside", b"")

        with pytest.raises(StorageError) as caught:
            await storage.replace("folder", b"content")
        with pytest.raises(StorageError):
            await storage.replace("no/such/file", b"content")

        assert caught.value.action == "replace"
        assert await names(storage) == ["folder"]

    async def test_rename_when_the_target_is_free_then_moves_the_file(self, storage):
        file = await write_file(storage, "source", b"abc")
        await storage.make_directories("folder")

        await storage.rename("source", "folder/target")

        assert await names(storage) == ["folder"]
        assert await storage.read_file("folder/target") == b"abc"
        await file.write([b"def"], 3)
        assert await storage.read_file("folder/target") == b"abcdef"

    async def test_rename_when_the_target_is_a_file_then_replaces_it(self, storage):
        await write_file(storage, "source", b"new")
        old = await write_file(storage, "target", b"old")

        await storage.rename("source", "target")

        assert await names(storage) == ["target"]
        assert await storage.read_file("target") == b"new"
        assert await old.read(10, 0) == b"old"

    async def test_rename_when_it_is_a_directory_then_all_inside_moves(self, storage):
        await storage.make_directories("one/two")
        await write_file(storage, "one/two/file", b"abc")

        await storage.rename("one", "three")

        assert await storage.read_file("three/two/file") == b"abc"
        assert await names(storage) == ["three"]

    async def test_rename_when_to_its_own_name_then_nothing_changes(self, storage):
        await write_file(storage, "file", b"abc")

        await storage.rename("file", "file")

        assert await storage.read_file("file") == b"abc"

    @pytest.mark.parametrize(
        ("source", "target", "number"),
        [
            ("missing", "target", errno.ENOENT),
            ("file", "missing/target", errno.ENOENT),
            ("file", "folder", errno.EISDIR),
            ("folder", "file", errno.ENOTDIR),
            ("folder", "full", errno.ENOTEMPTY),
            ("folder", "folder/below", errno.EINVAL),
        ],
    )
    async def test_rename_when_impossible_then_nothing_changes(
        self, storage, source, target, number
    ):
        await storage.make_directories("folder")
        await storage.make_directories("full/inside")
        await write_file(storage, "file", b"abc")

        with pytest.raises(StorageError) as caught:
            await storage.rename(source, target)

        assert (caught.value.action, caught.value.errno) == ("rename", number)
        assert await names(storage) == ["file", "folder", "full"]
        assert await names(storage, "folder") == []

    async def test_remove_when_present_then_the_name_is_gone(self, storage):
        await write_file(storage, "file", b"abc")

        await storage.remove("file")

        assert await names(storage) == []
        assert await storage.read_file("file") is None

    async def test_remove_when_missing_then_no_error(self, storage):
        await storage.remove("missing")
        await storage.remove("no/such/file")

    async def test_remove_when_it_is_a_directory_then_refuses(self, storage):
        await storage.make_directories("folder")

        with pytest.raises(StorageError) as caught:
            await storage.remove("folder")

        assert caught.value.action == "remove"
        assert await names(storage) == ["folder"]

    async def test_remove_when_the_file_is_open_then_it_can_still_be_used(self, storage):
        file = await write_file(storage, "file", b"abc")

        await storage.remove("file")
        await write_file(storage, "file", b"another")

        assert await file.read(10, 0) == b"abc"
        await file.write([b"def"], 3, sync=True)
        assert await file.read(10, 0) == b"abcdef"
        assert await storage.read_file("file") == b"another"

    async def test_remove_tree_when_full_then_all_is_gone(self, storage):
        await storage.make_directories("one/two/three")
        await storage.make_directories("one/four")
        await write_file(storage, "one/two/file", b"abc")
        deep = await write_file(storage, "one/two/three/file", b"def")
        await write_file(storage, "other", b"stays")

        await storage.remove_tree("one")

        assert await names(storage) == ["other"]
        assert await deep.read(10, 0) == b"def"

    async def test_remove_tree_when_missing_then_no_error(self, storage):
        await storage.remove_tree("missing")
        await storage.remove_tree("no/such/folder")

    async def test_remove_tree_when_it_is_a_file_then_refuses(self, storage):
        await write_file(storage, "file", b"abc")

        with pytest.raises(StorageError) as caught:
            await storage.remove_tree("file")

        assert caught.value.errno == errno.ENOTDIR
        assert await storage.read_file("file") == b"abc"

    async def test_make_directories_when_repeated_then_keeps_what_is_there(self, storage):
        await storage.make_directories("one/two")
        await write_file(storage, "one/two/file", b"abc")

        await storage.make_directories("one/two")
        await storage.make_directories("one/two/three")
        await storage.make_directories("")

        assert await names(storage, "one/two") == ["file", "three"]

    @pytest.mark.parametrize("path", ["file", "file/below", "file/below/that"])
    async def test_make_directories_when_a_file_is_in_the_way_then_refuses(self, storage, path):
        await write_file(storage, "file", b"abc")

        with pytest.raises(StorageError):
            await storage.make_directories(path)

        assert await storage.read_file("file") == b"abc"

    async def test_entries_when_listed_then_sorted_with_kinds_and_sizes(self, storage):
        await storage.make_directories("d/b")
        for name, content in [("c", b"xyz"), ("a", b""), ("00000000000000000010.log", b"x")]:
            await write_file(storage, f"d/{name}", content)

        assert await storage.entries("d") == [
            DirectoryEntry("00000000000000000010.log", is_directory=False, size_bytes=1),
            DirectoryEntry("a", is_directory=False, size_bytes=0),
            DirectoryEntry("b", is_directory=True, size_bytes=0),
            DirectoryEntry("c", is_directory=False, size_bytes=3),
        ]

    async def test_entries_when_empty_or_missing_then_nothing_is_listed(self, storage):
        await storage.make_directories("empty")

        assert await storage.entries("empty") == []
        assert await storage.entries("missing") == []
        assert await storage.entries("no/such/folder") == []

    async def test_entries_when_it_is_a_file_then_refuses(self, storage):
        await write_file(storage, "file", b"abc")

        with pytest.raises(StorageError) as caught:
            await storage.entries("file")

        assert caught.value.errno == errno.ENOTDIR

    async def test_sync_directory_when_present_then_nothing_changes(self, storage):
        await storage.make_directories("folder")
        await write_file(storage, "folder/file", b"abc")

        await storage.sync_directory("folder")
        await storage.sync_directory("")

        assert await names(storage, "folder") == ["file"]

    async def test_sync_directory_when_missing_then_says_so(self, storage):
        with pytest.raises(StorageError) as caught:
            await storage.sync_directory("missing")

        assert caught.value.errno == errno.ENOENT

    async def test_free_bytes_when_asked_then_are_no_more_than_there_are(self, storage):
        free, total = await storage.free_bytes()

        assert 0 <= free <= total
        assert total > 0

    @pytest.mark.parametrize("path", [*ESCAPES, ""])
    async def test_path_when_it_leaves_the_root_then_no_verb_takes_it(self, storage, path):
        await storage.make_directories("inside")
        await write_file(storage, "file", b"abc")
        calls = [
            lambda: storage.open(path),
            lambda: storage.open(path, create=True),
            lambda: storage.read_file(path),
            lambda: storage.replace(path, b""),
            lambda: storage.rename(path, "target"),
            lambda: storage.rename("file", path),
            lambda: storage.remove(path),
            lambda: storage.remove_tree(path),
        ]
        if path:
            calls += [
                lambda: storage.make_directories(path),
                lambda: storage.entries(path),
                lambda: storage.sync_directory(path),
            ]

        for call in calls:
            with pytest.raises(StorageError) as caught:
                await call()
            assert caught.value.errno == errno.EINVAL

        assert await names(storage) == ["file", "inside"]

"""What every engine must do with an open file: positions, vectors, holes, sizes, order."""

from __future__ import annotations

import random

import pytest
import trio
import trio.testing

from iggy_ref_server.storage.interface import StorageError

PAGE = 4096


def pieces(count):
    """Make many small buffers of all kinds, some of them empty, the last one not."""
    source = random.Random(count)
    kinds = (bytes, bytearray, memoryview)
    sizes = [source.choice([0, 1, 40]) for _ in range(count - 1)]
    return [kinds[index % 3](source.randbytes(size)) for index, size in enumerate([*sizes, 9])]


async def assert_content(file, expected):
    """Compare a file with what it should hold, read in both ways."""
    assert file.size() == len(expected)
    assert await file.read(len(expected) + 1, 0) == expected
    assert file.read_nowait(len(expected) + 1, 0) in (expected, None)


@pytest.mark.trio
class FileConformance:
    """Reading and writing."""

    @pytest.fixture
    async def file(self, storage):
        """Open an empty file."""
        return await storage.open("file", create=True)

    async def test_file_when_created_then_is_empty_and_knows_its_path(self, file):
        assert file.path == "file"
        assert file.descriptor is None or file.descriptor > 0
        await assert_content(file, b"")

    async def test_write_now_when_nothing_is_in_the_way_then_all_is_written(self, file):
        assert file.write_nowait([b"abc", b"defg"], 0) is True

        await assert_content(file, b"abcdefg")

    async def test_write_when_awaited_then_all_is_written(self, file):
        await file.write([b"abc", b"defg"], 0)

        await assert_content(file, b"abcdefg")

    @pytest.mark.parametrize("sync", [False, True])
    async def test_write_when_repeated_at_the_end_then_appends(self, file, sync):
        for index in range(5):
            await file.write([b"%d" % index * 10], index * 10, sync=sync)

        await assert_content(file, b"".join(b"%d" % index * 10 for index in range(5)))

    async def test_write_soon_when_begun_then_all_is_written_and_done_is_called_later(self, file):
        tell, outcomes = trio.open_memory_channel[StorageError | None](1)
        buffer = bytearray(b"defg")

        if not file.begin_write([b"abc", buffer], 0, tell.send_nowait):  # it may always refuse
            await assert_content(file, b"")
            return
        assert not tell.statistics().current_buffer_used, "never before it returns"

        assert await outcomes.receive() is None
        buffer.append(0)
        await assert_content(file, b"abcdefg")

    async def test_write_soon_when_others_write_and_sync_then_all_is_in_order(self, file):
        tell, outcomes = trio.open_memory_channel[StorageError | None](8)
        begun_count = 0
        async with trio.open_nursery() as nursery:
            for index in range(8):
                begun_count += file.begin_write([b"%d" % index * 9], index * 9, tell.send_nowait)
                nursery.start_soon(file.sync)
                await file.write([b"%d" % index * 9], index * 9, sync=bool(index % 2))

        assert [await outcomes.receive() for _ in range(begun_count)] == [None] * begun_count
        await assert_content(file, b"".join(b"%d" % index * 9 for index in range(8)))

    async def test_write_soon_when_the_storage_is_closed_then_is_refused(self, storage, file):
        await storage.aclose()

        with pytest.raises(StorageError, match="the storage is closed"):
            file.begin_write([b"abc"], 0, print)

    async def test_write_when_bytes_are_there_then_only_its_range_is_replaced(self, file):
        await file.write([b"0123456789"], 0)

        await file.write([b"ab", b"cd"], 3)
        assert file.write_nowait([b"Z"], 9) is True

        await assert_content(file, b"012abcd78Z")

    async def test_write_when_beyond_the_end_then_the_gap_is_zeros(self, file):
        await file.write([b"head"], 0)

        assert file.write_nowait([b"now"], 2 * PAGE) is True
        await file.write([b"tail"], 5 * PAGE)

        gap = bytes(2 * PAGE - 4)
        await assert_content(file, b"head" + gap + b"now" + bytes(3 * PAGE - 3) + b"tail")

    @pytest.mark.parametrize("count", [1, 1023, 1024, 1025, 2500])
    async def test_write_when_there_are_many_buffers_then_all_are_in_order(self, file, count):
        buffers = pieces(count)

        await file.write(buffers, 7)

        await assert_content(file, bytes(7) + b"".join(buffers))

    @pytest.mark.parametrize("count", [1, 1023, 1024, 1025, 2500])
    async def test_write_now_when_there_are_many_buffers_then_all_are_in_order(self, file, count):
        buffers = pieces(count)

        assert file.write_nowait(buffers, 7) is True

        await assert_content(file, bytes(7) + b"".join(buffers))

    @pytest.mark.parametrize("buffers", [[], [b""], [b""] * 1500], ids=["none", "one", "many"])
    async def test_write_when_there_are_no_bytes_then_nothing_changes(self, file, buffers):
        await file.write([b"abc"], 0)

        await file.write(buffers, 100)
        await file.write(buffers, 100, sync=True)
        assert file.write_nowait(buffers, 100) is True

        await assert_content(file, b"abc")

    async def test_write_when_views_are_of_wide_items_then_bytes_count(self, file):
        numbers = memoryview(bytes(range(32))).cast("I")

        await file.write([numbers, b"end"], 0)
        assert file.write_nowait([numbers, b"end"], 35) is True

        await assert_content(file, (bytes(range(32)) + b"end") * 2)

    async def test_write_when_large_then_arrives_whole(self, file):
        content = random.Random(1).randbytes(3 << 20)

        await file.write([content[: 1 << 20], memoryview(content)[1 << 20 :]], 0)

        assert await file.read(len(content), 0) == content

    async def test_write_when_done_then_buffers_can_be_resized(self, file):
        buffers = [bytearray(b"abc"), bytearray(b"def")]

        await file.write(buffers, 0)
        await file.write(buffers, 6, sync=True)
        file.write_nowait(buffers, 12)

        for buffer in buffers:
            buffer.extend(b"more")
        await assert_content(file, b"abcdef" * 3)

    @pytest.mark.parametrize(
        ("size", "position", "expected"),
        [
            (4, 0, b"0123"),
            (4, 3, b"3456"),
            (4, 8, b"89"),
            (10, 0, b"0123456789"),
            (1 << 40, 5, b"56789"),
            (4, 10, b""),
            (4, 1 << 40, b""),
            (0, 3, b""),
        ],
    )
    async def test_read_when_at_a_position_then_gives_what_is_there(
        self, file, size, position, expected
    ):
        await file.write([b"0123456789"], 0)

        assert await file.read(size, position) == expected
        assert file.read_nowait(size, position) in (expected, None)

    async def test_read_now_when_it_answers_then_knows_of_later_changes(self, file):
        await file.write([b"0123456789"], 0)
        file.read_nowait(10, 0)

        await file.write([b"ab"], 4)
        await file.truncate(8)

        assert file.read_nowait(10, 0) in (b"0123ab67", None)

    async def test_is_cached_when_asked_then_answers_for_any_range(self, file):
        await file.write([bytes(3 * PAGE)], 0)

        for size, position in [(1, 0), (3 * PAGE, 0), (PAGE, PAGE // 2), (1 << 40, 0)]:
            assert isinstance(file.is_cached(size, position), bool)
        assert file.is_cached(0, 0)
        assert file.is_cached(10, 1 << 40)

    async def test_truncate_when_shorter_then_the_rest_is_gone(self, file):
        await file.write([b"0123456789"], 0)

        await file.truncate(4)

        await assert_content(file, b"0123")

    async def test_truncate_when_longer_then_zeros_follow(self, file):
        await file.write([b"0123"], 0)

        await file.truncate(PAGE + 1)

        await assert_content(file, b"0123" + bytes(PAGE - 3))

    async def test_truncate_when_cut_and_extended_then_old_bytes_do_not_return(self, file):
        await file.write([b"0123456789"], 0)

        await file.truncate(4)
        await file.truncate(8)

        await assert_content(file, b"0123" + bytes(4))

    async def test_preallocate_when_called_then_the_content_stays_and_can_grow(self, file):
        await file.write([b"abc"], 0)
        assert await file.preallocate(64 * PAGE) in (True, False)
        await assert_content(file, b"abc")
        await file.write([b"def"], 3, sync=True)

        await assert_content(file, b"abcdef")

    async def test_truncate_when_the_size_is_impossible_then_is_refused(self, file):
        await file.write([b"0123"], 0)

        with pytest.raises(StorageError) as caught:
            await file.truncate(-1)

        assert (caught.value.action, caught.value.path) == ("truncate", "file")
        await assert_content(file, b"0123")

    async def test_sync_when_called_then_changes_nothing(self, file):
        await file.sync()
        await file.write([b"0123"], 0)

        await file.sync()
        await file.sync()

        await assert_content(file, b"0123")

    async def test_writes_when_started_together_then_the_last_started_wins(self, file):
        started = []

        async def write(number):
            started.append(number)
            await file.write([b"%02d" % number * 2000], 0, sync=number % 4 == 0)

        async with trio.open_nursery() as nursery:
            for number in range(12):
                nursery.start_soon(write, number)

        await assert_content(file, b"%02d" % started[-1] * 2000)

    async def test_write_now_when_a_write_is_under_way_then_does_not_overtake_it(self, file):
        large = bytes(2 << 20)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(file.write, [large], 0)
            await trio.testing.wait_all_tasks_blocked()
            was_written = file.write_nowait([b"late"], 0)

        if not was_written:
            await file.write([b"late"], 0)

        await assert_content(file, b"late" + large[4:])

    async def test_truncate_when_started_after_a_write_then_comes_after_it(self, file):
        started = []

        async def call(name, verb, *arguments):
            started.append(name)
            await verb(*arguments)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, "write", file.write, [b"x" * 100], 0)
            nursery.start_soon(call, "truncate", file.truncate, 50)

        expected = 50 if started[-1] == "truncate" else 100
        await assert_content(file, b"x" * expected)

    async def test_reads_when_many_run_at_once_then_each_gets_its_own(self, file):
        await file.write([bytes(range(256)) * 16], 0)
        results = {}

        async def read(position):
            results[position] = await file.read(1, position)

        async with trio.open_nursery() as nursery:
            for position in range(100):
                nursery.start_soon(read, position)

        assert results == {position: bytes([position]) for position in range(100)}

"""Disk space that a growing file takes ahead of its end, on a real file system."""

from __future__ import annotations

import errno
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_ref_server.partitions.settings import PartitionSettings
from iggy_ref_server.storage import files, posix
from iggy_ref_server.storage.files import (
    AHEAD_BYTES_MAX,
    AHEAD_FROM_BYTES,
    AHEAD_SHARE,
    ROOM_AHEAD_MIN,
    PosixFile,
    WritebackLimit,
)
from iggy_ref_server.storage.locks import InFlightGate
from iggy_ref_server.storage.posix import Descriptor
from iggy_ref_server.storage.threads import ThreadStorage
from tests.server.partitions.partition_calls import create, send

MEBIBYTE = 1 << 20


def taken_bytes(file):
    return os.fstat(file.descriptor).st_blocks * 512


@pytest.fixture
async def file(tmp_path):
    patient = WritebackLimit(slow_s=60)
    storage = ThreadStorage(tmp_path, writeback_limit=patient)
    if not await (await storage.open("probe", create=True)).preallocate(MEBIBYTE):
        pytest.skip("this file system takes no space ahead")
    yield await storage.open("log", create=True)
    await storage.aclose()


def append(file, size):
    position = file.size()
    assert file.write_nowait([bytes(size)], position)


@pytest.mark.trio
async def test_file_when_it_grows_then_takes_at_most_a_quarter_more_and_its_length_is_as_written(
    file,
):
    append(file, AHEAD_FROM_BYTES)
    assert not file.has_room_ahead
    append(file, MEBIBYTE)

    assert file.has_room_ahead
    assert file.size() == AHEAD_FROM_BYTES + MEBIBYTE
    assert taken_bytes(file) <= file.size() * (1 + 1 / AHEAD_SHARE) + ROOM_AHEAD_MIN


@pytest.mark.trio
async def test_file_when_small_then_takes_nothing_ahead(file):
    for _ in range(3):
        append(file, MEBIBYTE)

    assert not file.has_room_ahead


@pytest.mark.trio
async def test_file_when_truncated_to_its_length_then_gives_the_room_back(file):
    append(file, AHEAD_FROM_BYTES)
    append(file, MEBIBYTE)

    await file.truncate(file.size())

    assert not file.has_room_ahead
    assert taken_bytes(file) <= file.size() + ROOM_AHEAD_MIN


@pytest.mark.trio
async def test_file_when_the_disk_has_no_room_ahead_then_is_written_and_not_asked_again(
    file, monkeypatch
):
    asked = []

    def refuse(*arguments):
        asked.append(arguments)
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(posix, "preallocate", refuse)
    append(file, AHEAD_FROM_BYTES)
    append(file, MEBIBYTE)
    append(file, MEBIBYTE)

    assert file.size() == AHEAD_FROM_BYTES + 2 * MEBIBYTE
    assert len(asked) == 1


@given(sizes=st.lists(st.integers(1, 3 * MEBIBYTE), min_size=1, max_size=12))
def test_space_when_writes_have_any_sizes_then_is_taken_where_they_end(sizes):
    """Space that was taken at the wrong place would be no faster, and would waste the disk."""
    taken = []
    file = PosixFile("log", Descriptor(-1), InFlightGate(), WritebackLimit(slow_s=60))
    position, covered = 0, AHEAD_FROM_BYTES

    def take(_, size, at):
        taken.append((at, size))
        return True

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(posix, "preallocate", take)
        patch.setattr(files, "write_all", lambda *_: None)
        for size in sizes:
            before = len(taken)
            assert file.write_nowait([bytes(size)], position)
            for at, space in taken[before:]:
                assert at == position
                assert size <= space <= size + min(position // AHEAD_SHARE, AHEAD_BYTES_MAX)
                covered = at + space
            position += size
            assert position <= covered


@pytest.mark.trio
async def test_segment_when_full_then_keeps_no_more_of_the_disk_than_it_has(tmp_path):
    storage = ThreadStorage(tmp_path, writeback_limit=WritebackLimit(slow_s=60))
    partition = await create(storage, PartitionSettings(segment_size_bytes=5 * MEBIBYTE))
    for _ in range(5):
        await send(partition, bytes(MEBIBYTE))
    (first,) = tmp_path.rglob("*.log")
    if not room_ahead(first):
        pytest.skip("this file system takes no space ahead")
    await send(partition, bytes(MEBIBYTE))

    assert len(list(tmp_path.rglob("*.log"))) == 2
    assert not room_ahead(first)
    await partition.aclose()


def room_ahead(path):
    facts = path.stat()
    return facts.st_blocks * 512 - facts.st_size >= ROOM_AHEAD_MIN

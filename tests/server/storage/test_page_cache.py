"""What is in the page cache and what is not, on the file system of the test directory."""

from __future__ import annotations

import os

import pytest

from iggy_ref_server.storage.files import (
    PAGE_BYTES,
    PosixFile,
    WritebackLimit,
    count_cached_pages,
    is_in_page_cache,
    is_sample_in_page_cache,
)
from iggy_ref_server.storage.locks import InFlightGate
from iggy_ref_server.storage.posix import Descriptor
from iggy_ref_server.storage.threads import ThreadStorage

PAGES_COUNT = 40


@pytest.fixture
def descriptor(tmp_path):
    """Open a file of many pages that are all on the disk and in memory."""
    number = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    for page in range(PAGES_COUNT):  # one by one, or the kernel joins them and drops none alone
        os.pwrite(number, bytes(PAGE_BYTES), page * PAGE_BYTES)
    os.fsync(number)
    yield number
    os.close(number)


def evict(number, first=0, count=PAGES_COUNT):
    """Drop pages from memory; skip the test where the file system lives there."""
    os.posix_fadvise(number, first * PAGE_BYTES, count * PAGE_BYTES, os.POSIX_FADV_DONTNEED)
    if count_cached_pages(number, first * PAGE_BYTES, count * PAGE_BYTES) != 0:
        pytest.skip("this kernel cannot tell, or this file system keeps its files in memory")


def test_is_resident_when_just_written_then_yes(descriptor):
    assert is_in_page_cache(descriptor, 0, PAGES_COUNT * PAGE_BYTES)
    assert is_in_page_cache(descriptor, 5, 1)
    assert is_in_page_cache(descriptor, PAGES_COUNT * PAGE_BYTES - 1, 1)


def test_is_resident_when_one_page_is_missing_then_only_ranges_without_it(descriptor):
    evict(descriptor, 20, 1)

    assert not is_in_page_cache(descriptor, 0, PAGES_COUNT * PAGE_BYTES)
    assert not is_in_page_cache(descriptor, 20 * PAGE_BYTES + 7, 1)
    assert not is_in_page_cache(descriptor, 19 * PAGE_BYTES, PAGE_BYTES + 1)
    assert is_in_page_cache(descriptor, 0, 20 * PAGE_BYTES)
    assert is_in_page_cache(descriptor, 21 * PAGE_BYTES, 19 * PAGE_BYTES)


def test_is_resident_when_nothing_is_asked_then_yes(descriptor):
    evict(descriptor)

    assert is_in_page_cache(descriptor, 0, 0)


def test_is_sample_resident_when_all_is_there_then_yes(descriptor):
    if not is_sample_in_page_cache(descriptor, 0, 0):
        pytest.skip("this file system cannot read without waiting")

    assert is_sample_in_page_cache(descriptor, 0, PAGES_COUNT - 1)


def test_is_sample_resident_when_it_cannot_be_read_then_no():
    reader, writer = os.pipe()
    try:
        assert not is_sample_in_page_cache(reader, 0, 9)
    finally:
        os.close(reader)
        os.close(writer)


@pytest.mark.trio
async def test_file_when_its_pages_are_gone_then_is_cached_says_so(tmp_path):
    storage = ThreadStorage(tmp_path, writeback_limit=WritebackLimit(clock=lambda: 0.0))
    file = await storage.open("file", create=True)
    assert file.descriptor is not None
    content = bytes(range(256)) * (PAGES_COUNT * PAGE_BYTES // 256)
    await file.write([content], 0, sync=True)
    assert file.read_nowait(len(content), 0) in (content, None)
    assert file.is_cached(len(content), 0)

    evict(file.descriptor)

    assert not file.is_cached(len(content), 0)
    # Asking makes the kernel begin to read, so a quick disk may even answer in time.
    assert file.read_nowait(len(content), 0) in (content, None)
    assert await file.read(len(content), 0) == content
    assert file.is_cached(len(content), 0)


def test_read_now_when_it_fails_then_leaves_the_answer_to_read(tmp_path):
    (tmp_path / "file").write_bytes(b"0123")
    write_only = Descriptor(os.open(tmp_path / "file", os.O_WRONLY))

    file = PosixFile("file", write_only, InFlightGate(), WritebackLimit())

    assert file.read_nowait(4, 0) is None

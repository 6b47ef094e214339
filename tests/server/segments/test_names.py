"""File names of segments."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from iggy_ref_server.segments.file_names import (
    SegmentFiles,
    SegmentListing,
    index_path,
    list_segments,
    log_path,
)
from iggy_ref_server.storage.interface import DirectoryEntry


def test_paths_when_named_then_have_twenty_digits():
    assert log_path("d", 7) == "d/00000000000000000007.log"
    assert index_path("d", 2**64 - 1) == "d/18446744073709551615.index"


def test_listing_when_an_index_has_no_log_then_it_is_an_orphan():
    entries = [
        DirectoryEntry("00000000000000000000.index", is_directory=False, size_bytes=16),
        DirectoryEntry("00000000000000000007.index", is_directory=False, size_bytes=32),
        DirectoryEntry("00000000000000000007.log", is_directory=False, size_bytes=200),
        DirectoryEntry("00000000000000000014.log", is_directory=False, size_bytes=5),
    ]

    assert list_segments(entries) == SegmentListing(
        segments=(SegmentFiles(7, 200, 32), SegmentFiles(14, 5, None)),
        orphans=("00000000000000000000.index",),
        filled_orphans=(("00000000000000000000.index", 16),),
    )


def test_listing_when_names_are_of_another_form_then_left_out():
    names = ["offsets", "7.log", "0000000000000000000x.log", "00000000000000000007.log.bak", "log"]
    names += ["٠" * 20 + ".log", "incarnation", "+0000000000000000007.log"]
    entries = [DirectoryEntry(name, is_directory=False, size_bytes=1) for name in names]
    entries.append(DirectoryEntry("00000000000000000009.log", is_directory=True, size_bytes=0))

    assert list_segments(entries) == SegmentListing((), ())


@given(st.sets(st.integers(0, 2**64 - 1), max_size=5))
def test_listing_when_written_by_us_then_read_in_order(offsets):
    entries = [
        DirectoryEntry(path(".", offset)[2:], is_directory=False, size_bytes=3)
        for offset in offsets
        for path in (log_path, index_path)
    ]

    found = list_segments(entries)

    assert [files.start_offset for files in found.segments] == sorted(offsets)
    assert not found.orphans

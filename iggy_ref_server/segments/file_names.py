"""File names of segments, and the segments in a directory listing.

    <start offset, 20 digits>.log      the messages, back to back
    <start offset, 20 digits>.index    16 bytes for each of them

A log makes a segment. An index without a log is left by an interrupted removal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iggy_ref_server.storage.interface import DirectoryEntry


DIGITS = 20
LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"


class SegmentFiles(NamedTuple):
    """The files of one segment as a listing shows them.

    Attributes:
        start_offset: offset of the first message, from the name.
        log_bytes: length of the log.
        index_bytes: length of the index, None where there is no index.
    """

    start_offset: int
    log_bytes: int
    index_bytes: int | None


class SegmentListing(NamedTuple):
    """What a partition's directory holds.

    Attributes:
        segments: ordered by offset.
        orphans: names of indexes without a log.
        filled_orphans: those of them that hold bytes, and how many.
    """

    segments: tuple[SegmentFiles, ...]
    orphans: tuple[str, ...]
    filled_orphans: tuple[tuple[str, int], ...] = ()

    def is_behind_all_logs(self, orphan: str) -> bool:
        """Tell whether an index without a log is that of a last segment whose log is missing.

        The log of a segment is made first. It is removed first as well, but that of the last
        segment only after the next one was made. So no process that dies leaves such an index.
        """
        start = start_offset_of(orphan, INDEX_SUFFIX)
        assert start is not None
        return bool(self.segments) and start > self.segments[-1].start_offset


def log_path(directory: str, start_offset: int) -> str:
    """Name the log of a segment."""
    return f"{directory}/{start_offset:0{DIGITS}}{LOG_SUFFIX}"


def index_path(directory: str, start_offset: int) -> str:
    """Name the index of a segment."""
    return f"{directory}/{start_offset:0{DIGITS}}{INDEX_SUFFIX}"


def list_segments(entries: Iterable[DirectoryEntry]) -> SegmentListing:
    """Find the segments in a listing; names of any other form are left out."""
    logs: dict[int, int] = {}
    indexes: dict[int, DirectoryEntry] = {}
    for entry in entries:
        if entry.is_directory:
            continue
        if (offset := start_offset_of(entry.name, LOG_SUFFIX)) is not None:
            logs[offset] = entry.size_bytes
        elif (offset := start_offset_of(entry.name, INDEX_SUFFIX)) is not None:
            indexes[offset] = entry
    segments = [
        SegmentFiles(
            offset, logs[offset], indexes[offset].size_bytes if offset in indexes else None
        )
        for offset in sorted(logs)
    ]
    orphans = [indexes[offset] for offset in sorted(indexes) if offset not in logs]
    return SegmentListing(
        tuple(segments),
        tuple(entry.name for entry in orphans),
        tuple((entry.name, entry.size_bytes) for entry in orphans if entry.size_bytes),
    )


def start_offset_of(name: str, suffix: str) -> int | None:
    """Read the offset out of a file name."""
    stem = name.removesuffix(suffix)
    if stem == name or len(stem) != DIGITS or not (stem.isascii() and stem.isdigit()):
        return None
    return int(stem)

"""Checks the segments of a partition: each index against its log, each log, and the sequence.

Nothing is changed here.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from iggy_protocol import Buffer, index_entries, record
from iggy_ref_server.fsck.context import Finding, Quarantine
from iggy_ref_server.fsck.repair import rebuild_index, record_gaps, repair_log
from iggy_ref_server.partitions.append import JOURNAL_BYTES_MAX
from iggy_ref_server.partitions.reservation import RESERVATION_FILE, OffsetReservation
from iggy_ref_server.segments.errors import CorruptPartition
from iggy_ref_server.segments.file_names import SegmentFiles, index_path, log_path
from iggy_ref_server.segments.index import ENTRY_BYTES
from iggy_ref_server.segments.log_scanner import (
    HEADER_BYTES,
    IntactRun,
    LogChunk,
    LogScanner,
    count_claimed,
    count_unrecognizable,
    find_foreign_offset,
    find_intact_runs,
)
from iggy_ref_server.segments.segment import POSITION_MAX
from iggy_ref_server.segments.torn_tail import count_indexed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from iggy_ref_server.storage.interface import File, Storage


class IndexComparison:
    """Compares an index with its log, while the log is read.

    Args:
        index: the open index; None where there is none.
        size_bytes: the size of the index.
    """

    def __init__(self, index: File | None, size_bytes: int) -> None:
        self._index = index
        self._size_bytes = size_bytes
        self._count = 0
        self._wrong_from: int | None = None

    async def compare(self, chunk: LogChunk) -> None:
        """Compare the entries of the next messages of the log.

        Raises:
            StorageError: the index cannot be read.
        """
        if self._index is not None and self._wrong_from is None:
            entries = index_entries(
                chunk.messages, relative_offset=self._count, position=chunk.position
            )
            found = await self._index.read(len(entries), self._count * ENTRY_BYTES)
            # Missing entries at the end are a different problem than wrong entries.
            if found != entries[: len(found)]:
                self._wrong_from = self._count + first_difference(found, entries) // ENTRY_BYTES
        self._count += chunk.messages_count

    @property
    def is_consistent(self) -> bool:
        """Whether the existing entries agree with the log."""
        return self._wrong_from is None and self._size_bytes <= self._count * ENTRY_BYTES

    def problem(self) -> str:
        """Describe what is wrong; empty if the index is complete."""
        if self._index is None:
            return "is missing"
        if self._wrong_from is not None:
            return f"does not agree with the log from entry {self._wrong_from} on"
        count, rest = divmod(self._size_bytes, ENTRY_BYTES)
        if count < self._count:
            torn = f", and ends in {rest} bytes of a partial entry" if rest else ""
            return f"lacks the last {self._count - count} of {self._count} entries{torn}"
        surplus_bytes = self._size_bytes - self._count * ENTRY_BYTES
        return f"is {surplus_bytes} bytes too long" if surplus_bytes else ""


def first_difference(left: Buffer, right: Buffer) -> int:
    """Return the position of the first different byte, up to the length of the shorter one."""
    left, right = memoryview(left), memoryview(right)
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high) // 2
        if left[low : middle + 1] == right[low : middle + 1]:
            low = middle + 1
        else:
            high = middle
    return low


# Checks one segment: the whole log, and every entry of its index.


# No segment has more messages.
MESSAGES_MAX = POSITION_MAX // HEADER_BYTES


@record
class CheckedSegment:
    """The content of a segment's files.

    Attributes:
        directory: the partition's directory.
        next_start: the start offset of the next segment; None for the last one.
        runs: the intact messages that belong here.
        index_problem: what is wrong with the index; empty where nothing is.
        is_index_consistent: whether the index is right as far as it goes.
        indexed_count: messages behind the last one that can be read, of which the index tells.
        claimed_count: messages, at most, that stood there in whole and are damaged.
        unrecognizable_count: messages, at most, that stood there if these bytes were any.
        foreign_offset: the offset of the first message, if the log is that of another segment.
    """

    directory: str
    files: SegmentFiles
    next_start: int | None
    runs: tuple[IntactRun, ...]
    index_problem: str
    is_index_consistent: bool
    indexed_count: int = 0
    claimed_count: int = 0
    unrecognizable_count: int = 0
    foreign_offset: int | None = None

    @property
    def start_offset(self) -> int:
        """The start offset in the file name."""
        return self.files.start_offset

    @property
    def log_path(self) -> str:
        """The path of the log."""
        return log_path(self.directory, self.start_offset)

    @property
    def index_path(self) -> str:
        """The path of the index."""
        return index_path(self.directory, self.start_offset)

    @property
    def in_place(self) -> IntactRun | None:
        """The messages at position 0, if they start at the offset of the file name."""
        for run in self.runs[:1]:
            if (run.start, run.first_offset) == (0, self.start_offset):
                return run
        return None

    @property
    def known_end(self) -> int:
        """The offset behind the last message that the log holds or held, or the index tells of."""
        if self.foreign_offset is not None:
            return self.start_offset + MESSAGES_MAX  # it is unknown how many there were
        end = self.runs[-1].next_offset if self.runs else self.start_offset
        return end + max(self.indexed_count, self.claimed_count, self.unrecognizable_count)

    @property
    def is_intact(self) -> bool:
        """Whether the log is complete and undamaged."""
        end = 0 if self.in_place is None else self.in_place.end
        is_whole = len(self.runs) <= 1 and end == self.files.log_bytes
        return is_whole and not self.indexed_count

    @property
    def is_torn_only(self) -> bool:
        """Whether only the end of the log is damaged."""
        return not self.runs or (len(self.runs) == 1 and self.in_place is not None)

    @property
    def is_garbage_at_most(self) -> bool:
        """Whether nothing tells that messages stood in the bytes at the end of the last log."""
        is_last = self.next_start is None and self.foreign_offset is None
        is_known = self.indexed_count or self.claimed_count
        return is_last and self.is_torn_only and not is_known

    @property
    def damage(self) -> tuple[tuple[int, int], ...]:
        """The byte ranges that are not messages, or messages of the next segment."""
        edges = [0, *(edge for run in self.runs for edge in (run.start, run.end))]
        pairs = zip(edges[::2], [*edges[1::2], self.files.log_bytes], strict=True)
        return tuple((start, end) for start, end in pairs if start < end)

    @property
    def offset_ranges(self) -> tuple[tuple[int, int], ...]:
        """The existing offsets as half-open ranges; an empty range for an empty segment."""
        if self.runs:
            return tuple((run.first_offset, run.next_offset) for run in self.runs)
        is_kept = self.next_start is None or not self.files.log_bytes
        return ((self.start_offset, self.start_offset),) if is_kept else ()

    @property
    def lost(self) -> tuple[tuple[int, int], ...]:
        """The offsets that the log should have and has not, as far as that is known."""
        edges = [self.start_offset, *(edge for pair in self.offset_ranges for edge in pair)]
        last = self.known_end if self.next_start is None else self.next_start
        pairs = zip(edges[::2], [*edges[1::2], last], strict=True)
        return tuple((start, end) for start, end in pairs if start < end)

    def describe_damage(self) -> str:
        """Describe what is wrong with the log."""
        size_bytes = sum(end - start for start, end in self.damage)
        if self.foreign_offset is not None:
            text = (
                f"it begins with the message {self.foreign_offset}, so it is another segment's log"
            )
        elif not size_bytes:
            text = "it ends too early"
        elif self.is_torn_only and self.claimed_count:
            text = f"its last {size_bytes} bytes are damaged"
        elif self.is_torn_only:
            text = f"its last {size_bytes} bytes are not a complete message"
        else:
            places = ", ".join(f"{start} to {end}" for start, end in self.damage)
            text = f"{size_bytes} bytes are no messages ({places})" if places else "offsets jump"
        if self.foreign_offset is not None and self.next_start is None:
            text += f"; all messages from {self.start_offset} on are lost"
        elif self.lost and self.is_garbage_at_most:
            text += f"; the offsets {format_offset_ranges(self.lost)} are not given again"
        elif self.lost:
            text += f"; the messages {format_offset_ranges(self.lost)} are lost"
        return text


def format_offset_ranges(ranges: tuple[tuple[int, int], ...]) -> str:
    """Format half-open ranges of offsets."""
    return ", ".join(
        f"{start}" if end == start + 1 else f"{start} to {end - 1}" for start, end in ranges
    )


async def check_segment(
    storage: Storage,
    directory: str,
    files: SegmentFiles,
    next_start: int | None,
    advance: Callable[[int], None],
) -> CheckedSegment:
    """Read both files of a segment.

    Args:
        next_start: the start offset of the next segment; None for the last one.
        advance: called with the number of bytes that were read.

    Raises:
        StorageError: a file cannot be read.
    """
    log = await storage.open(log_path(directory, files.start_offset))
    index = None
    if files.index_bytes is not None:
        index = await storage.open(index_path(directory, files.start_offset))
    comparison = IndexComparison(index, files.index_bytes or 0)

    async def on_chunk(chunk: LogChunk) -> None:
        await comparison.compare(chunk)
        advance(len(chunk.messages))

    found = await find_intact_runs(log, files.start_offset, files.log_bytes, on_chunk)
    end = found[-1] if found else IntactRun(0, 0, files.start_offset, files.start_offset)
    tail = (log, end.end, end.next_offset, files.log_bytes)
    indexed_count = 0
    if index is not None:
        walk = LogScanner(log, end.end, end.next_offset, end.end)
        indexed_count = await count_indexed(index, files, walk, next_start)
    # Messages that the next segment has as well are left by a repair that was interrupted.
    runs = tuple(run for run in found if next_start is None or run.first_offset < next_start)
    return CheckedSegment(
        directory,
        files,
        next_start,
        runs,
        comparison.problem(),
        is_index_consistent=comparison.is_consistent,
        indexed_count=indexed_count,
        claimed_count=await count_claimed(*tail),
        unrecognizable_count=await count_unrecognizable(*tail),
        foreign_offset=None
        if found
        else await find_foreign_offset(log, files.start_offset, files.log_bytes),
    )


# Checks the sequence of a partition's segments: each one intact, and no offset missing.
#
# The segments are compared with each other and with the file ``reservation``.


# The most messages that can be acknowledged and not written: a journal of empty messages.
UNWRITTEN_MESSAGES_MAX = JOURNAL_BYTES_MAX // HEADER_BYTES

Ranges: TypeAlias = tuple[tuple[int, int], ...]


def last_offset(segments: Sequence[CheckedSegment]) -> int | None:
    """Return the highest offset; None where there never was a message."""
    ends = [end for segment in segments for _, end in segment.offset_ranges]
    return max(ends) - 1 if any(ends) else None


def gaps_between(
    segments: Sequence[CheckedSegment], reservation: OffsetReservation | None = None
) -> Ranges:
    """Find the missing offsets before, between and after the existing ones."""
    offset_ranges = [offset_range for segment in segments for offset_range in segment.offset_ranges]
    if reservation is not None and offset_ranges:
        first = min(reservation.removed_below, offset_ranges[0][0])
        last = max(reservation.stored_below, offset_ranges[-1][1], segments[-1].known_end)
        offset_ranges = [(first, first), *offset_ranges, (last, last)]
    return tuple(
        (left[1], right[0]) for left, right in pairwise(offset_ranges) if left[1] < right[0]
    )


async def check_segment_sequence(
    storage: Storage,
    directory: str,
    segments: Sequence[CheckedSegment],
    *,
    has_lost_file: bool = False,
) -> list[Finding]:
    """Check the segments of a partition, one by one and together.

    Args:
        has_lost_file: whether the file ``reservation`` existed and is missing.

    Raises:
        StorageError: a file cannot be read.
    """
    findings: list[Finding] = []
    reservation: OffsetReservation | None = None
    try:
        if has_lost_file:
            raise CorruptPartition(directory, f"the file `{RESERVATION_FILE}` is missing")
        reservation = await OffsetReservation.load(storage, directory)
    except CorruptPartition as damage:
        findings.append(_bad_reservation(directory, damage, segments, gaps_between(segments)))
    gaps = gaps_between(segments, reservation)
    findings += [finding for segment in segments for finding in _check_one(segment, gaps)]
    explained = {gap for segment in segments if not segment.is_intact for gap in segment.lost}
    unexplained = tuple(
        gap
        for gap in gaps
        if gap not in explained and not (reservation is not None and reservation.covers_gap(*gap))
    )
    if unexplained and reservation is not None:
        findings.append(_missing_messages(directory, unexplained, gaps))
    return findings


def _check_one(segment: CheckedSegment, gaps: Ranges) -> Iterator[Finding]:
    """Yield the findings of one segment."""
    end_offset = segment.offset_ranges[-1][1] if segment.offset_ranges else 0
    if segment.next_start is not None and end_offset > segment.next_start:
        yield Finding(
            segment.log_path,
            f"it extends to offset {end_offset - 1}, but the next segment starts at"
            f" {segment.next_start}",
            "it is unknown which of the two is right: move one of them away by hand",
            is_fatal=True,
        )
    elif not segment.is_intact:
        yield Finding(
            segment.log_path,
            segment.describe_damage(),
            _remedy(segment),
            partial(_repair_log, segment, gaps),
        )
    elif segment.index_problem:
        yield Finding(
            segment.index_path,
            f"the index {segment.index_problem}",
            "repair rebuilds it from the log, and a server does so when it needs it",
            partial(_rebuild_index, segment),
        )


def _remedy(segment: CheckedSegment) -> str:
    if segment.is_torn_only and (segment.is_garbage_at_most or not segment.lost):
        return "repair moves them to quarantine; a server truncates them when it starts"
    return (
        "repair moves invalid bytes to quarantine, and all other messages become readable; a backup"
        " may have what is lost"
    )


def _missing_messages(directory: str, missing: Ranges, gaps: Ranges) -> Finding:
    return Finding(
        directory,
        f"the messages {format_offset_ranges(missing)} are missing",
        "restore their segments from a backup; without one, repair records that they are lost, and"
        " all others become readable",
        partial(_note_gaps, directory, gaps),
    )


def _bad_reservation(
    directory: str, damage: CorruptPartition, segments: Sequence[CheckedSegment], gaps: Ranges
) -> Finding:
    return Finding(
        f"{directory}/{RESERVATION_FILE}",
        f"a server does not serve the partition: {damage.reason}",
        "repair writes a new one that skips all offsets that may have been assigned",
        partial(_replace_reservation, directory, segments, gaps),
    )


async def _repair_log(segment: CheckedSegment, gaps: Ranges, quarantine: Quarantine) -> None:
    await repair_log(quarantine, segment, gaps)


async def _rebuild_index(segment: CheckedSegment, quarantine: Quarantine) -> None:
    await rebuild_index(quarantine, segment)


async def _note_gaps(directory: str, gaps: Ranges, quarantine: Quarantine) -> None:
    await record_gaps(quarantine.storage, directory, gaps)


async def _replace_reservation(
    directory: str, segments: Sequence[CheckedSegment], gaps: Ranges, quarantine: Quarantine
) -> None:
    if await quarantine.storage.read_file(f"{directory}/{RESERVATION_FILE}") is not None:
        await quarantine.move(f"{directory}/{RESERVATION_FILE}")
    await record_gaps(quarantine.storage, directory, gaps)
    reservation = await OffsetReservation.load(quarantine.storage, directory)
    if segments:
        await reservation.record_removed(segments[0].start_offset)
        await reservation.record_synced(segments[-1].start_offset)
    last = last_offset(segments)
    await reservation.extend((0 if last is None else last + 1) + UNWRITTEN_MESSAGES_MAX)

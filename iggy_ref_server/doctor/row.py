"""Checks the sequence of a partition's segments: each one intact, and no offset missing.

The segments are compared with each other and with the file ``reservation``.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from iggy_ref_server.doctor.finding import Finding
from iggy_ref_server.doctor.segment import ExaminedSegment, offsets_text
from iggy_ref_server.doctor.surgery import mend_index, mend_log, note_gaps
from iggy_ref_server.partitions.appender import JOURNAL_BYTES_MAX
from iggy_ref_server.partitions.reservation import NAME, Reservation
from iggy_ref_server.segments.damage import CorruptPartition
from iggy_ref_server.segments.walk import HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from iggy_ref_server.doctor.quarantine import Quarantine
    from iggy_ref_server.storage.interface import Storage

__all__ = ["examine_row", "last_offset"]

# The most messages that can be acknowledged and not written: a journal of empty messages.
UNWRITTEN_MAX = JOURNAL_BYTES_MAX // HEADER_BYTES

Ranges: TypeAlias = tuple[tuple[int, int], ...]


def last_offset(segments: Sequence[ExaminedSegment]) -> int | None:
    """Return the highest offset; None where there never was a message."""
    ends = [end for segment in segments for _, end in segment.rows]
    return max(ends) - 1 if any(ends) else None


def gaps_between(
    segments: Sequence[ExaminedSegment], reservation: Reservation | None = None
) -> Ranges:
    """Find the missing offsets before, between and after the existing ones."""
    rows = [row for segment in segments for row in segment.rows]
    if reservation is not None and rows:
        first = min(reservation.removed_below, rows[0][0])
        last = max(reservation.stored_below, rows[-1][1], segments[-1].known_end)
        rows = [(first, first), *rows, (last, last)]
    return tuple((left[1], right[0]) for left, right in pairwise(rows) if left[1] < right[0])


async def examine_row(
    storage: Storage,
    directory: str,
    segments: Sequence[ExaminedSegment],
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
    reservation: Reservation | None = None
    try:
        if has_lost_file:
            raise CorruptPartition(directory, f"the file `{NAME}` is missing")
        reservation = await Reservation.load(storage, directory)
    except CorruptPartition as damage:
        findings.append(_bad_reservation(directory, damage, segments, gaps_between(segments)))
    gaps = gaps_between(segments, reservation)
    findings += [finding for segment in segments for finding in _judge(segment, gaps)]
    explained = {gap for segment in segments if not segment.is_sound for gap in segment.lost}
    unexplained = tuple(
        gap
        for gap in gaps
        if gap not in explained and not (reservation is not None and reservation.explains(*gap))
    )
    if unexplained and reservation is not None:
        findings.append(_missing(directory, unexplained, gaps))
    return findings


def _judge(segment: ExaminedSegment, gaps: Ranges) -> Iterator[Finding]:
    """Yield the findings of one segment."""
    reach = segment.rows[-1][1] if segment.rows else 0
    if segment.next_start is not None and reach > segment.next_start:
        yield Finding(
            segment.log_path,
            f"it extends to offset {reach - 1}, but the next segment starts at"
            f" {segment.next_start}",
            "it is unknown which of the two is right: move one of them away by hand",
            is_fatal=True,
        )
    elif not segment.is_sound:
        yield Finding(
            segment.log_path,
            segment.describe_damage(),
            _remedy(segment),
            partial(_mend_log, segment, gaps),
        )
    elif segment.index_problem:
        yield Finding(
            segment.index_path,
            f"the index {segment.index_problem}",
            "repair rebuilds it from the log, and a server does so when it needs it",
            partial(_mend_index, segment),
        )


def _remedy(segment: ExaminedSegment) -> str:
    if segment.is_torn_only and not segment.lost:
        return "repair moves them to quarantine; a server truncates them when it starts"
    return (
        "repair moves invalid bytes to quarantine, and all other messages become readable; a backup"
        " may have what is lost"
    )


def _missing(directory: str, missing: Ranges, gaps: Ranges) -> Finding:
    return Finding(
        directory,
        f"the messages {offsets_text(missing)} are missing",
        "restore their segments from a backup; without one, repair records that they are lost, and"
        " all others become readable",
        partial(_note_gaps, directory, gaps),
    )


def _bad_reservation(
    directory: str, damage: CorruptPartition, segments: Sequence[ExaminedSegment], gaps: Ranges
) -> Finding:
    return Finding(
        f"{directory}/{NAME}",
        f"a server does not serve the partition: {damage.reason}",
        "repair writes a new one that skips all offsets that may have been assigned",
        partial(_replace_reservation, directory, segments, gaps),
    )


async def _mend_log(segment: ExaminedSegment, gaps: Ranges, quarantine: Quarantine) -> None:
    await mend_log(quarantine, segment, gaps)


async def _mend_index(segment: ExaminedSegment, quarantine: Quarantine) -> None:
    await mend_index(quarantine, segment)


async def _note_gaps(directory: str, gaps: Ranges, quarantine: Quarantine) -> None:
    await note_gaps(quarantine.storage, directory, gaps)


async def _replace_reservation(
    directory: str, segments: Sequence[ExaminedSegment], gaps: Ranges, quarantine: Quarantine
) -> None:
    if await quarantine.storage.read_file(f"{directory}/{NAME}") is not None:
        await quarantine.take(f"{directory}/{NAME}")
    await note_gaps(quarantine.storage, directory, gaps)
    reservation = await Reservation.load(quarantine.storage, directory)
    if segments:
        await reservation.note_removed(segments[0].start_offset)
        await reservation.note_synced(segments[-1].start_offset)
    last = last_offset(segments)
    await reservation.extend((0 if last is None else last + 1) + UNWRITTEN_MAX)

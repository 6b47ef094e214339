"""Checks one partition: whose files these are, its segments, and its stored offsets."""

from __future__ import annotations

from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING

from iggy_ref_server.doctor.finding import Finding
from iggy_ref_server.doctor.offset_files import GivenOffsets, examine_offsets
from iggy_ref_server.doctor.owner import judge_owner, misplaced
from iggy_ref_server.doctor.row import examine_row, last_offset
from iggy_ref_server.doctor.segment import examine_segment
from iggy_ref_server.partitions import incarnation, offset_note, reservation
from iggy_ref_server.partitions.incarnation import find_home
from iggy_ref_server.partitions.ownership import Verdict, find_owner
from iggy_ref_server.partitions.reservation import Reservation
from iggy_ref_server.segments.damage import CorruptPartition
from iggy_ref_server.segments.names import INDEX_SUFFIX, LOG_SUFFIX, read_listing, start_offset_of

if TYPE_CHECKING:
    from collections.abc import Collection, Container

    from iggy_ref_server.doctor.case import Progress
    from iggy_ref_server.doctor.quarantine import Quarantine
    from iggy_ref_server.segments.names import Listing
    from iggy_ref_server.storage.interface import Entry, Storage

__all__ = ["examine_partition"]

OWN_NAMES = {incarnation.NAME, reservation.NAME, offset_note.NAME, "offsets"}


async def examine_partition(
    storage: Storage,
    directory: str,
    life: int,
    group_ids: Container[int],
    progress: Progress,
    *,
    was_opened: bool,
    known: Collection[str],
    is_loss_possible: bool,
) -> list[Finding]:
    """Check all files of a partition of the metadata.

    Args:
        life: the current number, from the metadata.
        group_ids: the consumer groups of the topic.
        was_opened: whether a server has opened that one before.
        known: the directories of all partitions.
        is_loss_possible: whether a power loss may have lost messages.

    Raises:
        StorageError: a file cannot be read.
    """
    entries = await storage.entries(directory)
    listing = read_listing(entries)
    progress.begin(
        directory, len(listing.segments), sum(files.log_bytes for files in listing.segments)
    )
    owner = await find_owner(storage, directory, life, was_opened=was_opened)
    if owner.verdict is Verdict.NO_NUMBER:
        home = await find_home(storage, directory, known)
        if home is not None:
            return [misplaced(directory, home)]
    finding, is_examined = judge_owner(directory, owner, life)
    if finding is not None and not is_examined:
        return [finding]
    starts = [files.start_offset for files in listing.segments]
    segments = [
        await examine_segment(storage, directory, files, next_start, progress.advance)
        for files, next_start in zip_longest(listing.segments, starts[1:])
    ]
    findings = [] if finding is None else [finding]
    findings += _strange_names(directory, entries, listing)
    findings += await examine_row(
        storage, directory, segments, has_lost_file=owner.verdict is Verdict.NO_RESERVATION
    )
    given = GivenOffsets(
        last=last_offset(segments),
        highest=await _highest_given(storage, directory),
        is_loss_possible=is_loss_possible,
    )
    return findings + await examine_offsets(storage, directory, given, group_ids)


async def _highest_given(storage: Storage, directory: str) -> int:
    """Return an offset above all recorded ones; 0 where the record is damaged."""
    try:
        return (await Reservation.load(storage, directory)).highest
    except CorruptPartition:
        return 0


# ---- names


def _strange_names(directory: str, entries: list[Entry], listing: Listing) -> list[Finding]:
    findings = [
        Finding(
            f"{directory}/{name}",
            "it is an index without a log file",
            "repair moves it to quarantine; a server would delete it when it starts",
            partial(_move_away, f"{directory}/{name}"),
        )
        for name in listing.orphans
    ]
    for entry in entries:
        is_segment = any(
            start_offset_of(entry.name, suffix) is not None for suffix in (LOG_SUFFIX, INDEX_SUFFIX)
        )
        if entry.name not in OWN_NAMES and not is_segment:
            findings.append(
                Finding(
                    f"{directory}/{entry.name}", "it is not a file of a server", "it is not changed"
                )
            )
    return findings


async def _move_away(path: str, quarantine: Quarantine) -> None:
    await quarantine.take(path)

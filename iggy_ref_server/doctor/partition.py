"""Examine one partition: whose files these are, its row of segments, and its stored offsets.

Owns the question whose files these are, and the order of the others.
"""

from __future__ import annotations

from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING

from iggy_ref_server.doctor.finding import Finding
from iggy_ref_server.doctor.offset_files import examine_offsets
from iggy_ref_server.doctor.row import examine_row, last_offset
from iggy_ref_server.doctor.segment import examine_segment
from iggy_ref_server.partitions import incarnation, reservation
from iggy_ref_server.partitions.incarnation import IMPORTED, read_incarnation, write_incarnation
from iggy_ref_server.partitions.opening import make_empty
from iggy_ref_server.segments.names import INDEX_SUFFIX, LOG_SUFFIX, read_listing, start_offset_of
from iggy_ref_server.segments.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Container

    from iggy_ref_server.doctor.case import Progress
    from iggy_ref_server.doctor.quarantine import Quarantine
    from iggy_ref_server.segments.names import Listing
    from iggy_ref_server.storage.interface import Entry, Storage

__all__ = ["examine_partition"]

OWN_NAMES = {incarnation.NAME, reservation.NAME, "offsets"}


async def examine_partition(
    storage: Storage,
    directory: str,
    life: int,
    group_ids: Container[int],
    progress: Progress,
) -> list[Finding]:
    """Read all files of a partition that the metadata know.

    Args:
        storage: the data directory.
        directory: the partition's directory.
        life: the number of its present life, from the metadata.
        group_ids: the consumer groups of the topic.
        progress: is told how far it is.

    Raises:
        StorageError: a file cannot be read.
    """
    entries = await storage.entries(directory)
    listing = read_listing(entries)
    progress.begin(
        directory, len(listing.segments), sum(files.log_bytes for files in listing.segments)
    )
    if not entries:
        return [_without_files(directory, life)]
    found = await read_incarnation(storage, directory)
    if found is not None and found != life:
        return [_of_another_life(directory, found, life)]
    starts = [files.start_offset for files in listing.segments]
    segments = [
        await examine_segment(storage, directory, files, next_start, progress.advance)
        for files, next_start in zip_longest(listing.segments, starts[1:])
    ]
    findings = [] if found is not None else [_unknown_life(directory, life)]
    findings += _strange_names(directory, entries, listing)
    if not segments:
        findings.append(_without_segments(directory))
    findings += await examine_row(storage, directory, segments)
    return findings + await examine_offsets(storage, directory, last_offset(segments), group_ids)


# ---- whose files


def _without_files(directory: str, life: int) -> Finding:
    return Finding(
        directory,
        "the partition has no files",
        "repair begins it empty, as a server would; if it held messages, restore them from a"
        " backup first",
        partial(_begin_empty, directory, life),
    )


def _without_segments(directory: str) -> Finding:
    return Finding(
        directory,
        "the partition has no segments",
        "repair makes an empty one, as a server would; if there were messages, restore them from a"
        " backup first",
        partial(_make_segment, directory),
    )


def _of_another_life(directory: str, found: int, life: int) -> Finding:
    number = "they have no number" if found == IMPORTED else f"their number is {found}"
    return Finding(
        directory,
        f"the files belong to a partition that was deleted or purged: {number} instead of {life}",
        "repair moves them to quarantine and begins the partition empty; a server would delete"
        " them when it starts",
        partial(_begin_anew, directory, life),
    )


def _unknown_life(directory: str, life: int) -> Finding:
    return Finding(
        f"{directory}/{incarnation.NAME}",
        "it does not hold a number, so a server puts the partition aside",
        "repair takes the files for those of the present partition",
        partial(_set_life, directory, life),
    )


async def _begin_empty(directory: str, life: int, quarantine: Quarantine) -> None:
    await make_empty(quarantine.storage, directory, life)


async def _make_segment(directory: str, quarantine: Quarantine) -> None:
    await Segment(directory, 0).create(quarantine.storage)


async def _begin_anew(directory: str, life: int, quarantine: Quarantine) -> None:
    await quarantine.take(directory)
    await make_empty(quarantine.storage, directory, life)


async def _set_life(directory: str, life: int, quarantine: Quarantine) -> None:
    await quarantine.take_copy(f"{directory}/{incarnation.NAME}")
    await write_incarnation(quarantine.storage, directory, life)


# ---- names


def _strange_names(directory: str, entries: list[Entry], listing: Listing) -> list[Finding]:
    findings = [
        Finding(
            f"{directory}/{name}",
            "it is an index without a log",
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
                Finding(f"{directory}/{entry.name}", "no server made it", "it is left where it is")
            )
    return findings


async def _move_away(path: str, quarantine: Quarantine) -> None:
    await quarantine.take(path)

"""Mend the files of a segment: cut out what is no message, and make the index anew.

What is intact behind damage gets a segment of its own, with a name that says its first offset.
The order of the steps lets a repair be interrupted anywhere and begun again: copies of what is cut
come first, new segments appear whole and from the last to the first, and the old log is cut when
nothing depends on its tail any more.

Owns that order. What is wrong was found elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol import index_entries
from iggy_ref_server.partitions.reservation import Reservation
from iggy_ref_server.segments.index import ENTRY_BYTES
from iggy_ref_server.segments.names import index_path, log_path
from iggy_ref_server.segments.salvage import copy_bytes
from iggy_ref_server.segments.walk import LogWalk

if TYPE_CHECKING:
    from collections.abc import Collection

    from iggy_ref_server.doctor.quarantine import Quarantine
    from iggy_ref_server.doctor.segment import ExaminedSegment
    from iggy_ref_server.segments.intact import Run
    from iggy_ref_server.storage.interface import File, Storage

__all__ = ["mend_index", "mend_log", "note_gaps"]


async def note_gaps(storage: Storage, directory: str, gaps: Collection[tuple[int, int]]) -> None:
    """Have a partition know which of its offsets are lost for good.

    Raises:
        StorageError: it does not.
    """
    reservation = await Reservation.load(storage, directory)
    await reservation.note_gaps(gaps)
    await reservation.skip_to(max((end for _, end in gaps), default=0))


async def mend_log(
    quarantine: Quarantine, segment: ExaminedSegment, gaps: Collection[tuple[int, int]]
) -> None:
    """Keep all intact messages of a damaged log, and move the rest to quarantine.

    Args:
        quarantine: where it goes.
        segment: what was found.
        gaps: all offsets that the partition lacks when it is mended.

    Raises:
        StorageError: it is not mended; the next repair goes on.
    """
    storage = quarantine.storage
    log = await storage.open(segment.log_path)
    for start, end in segment.damage:
        await quarantine.take_bytes(log, start, end)
    await note_gaps(storage, segment.directory, gaps)
    for run in reversed(segment.runs):
        if run is not segment.in_place:
            await _separate(quarantine, segment, log, run)
    await _leave_in_place(quarantine, segment, log)


async def mend_index(quarantine: Quarantine, segment: ExaminedSegment) -> None:
    """Make the index of a sound log right.

    Raises:
        StorageError: it is not; the next repair goes on.
    """
    if segment.files.index_bytes is not None and not segment.is_index_right:
        await quarantine.take(segment.index_path)
    await _make_index(quarantine, segment.directory, segment.start_offset)


async def _separate(quarantine: Quarantine, segment: ExaminedSegment, log: File, run: Run) -> None:
    """Give a run a segment of its own."""
    storage = quarantine.storage
    target = log_path(segment.directory, run.first_offset)
    prepared = await quarantine.workbench(target)
    copy = await storage.open(prepared, create=True)
    await copy_bytes(log, run.start, run.end, copy)
    await storage.rename(prepared, target)
    if target == segment.log_path and segment.files.index_bytes is not None:
        await quarantine.take(segment.index_path)
    await _make_index(quarantine, segment.directory, run.first_offset)


async def _leave_in_place(quarantine: Quarantine, segment: ExaminedSegment, log: File) -> None:
    """Cut the old log to what may stay under its name, or move all of it away."""
    kept = segment.in_place
    if kept is None and any(run.first_offset == segment.start_offset for run in segment.runs):
        return  # a segment of that name was made anew already
    is_index_good = segment.is_torn_only and segment.is_index_right
    if segment.files.index_bytes is not None and not is_index_good:
        await quarantine.take(segment.index_path)
    # An empty last segment remembers which offset comes next.
    if kept is None and (segment.runs or segment.next_start is not None):
        await quarantine.take(segment.log_path)
        return
    kept_bytes = 0 if kept is None else kept.end
    await log.truncate(kept_bytes)
    await log.sync()
    await _make_index(quarantine, segment.directory, segment.start_offset)


async def _make_index(quarantine: Quarantine, directory: str, start_offset: int) -> None:
    """Make the index of a sound log, all of it or none."""
    storage, target = quarantine.storage, index_path(directory, start_offset)
    log = await storage.open(log_path(directory, start_offset))
    prepared = await quarantine.workbench(target)
    index = await storage.open(prepared, create=True)
    walk, count = LogWalk(log, 0, start_offset, log.size()), 0
    while (stretch := await walk.next()) is not None:
        entries = index_entries(stretch.messages, relative_offset=count, position=stretch.position)
        await index.write([entries], count * ENTRY_BYTES)
        count += stretch.messages_count
    await index.sync()
    await storage.rename(prepared, target)

"""Repairs the files of a segment: cuts out invalid bytes, and rebuilds the index.

Intact messages after a damaged range get their own segment, named by their first offset. A repair
can be interrupted at any step and run again. So the steps have this sequence: copy the bytes that
will be cut; create the new segments, complete, from the last to the first; truncate the old log
when nothing depends on its tail.
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
    """Record in the partition which offsets are lost.

    Raises:
        StorageError: they are not recorded.
    """
    reservation = await Reservation.load(storage, directory)
    await reservation.note_gaps(gaps)
    await reservation.skip_to(max((end for _, end in gaps), default=0))


async def mend_log(
    quarantine: Quarantine, segment: ExaminedSegment, gaps: Collection[tuple[int, int]]
) -> None:
    """Keep all intact messages of a damaged log, and move the rest to quarantine.

    Args:
        gaps: all offsets that the partition lacks after the repair.

    Raises:
        StorageError: the log is not repaired; the next repair continues.
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
    """Rebuild the index of an intact log.

    Raises:
        StorageError: it is not rebuilt; the next repair continues.
    """
    if segment.files.index_bytes is not None and not segment.is_index_right:
        await quarantine.take(segment.index_path)
    await _make_index(quarantine, segment.directory, segment.start_offset)


async def _separate(quarantine: Quarantine, segment: ExaminedSegment, log: File, run: Run) -> None:
    """Copy a run of messages to its own segment."""
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
    """Truncate the old log to the messages that belong there, or quarantine all of it."""
    kept = segment.in_place
    if kept is None and any(run.first_offset == segment.start_offset for run in segment.runs):
        return  # the new segment already has that name
    is_index_good = segment.is_torn_only and segment.is_index_right
    if segment.files.index_bytes is not None and not is_index_good:
        await quarantine.take(segment.index_path)
    # An empty last segment keeps the next offset in its name.
    if kept is None and (segment.runs or segment.next_start is not None):
        await quarantine.take(segment.log_path)
        return
    kept_bytes = 0 if kept is None else kept.end
    await log.truncate(kept_bytes)
    await log.sync()
    await _make_index(quarantine, segment.directory, segment.start_offset)


async def _make_index(quarantine: Quarantine, directory: str, start_offset: int) -> None:
    """Write the index of an intact log to a temporary file, and rename it."""
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

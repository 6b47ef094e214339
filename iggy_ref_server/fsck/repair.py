"""Repairs the files of a segment: cuts out invalid bytes, and rebuilds the index.

Intact messages after a damaged range get their own segment, named by their first offset. A repair
can be interrupted at any step and run again. So the steps have this sequence: copy the bytes that
will be cut; create the new segments, complete, from the last to the first; truncate the old log
when nothing depends on its tail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol import index_entries
from iggy_ref_server.partitions.reservation import OffsetReservation
from iggy_ref_server.segments.file_names import index_path, log_path
from iggy_ref_server.segments.index import ENTRY_BYTES
from iggy_ref_server.segments.log_scanner import IntactRun, LogScanner
from iggy_ref_server.segments.recovery import copy_bytes

if TYPE_CHECKING:
    from collections.abc import Collection

    from iggy_ref_server.fsck.context import Quarantine
    from iggy_ref_server.fsck.segments import CheckedSegment
    from iggy_ref_server.storage.interface import File, Storage


async def record_gaps(storage: Storage, directory: str, gaps: Collection[tuple[int, int]]) -> None:
    """Record in the partition which offsets are lost.

    Raises:
        StorageError: they are not recorded.
    """
    reservation = await OffsetReservation.load(storage, directory)
    await reservation.record_gaps(gaps)
    await reservation.skip_to(max((end for _, end in gaps), default=0))


async def repair_log(
    quarantine: Quarantine, segment: CheckedSegment, gaps: Collection[tuple[int, int]]
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
        await quarantine.copy_range(log, start, end)
    await record_gaps(storage, segment.directory, gaps)
    for run in reversed(segment.runs):
        if run is not segment.in_place:
            await _move_run_to_own_segment(quarantine, segment, log, run)
    await _truncate_or_quarantine(quarantine, segment, log)


async def rebuild_index(quarantine: Quarantine, segment: CheckedSegment) -> None:
    """Rebuild the index of an intact log.

    Raises:
        StorageError: it is not rebuilt; the next repair continues.
    """
    if segment.files.index_bytes is not None and not segment.is_index_consistent:
        await quarantine.move(segment.index_path)
    await _write_index(quarantine, segment.directory, segment.start_offset)


async def _move_run_to_own_segment(
    quarantine: Quarantine, segment: CheckedSegment, log: File, run: IntactRun
) -> None:
    """Copy a run of messages to its own segment."""
    storage = quarantine.storage
    target = log_path(segment.directory, run.first_offset)
    staged = await quarantine.staging_path(target)
    copy = await storage.open(staged, create=True)
    await copy_bytes(log, run.start, run.end, copy)
    await storage.rename(staged, target)
    if target == segment.log_path and segment.files.index_bytes is not None:
        await quarantine.move(segment.index_path)
    await _write_index(quarantine, segment.directory, run.first_offset)


async def _truncate_or_quarantine(
    quarantine: Quarantine, segment: CheckedSegment, log: File
) -> None:
    """Truncate the old log to the messages that belong there, or quarantine all of it."""
    kept = segment.in_place
    if kept is None and any(run.first_offset == segment.start_offset for run in segment.runs):
        return  # the new segment already has that name
    is_index_good = segment.is_torn_only and segment.is_index_consistent
    if segment.files.index_bytes is not None and not is_index_good:
        await quarantine.move(segment.index_path)
    # An empty last segment keeps the next offset in its name.
    if kept is None and (segment.runs or segment.next_start is not None):
        await quarantine.move(segment.log_path)
        return
    kept_bytes = 0 if kept is None else kept.end
    await log.truncate(kept_bytes)
    await log.sync()
    await _write_index(quarantine, segment.directory, segment.start_offset)


async def _write_index(quarantine: Quarantine, directory: str, start_offset: int) -> None:
    """Write the index of an intact log to a temporary file, and rename it."""
    storage, target = quarantine.storage, index_path(directory, start_offset)
    log = await storage.open(log_path(directory, start_offset))
    staged = await quarantine.staging_path(target)
    index = await storage.open(staged, create=True)
    walk, count = LogScanner(log, 0, start_offset, log.size()), 0
    while (chunk := await walk.next()) is not None:
        entries = index_entries(chunk.messages, relative_offset=count, position=chunk.position)
        await index.write([entries], count * ENTRY_BYTES)
        count += chunk.messages_count
    await index.sync()
    await storage.rename(staged, target)

"""Recovers a segment after a crash: the log is the truth, and a torn tail is truncated.

A process may die during a write. Then the end of the log may be torn, and the index may lag behind,
run ahead, end inside an entry or be missing. Recovery finds the last index entry that matches the
log and scans the log from there on. It verifies size, offset and checksum of every message, adds
the missing index entries, and truncates both files behind the last intact message. So the work
depends on the lag of the index, not on the size of the log. Bytes behind that message are truncated
only if they are a torn tail (``tail``); otherwise the segment is damaged.

Index entries that cannot be written stay in memory, so that a partition can be opened while its
disk is full. Intact messages of a batch that was never acknowledged are kept.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from iggy_protocol import index_entries
from iggy_ref_server.segments.damage import CorruptPartition, SegmentSplit
from iggy_ref_server.segments.index import ENTRY, ENTRY_BYTES, IndexEntry
from iggy_ref_server.segments.names import index_path, log_path
from iggy_ref_server.segments.salvage import KEPT_PATH, split_log
from iggy_ref_server.segments.segment import Segment
from iggy_ref_server.segments.tail import Kept, damage_of, look_behind
from iggy_ref_server.segments.walk import MESSAGE_BYTES_MAX, OFFSET_MAX, LogWalk, is_message
from iggy_ref_server.storage.interface import StorageError

if TYPE_CHECKING:
    from iggy_ref_server.segments.names import SegmentFiles
    from iggy_ref_server.segments.tail import Ledger, Tail
    from iggy_ref_server.storage.interface import File, Storage

__all__ = ["mend_segment", "rebuild_index", "verify_segment"]

_logger = logging.getLogger(__name__)


class Known(NamedTuple):
    """How far a log is known to be good: messages and bytes."""

    messages_count: int
    end_position: int


NOTHING = Known(0, 0)

# More entries than this are written while an index is made anew.
UNWRITTEN_BYTES_MAX = 1 << 20


async def mend_segment(
    storage: Storage,
    directory: str,
    files: SegmentFiles,
    *,
    next_start: int | None,
    may_be_torn: bool | None = None,
    kept: Kept = Kept.EVERYTHING,
    ledger: Ledger | None = None,
) -> Segment:
    """Check a segment found on disk, and recover it after a crash.

    Args:
        storage: where it lies.
        directory: the partition's directory.
        files: what the listing says.
        next_start: where the next segment starts, None for the last one.
        may_be_torn: whether messages at the end may be missing. By default only in the last
            segment; so it may be in others that had not reached the disk yet.
        kept: what the files are known to hold of all that was written.
        ledger: knows which offsets are lost, and is told.

    Returns:
        The segment; its files are not open, and the newest index entries may be in memory only.

    Raises:
        CorruptPartition: a message before the end is damaged.
        SegmentSplit: messages behind damage are in segments of their own now.
        StorageError: a file cannot be read or changed.
    """
    is_expected = next_start is None if may_be_torn is None else may_be_torn
    # A failed write that was not truncated may have left whole messages behind the end. Their
    # offsets belong to the next segment.
    end_offset = next_start if is_expected else None
    if next_start is not None:
        index = await agreeing_sizes(storage, directory, files, end_offset)
        if index is not None:
            return await describe(directory, files.start_offset, files.log_bytes, index, b"")
    log = await storage.open(log_path(directory, files.start_offset))
    trusted = await find_trusted(storage, directory, log, files, end_offset)
    start, offset = trusted.end_position, files.start_offset + trusted.messages_count
    walk = LogWalk(log, start, offset, files.log_bytes, end_offset=end_offset)
    await walk.finish()
    found = await found_index(storage, directory, files)
    tail = await look_behind(log, found, files, walk, end_offset)
    reason = damage_of(tail, walk, kept, ledger, next_start=next_start, may_be_torn=is_expected)
    if reason:
        raise CorruptPartition(directory, f"{unreadable(log, walk)}, and {reason}")
    if ledger is not None:
        await note_lost(storage, directory, log, walk, tail, ledger, is_last=next_start is None)
    if tail.surplus_bytes:
        await cut(log, walk, files.log_bytes)
    return await catch_up(storage, directory, files.start_offset, log, trusted, walk.position)


async def catch_up(
    storage: Storage, directory: str, start_offset: int, log: File, trusted: Known, log_bytes: int
) -> Segment:
    """Have the index of a sound log tell of all its messages, and describe the segment.

    Args:
        storage: where they lie.
        directory: the partition's directory.
        start_offset: offset of the first message.
        log: the open log.
        trusted: how far the index is right.
        log_bytes: how long the log is.
    """
    index = await storage.open(index_path(directory, start_offset), create=True)
    unwritten = await make_index(log, index, start_offset, trusted, until=log_bytes)
    if unwritten and await is_saved(index, unwritten):
        unwritten = b""
    return await describe(directory, start_offset, log_bytes, index, unwritten)


async def found_index(storage: Storage, directory: str, files: SegmentFiles) -> File | None:
    """Open the index of a segment, if there is one."""
    if files.index_bytes is None:
        return None
    return await storage.open(index_path(directory, files.start_offset))


async def note_lost(
    storage: Storage,
    directory: str,
    log: File,
    walk: LogWalk,
    tail: Tail,
    ledger: Ledger,
    *,
    is_last: bool,
) -> None:
    """Keep intact messages behind a hole, and record lost offsets so that they are not reused.

    Raises:
        SegmentSplit: the row of segments has changed.
        StorageError: nothing is cut yet.
    """
    lost_end = walk.next_offset + tail.indexed_count
    if tail.runs:
        edges = [walk.next_offset, *(edge for run in tail.runs for edge in run[2:])]
        gaps = [gap for gap in zip(edges[::2], edges[1::2], strict=False) if gap[0] < gap[1]]
        await ledger.note_gaps(gaps)
        _logger.error(
            "%s: the power failed; intact messages behind the damage moved to new segments,"
            " the offsets %s are lost, and the damaged bytes are kept in %s",
            unreadable(log, walk),
            ", ".join(f"{start} to {end - 1}" for start, end in gaps),
            KEPT_PATH,
        )
        await split_log(storage, directory, log, walk.position, tail.runs)
        raise SegmentSplit
    if tail.indexed_count and is_last:
        _logger.error(
            "%s: the power failed, the offsets %d to %d are lost",
            unreadable(log, walk),
            walk.next_offset,
            lost_end - 1,
        )
        await ledger.skip_to(lost_end)


def unreadable(log: File, walk: LogWalk) -> str:
    """Say where a log cannot be read any more."""
    return (
        f"{log.path} is damaged at byte {walk.position}: the message with offset "
        f"{walk.next_offset} cannot be read"
    )


async def cut(log: File, walk: LogWalk, log_bytes: int) -> None:
    """Cut a log behind its last good message."""
    _logger.warning(
        "truncated %d bytes of %s behind offset %d: they are not a whole message",
        log_bytes - walk.position,
        log.path,
        walk.next_offset - 1,
    )
    await log.truncate(walk.position)


async def is_saved(index: File, entries: bytes) -> bool:
    """Write entries to the end of an index; tell whether that went well."""
    size = index.size()
    try:
        await index.write([entries], size)
    except StorageError as error:
        _logger.warning(
            "an index is not written, its entries stay in memory until a later write: %s", error
        )
        await index.truncate(size)
        return False
    return True


async def agreeing_sizes(
    storage: Storage, directory: str, files: SegmentFiles, end_offset: int | None
) -> File | None:
    """Open the index of a sealed segment if its last entry accounts for the whole log."""
    size = files.index_bytes
    if size is None or size % ENTRY_BYTES or size // ENTRY_BYTES > room(files, end_offset):
        return None
    index = await storage.open(index_path(directory, files.start_offset))
    count = size // ENTRY_BYTES
    last = await read_entry(index, count - 1)
    agrees = last.end_position == files.log_bytes and last.relative_offset == max(count - 1, 0)
    return index if agrees else None


def room(files: SegmentFiles, end_offset: int | None) -> int:
    """Tell how many messages a segment can hold before the next one starts."""
    return OFFSET_MAX if end_offset is None else end_offset - files.start_offset


async def find_trusted(
    storage: Storage, directory: str, log: File, files: SegmentFiles, end_offset: int | None
) -> Known:
    """Find an index entry near the end that agrees with the log, in ever longer steps back."""
    count = min((files.index_bytes or 0) // ENTRY_BYTES, room(files, end_offset))
    if not count:
        return NOTHING
    index = await storage.open(index_path(directory, files.start_offset))
    back = 1
    while back <= count:
        ordinal = count - back
        before, entry = await read_entry(index, ordinal - 1), await read_entry(index, ordinal)
        if entry.relative_offset == ordinal and await agrees(log, files, before, entry):
            return Known(ordinal + 1, entry.end_position)
        back *= 2
    return NOTHING


async def agrees(log: File, files: SegmentFiles, before: IndexEntry, entry: IndexEntry) -> bool:
    """Tell whether the log holds the message of an entry where the entry says."""
    size = entry.end_position - before.end_position
    if not 0 < size <= min(MESSAGE_BYTES_MAX, files.log_bytes - before.end_position):
        return False
    return is_message(
        await log.read(size, before.end_position),
        offset=files.start_offset + entry.relative_offset,
        timestamp_us=entry.timestamp_us,
    )


async def make_index(
    log: File, index: File, start_offset: int, known: Known, *, until: int
) -> bytes:
    """Make the entries of all messages between the known ones and a place in the log.

    Returns:
        Those that are not written to the file: the last ones, and few.
    """
    walk = LogWalk(log, known.end_position, start_offset + known.messages_count, until)
    written = known.messages_count
    entries = bytearray()
    while (stretch := await walk.next()) is not None:
        count = written + len(entries) // ENTRY_BYTES
        entries += index_entries(stretch.messages, relative_offset=count, position=stretch.position)
        if len(entries) > UNWRITTEN_BYTES_MAX:
            await index.write([bytes(entries)], written * ENTRY_BYTES)
            written += len(entries) // ENTRY_BYTES
            entries.clear()
    if index.size() != written * ENTRY_BYTES:
        await index.truncate(written * ENTRY_BYTES)
    return bytes(entries)


async def describe(
    directory: str, start_offset: int, size_bytes: int, index: File, unwritten: bytes
) -> Segment:
    """Describe a segment whose files agree."""
    written = index.size() // ENTRY_BYTES
    first = await read_entry(index, 0)
    last = await read_entry(index, written - 1)
    if unwritten:
        first = first if written else entry_of(unwritten[:ENTRY_BYTES])
        last = entry_of(unwritten[-ENTRY_BYTES:])
    return Segment.existing(
        directory,
        start_offset,
        size_bytes=size_bytes,
        first_timestamp_us=first.timestamp_us,
        last_timestamp_us=last.timestamp_us,
        indexed_count=written,
        unwritten_entries=unwritten,
    )


async def read_entry(index: File, ordinal: int) -> IndexEntry:
    """Read an entry as it is; before the first one and behind the last lies nothing but zeros."""
    data = await index.read(ENTRY_BYTES, ordinal * ENTRY_BYTES) if ordinal >= 0 else b""
    return entry_of(data if len(data) == ENTRY_BYTES else bytes(ENTRY_BYTES))


def entry_of(data: bytes) -> IndexEntry:
    """Unpack an entry as it is."""
    return IndexEntry._make(ENTRY.unpack(data))


async def rebuild_index(segment: Segment) -> None:
    """Make the index of an open segment anew, from the part of the log that is written.

    Raises:
        CorruptPartition: the log does not hold what was written to it.
        StorageError: a file cannot be read or written.
    """
    log, index = segment.log, segment.index.file  # others may close the segment meanwhile
    assert log is not None
    assert index is not None
    await verify(log, segment)
    unwritten = await make_index(
        log, index, segment.start_offset, NOTHING, until=segment.written_bytes
    )
    await index.write([unwritten], segment.written_count * ENTRY_BYTES - len(unwritten))
    segment.index.written_count = segment.written_count
    segment.index.reset()


async def verify_segment(storage: Storage, segment: Segment) -> None:
    """Check every message of a segment.

    Raises:
        CorruptPartition: one is damaged.
        StorageError: the log cannot be read.
    """
    await verify(await storage.open(segment.log_path), segment)


async def verify(log: File, segment: Segment) -> None:
    """Walk the written part of a log."""
    until = segment.written_bytes
    walk = LogWalk(log, 0, segment.start_offset, until)
    await walk.finish()
    if walk.position != until:
        raise CorruptPartition(segment.directory, unreadable(log, walk))
    segment.checked.add(0, until)

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
from iggy_ref_server.segments.errors import CorruptPartition, SegmentSplit
from iggy_ref_server.segments.file_names import SegmentFiles, index_path, log_path
from iggy_ref_server.segments.index import ENTRY, ENTRY_BYTES, IndexEntry
from iggy_ref_server.segments.log_scanner import (
    MESSAGE_BYTES_MAX,
    NO_END_OFFSET,
    IntactRun,
    LogScanner,
    is_beginning,
    is_message,
)
from iggy_ref_server.segments.segment import Segment
from iggy_ref_server.segments.torn_tail import (
    LogTail,
    OffsetHistory,
    SurvivingWrites,
    explain_damage,
    inspect_tail,
)
from iggy_ref_server.storage.interface import File, Storage, StorageError, parent_path

if TYPE_CHECKING:
    from collections.abc import Sequence


LOGGER = logging.getLogger(__name__)


# Keeps the intact messages behind a hole that a power loss left in a log.
#
# A power loss may keep any part of the unsynced bytes: a hole, and whole messages behind it. These
# messages move to new segments, and the damaged bytes are copied to quarantine. The steps can be
# interrupted anywhere and repeated: copies come first, new segments appear whole and from the last
# to the first, and the old log is truncated when nothing depends on its tail any more.


COPY_BYTES = 1 << 20
SALVAGE_PATH = "quarantine/at-start"


async def split_log(
    storage: Storage, directory: str, log: File, end: int, runs: Sequence[IntactRun]
) -> None:
    """Give the messages behind the good part of a log segments of their own, and cut the log.

    Args:
        storage: the data directory.
        directory: the partition's directory.
        log: the open log.
        end: byte behind its last good message.
        runs: the intact messages behind that, in order.

    Raises:
        StorageError: it is not done; the next start goes on.
    """
    edges = [end, *(edge for run in runs for edge in (run.start, run.end)), log.size()]
    for first, last in zip(edges[::2], edges[1::2], strict=True):
        if first < last:
            await keep_bytes(storage, log, first, last)
    for run in reversed(runs):
        prepared = f"{SALVAGE_PATH}/unfinished/{log_path(directory, run.first_offset)}"
        await _copy_to_file(storage, log, run.start, run.end, prepared)
        await storage.rename(prepared, log_path(directory, run.first_offset))
    await log.truncate(end)
    await log.sync()


async def keep_bytes(storage: Storage, log: File, start: int, end: int) -> str:
    """Copy bytes of a log to quarantine, before they are cut; return the name of the copy.

    Raises:
        StorageError: they are not copied.
    """
    target = f"{SALVAGE_PATH}/{log.path}.bytes-{start}-{end}"
    await _copy_to_file(storage, log, start, end, target)
    return target


async def _copy_to_file(storage: Storage, log: File, start: int, end: int, target: str) -> None:
    await storage.make_directories(parent_path(target))
    await storage.remove(target)
    await copy_bytes(log, start, end, await storage.open(target, create=True))
    await storage.sync_directory(parent_path(target))


async def copy_bytes(source: File, start: int, end: int, target: File) -> None:
    """Copy a stretch of a file to the beginning of another, and bring it to the disk.

    Raises:
        StorageError: any part of it was copied.
    """
    position = start
    while position < end:
        piece = await source.read(min(COPY_BYTES, end - position), position)
        if not piece:
            break
        await target.write([piece], position - start)
        position += len(piece)
    await target.sync()


class VerifiedPrefix(NamedTuple):
    """How far a log is known to be good: messages and bytes."""

    messages_count: int
    end_position: int


NOTHING_VERIFIED = VerifiedPrefix(0, 0)

# More entries than this are written while an index is made anew.
UNWRITTEN_BYTES_MAX = 1 << 20


async def recover_segment(
    storage: Storage,
    directory: str,
    files: SegmentFiles,
    *,
    next_start: int | None,
    may_be_torn: bool | None = None,
    kept: SurvivingWrites = SurvivingWrites.EVERYTHING,
    history: OffsetHistory | None = None,
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
        history: knows which offsets are lost, and is told.

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
        index = await open_matching_index(storage, directory, files, end_offset)
        if index is not None:
            return await describe_segment(
                directory, files.start_offset, files.log_bytes, index, b""
            )
    log = await storage.open(log_path(directory, files.start_offset))
    trusted = await find_verified_prefix(storage, directory, log, files, end_offset)
    start, offset = trusted.end_position, files.start_offset + trusted.messages_count
    log_scanner = LogScanner(log, start, offset, files.log_bytes, end_offset=end_offset)
    await log_scanner.finish()
    found = await open_index_if_present(storage, directory, files)
    tail = await inspect_tail(log, found, files, log_scanner, end_offset)
    reason = explain_damage(
        tail, log_scanner, kept, history, next_start=next_start, may_be_torn=is_expected
    )
    if reason:
        raise CorruptPartition(directory, f"{describe_unreadable(log, log_scanner)}, and {reason}")
    if history is not None:
        await record_lost_messages(
            storage, directory, log, log_scanner, tail, history, is_last=next_start is None
        )
    if tail.surplus_bytes:
        await truncate_log(storage, log, log_scanner, files.log_bytes)
    return await catch_up(
        storage, directory, files.start_offset, log, trusted, log_scanner.position
    )


async def catch_up(
    storage: Storage,
    directory: str,
    start_offset: int,
    log: File,
    trusted: VerifiedPrefix,
    log_bytes: int,
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
    if unwritten and await save_entries(index, unwritten):
        unwritten = b""
    return await describe_segment(directory, start_offset, log_bytes, index, unwritten)


async def open_index_if_present(
    storage: Storage, directory: str, files: SegmentFiles
) -> File | None:
    """Open the index of a segment, if there is one."""
    if files.index_bytes is None:
        return None
    return await storage.open(index_path(directory, files.start_offset))


async def record_lost_messages(
    storage: Storage,
    directory: str,
    log: File,
    log_scanner: LogScanner,
    tail: LogTail,
    history: OffsetHistory,
    *,
    is_last: bool,
) -> None:
    """Keep intact messages behind a hole, and record lost offsets so that they are not reused.

    Raises:
        SegmentSplit: the row of segments has changed.
        StorageError: nothing is cut yet.
    """
    lost_end = log_scanner.next_offset + tail.indexed_count
    if tail.runs:
        edges = [log_scanner.next_offset, *(edge for run in tail.runs for edge in run[2:])]
        gaps = [gap for gap in zip(edges[::2], edges[1::2], strict=False) if gap[0] < gap[1]]
        await history.record_gaps(gaps)
        LOGGER.error(
            "%s: the power failed; intact messages behind the damage moved to new segments,"
            " the offsets %s are lost, and the damaged bytes are kept in %s",
            describe_unreadable(log, log_scanner),
            ", ".join(f"{start} to {end - 1}" for start, end in gaps),
            SALVAGE_PATH,
        )
        await split_log(storage, directory, log, log_scanner.position, tail.runs)
        raise SegmentSplit
    if tail.indexed_count and is_last:
        LOGGER.error(
            "%s: the power failed, the offsets %d to %d are lost",
            describe_unreadable(log, log_scanner),
            log_scanner.next_offset,
            lost_end - 1,
        )
        await history.skip_to(lost_end)
    if tail.unrecognizable_count and is_last:
        # They may have been messages that clients have seen, so their offsets are not given again.
        await history.skip_to(log_scanner.next_offset + tail.unrecognizable_count)


def describe_unreadable(log: File, log_scanner: LogScanner) -> str:
    """Say where a log cannot be read any more."""
    return (
        f"{log.path} is damaged at byte {log_scanner.position}: the message with offset "
        f"{log_scanner.next_offset} cannot be read"
    )


async def truncate_log(
    storage: Storage, log: File, log_scanner: LogScanner, log_bytes: int
) -> None:
    """Truncate a log behind its last intact message, and keep what is more than a torn message.

    Raises:
        StorageError: nothing is cut.
    """
    is_torn = await is_beginning(log, log_scanner.position, log_scanner.next_offset, log_bytes)
    kept = "" if is_torn else await keep_bytes(storage, log, log_scanner.position, log_bytes)
    LOGGER.warning(
        "truncated %d bytes of %s behind offset %d: they are %s",
        log_bytes - log_scanner.position,
        log.path,
        log_scanner.next_offset - 1,
        f"not a torn message, and kept in {kept}" if kept else "not a whole message",
    )
    await log.truncate(log_scanner.position)


async def save_entries(index: File, entries: bytes) -> bool:
    """Write entries to the end of an index; tell whether that went well."""
    size = index.size()
    try:
        await index.write([entries], size)
    except StorageError as error:
        LOGGER.warning(
            "an index is not written, its entries stay in memory until a later write: %s", error
        )
        await index.truncate(size)
        return False
    return True


async def open_matching_index(
    storage: Storage, directory: str, files: SegmentFiles, end_offset: int | None
) -> File | None:
    """Open the index of a sealed segment if its last entry accounts for the whole log."""
    size = files.index_bytes
    if (
        size is None
        or size % ENTRY_BYTES
        or size // ENTRY_BYTES > messages_count_max(files, end_offset)
    ):
        return None
    index = await storage.open(index_path(directory, files.start_offset))
    count = size // ENTRY_BYTES
    last = await read_entry(index, count - 1)
    agrees = last.end_position == files.log_bytes and last.relative_offset == max(count - 1, 0)
    return index if agrees else None


def messages_count_max(files: SegmentFiles, end_offset: int | None) -> int:
    """Tell how many messages a segment can hold before the next one starts."""
    return NO_END_OFFSET if end_offset is None else end_offset - files.start_offset


async def find_verified_prefix(
    storage: Storage, directory: str, log: File, files: SegmentFiles, end_offset: int | None
) -> VerifiedPrefix:
    """Find an index entry near the end that agrees with the log, in ever longer steps back."""
    count = min((files.index_bytes or 0) // ENTRY_BYTES, messages_count_max(files, end_offset))
    if not count:
        return NOTHING_VERIFIED
    index = await storage.open(index_path(directory, files.start_offset))
    back = 1
    while back <= count:
        ordinal = count - back
        before, entry = await read_entry(index, ordinal - 1), await read_entry(index, ordinal)
        if entry.relative_offset == ordinal and await entry_matches_log(log, files, before, entry):
            return VerifiedPrefix(ordinal + 1, entry.end_position)
        back *= 2
    return NOTHING_VERIFIED


async def entry_matches_log(
    log: File, files: SegmentFiles, before: IndexEntry, entry: IndexEntry
) -> bool:
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
    log: File, index: File, start_offset: int, known: VerifiedPrefix, *, until: int
) -> bytes:
    """Make the entries of all messages between the known ones and a place in the log.

    Returns:
        Those that are not written to the file: the last ones, and few.
    """
    log_scanner = LogScanner(log, known.end_position, start_offset + known.messages_count, until)
    written = known.messages_count
    entries = bytearray()
    while (chunk := await log_scanner.next()) is not None:
        count = written + len(entries) // ENTRY_BYTES
        entries += index_entries(chunk.messages, relative_offset=count, position=chunk.position)
        if len(entries) > UNWRITTEN_BYTES_MAX:
            await index.write([bytes(entries)], written * ENTRY_BYTES)
            written += len(entries) // ENTRY_BYTES
            entries.clear()
    if index.size() != written * ENTRY_BYTES:
        await index.truncate(written * ENTRY_BYTES)
    return bytes(entries)


async def describe_segment(
    directory: str, start_offset: int, size_bytes: int, index: File, unwritten: bytes
) -> Segment:
    """Describe a segment whose files agree."""
    written = index.size() // ENTRY_BYTES
    first = await read_entry(index, 0)
    last = await read_entry(index, written - 1)
    if unwritten:
        first = first if written else unpack_entry(unwritten[:ENTRY_BYTES])
        last = unpack_entry(unwritten[-ENTRY_BYTES:])
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
    return unpack_entry(data if len(data) == ENTRY_BYTES else bytes(ENTRY_BYTES))


def unpack_entry(data: bytes) -> IndexEntry:
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
    await verify_log(log, segment)
    unwritten = await make_index(
        log, index, segment.start_offset, NOTHING_VERIFIED, until=segment.written_bytes
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
    await verify_log(await storage.open(segment.log_path), segment)


async def verify_log(log: File, segment: Segment) -> None:
    """Walk the written part of a log."""
    until = segment.written_bytes
    log_scanner = LogScanner(log, 0, segment.start_offset, until)
    await log_scanner.finish()
    if log_scanner.position != until:
        raise CorruptPartition(segment.directory, describe_unreadable(log, log_scanner))
    segment.checked.add(0, until)

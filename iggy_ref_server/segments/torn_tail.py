"""The tail of a log behind its last intact message: torn by a crash, or damaged.

A process that dies leaves the beginning of its last write: what cannot be read is part of one
message, and no intact message follows. A power loss leaves any part of the unsynced bytes. Anything
else is damage: a whole message with a wrong checksum, an intact message behind an unreadable one,
an index with entries of messages that the log lacks, or the log of another segment. Damage may
contain acknowledged messages, so it is never truncated.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from iggy_ref_server.segments.errors import SearchTooLong
from iggy_ref_server.segments.index import ENTRY, ENTRY_BYTES, MESSAGE_BYTES_MIN
from iggy_ref_server.segments.log_scanner import (
    MESSAGE_BYTES_MAX,
    Effort,
    IntactRun,
    LogScanner,
    count_claimed,
    count_unrecognizable,
    find_foreign_offset,
    find_intact_runs,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iggy_ref_server.segments.file_names import SegmentFiles
    from iggy_ref_server.storage.interface import File


ENTRIES_PER_READ = 4096


class SurvivingWrites(Enum):
    """What the files are known to hold of all that was ever written to them."""

    EVERYTHING = "the system has not lost anything since, only the last write may be torn"
    INDEXED = "the power may have failed, but a message was synced before it was indexed"
    SYNCED = "the power may have failed, and what was not synced may be lost"


class OffsetHistory(Protocol):
    """What is known about the offsets of a partition."""

    @property
    def stored_below(self) -> int:
        """Messages below were on the disk when a server stopped in order."""

    def covers_gap(self, start: int, end: int) -> bool:
        """Tell whether the offsets from start to before end are known to be lost."""

    async def record_gaps(self, gaps: Iterable[tuple[int, int]]) -> None:
        """Remember that offsets are lost."""

    async def skip_to(self, offset: int) -> None:
        """Remember that no offset below may be given again."""


class LogTail(NamedTuple):
    """What lies behind the last good message.

    Attributes:
        surplus_bytes: how much there is.
        indexed_count: messages of which only the index tells.
        runs: intact messages further behind, in order.
        claimed_count: messages that stood there in whole, at most, and cannot be read.
        unrecognizable_count: messages that stood there, at most, if these bytes were any.
        contradiction: what no crash and no power loss explains; empty where nothing is found.
    """

    surplus_bytes: int
    indexed_count: int
    runs: tuple[IntactRun, ...]
    claimed_count: int = 0
    unrecognizable_count: int = 0
    contradiction: str = ""


async def inspect_tail(
    log: File,
    index: File | None,
    files: SegmentFiles,
    log_scanner: LogScanner,
    end_offset: int | None,
) -> LogTail:
    """Look at everything behind the place where a walk had to stop.

    Args:
        log: the open log.
        index: the open index, None where there is none.
        files: what the listing says.
        log_scanner: has come to its end.
        end_offset: messages from here on belong to the next segment; None for any.

    Raises:
        StorageError: a file cannot be read.
    """
    at, next_offset, end = log_scanner.position, log_scanner.next_offset, files.log_bytes
    runs: list[IntactRun] = []
    claimed, unrecognizable, contradiction = 0, 0, ""
    if at < end and (end_offset is None or next_offset < end_offset):
        try:
            found = await find_intact_runs(log, next_offset, end, position=at, effort=Effort())
            runs = [await clip_run(log, run, end_offset) for run in found]
        except SearchTooLong:
            contradiction = "too much behind it looks like messages to search all of it"
        if not runs:
            claimed = await count_claimed(log, at, next_offset, end)
            unrecognizable = await count_unrecognizable(log, at, next_offset, end)
        foreign_offset = None if at else await find_foreign_offset(log, files.start_offset, end)
        if foreign_offset is not None:
            contradiction = (
                f"the log begins with offset {foreign_offset}: it belongs to another segment"
            )
    indexed = 0 if index is None else await count_indexed(index, files, log_scanner, end_offset)
    kept = tuple(run for run in runs if run.start < run.end)
    return LogTail(end - at, indexed, kept, claimed, unrecognizable, contradiction)


async def clip_run(log: File, run: IntactRun, end_offset: int | None) -> IntactRun:
    """Leave out of a run what the next segment holds as well."""
    if end_offset is None or run.next_offset <= end_offset:
        return run
    log_scanner = LogScanner(log, run.start, run.first_offset, run.end, end_offset=end_offset)
    await log_scanner.finish()
    return run._replace(end=log_scanner.position, next_offset=log_scanner.next_offset)


async def count_indexed(
    index: File, files: SegmentFiles, log_scanner: LogScanner, end_offset: int | None
) -> int:
    """Count the entries that go on, one after another, where the log cannot be read any more."""
    first = log_scanner.next_offset - files.start_offset
    ordinal, position = first, log_scanner.position
    while True:
        piece = await index.read(ENTRIES_PER_READ * ENTRY_BYTES, ordinal * ENTRY_BYTES)
        whole = piece[: len(piece) - len(piece) % ENTRY_BYTES]
        for relative_offset, end, timestamp_us in ENTRY.iter_unpack(whole):
            is_next = relative_offset == ordinal and timestamp_us
            is_next = is_next and MESSAGE_BYTES_MIN <= end - position <= MESSAGE_BYTES_MAX
            if not is_next or files.start_offset + ordinal == end_offset:
                return ordinal - first
            ordinal, position = ordinal + 1, end
        if not whole:
            return ordinal - first


def explain_damage(
    tail: LogTail,
    log_scanner: LogScanner,
    kept: SurvivingWrites,
    history: OffsetHistory | None,
    *,
    next_start: int | None,
    may_be_torn: bool,
) -> str:
    """Tell why what lies behind cannot be what a crash left; empty when it can.

    Args:
        tail: what lies behind.
        log_scanner: has come to its end before it.
        kept: what the files are known to hold.
        history: what is known about offsets.
        next_start: where the next segment starts, None for the last one.
        may_be_torn: whether messages at the end may be missing.
    """
    if tail.contradiction:
        return tail.contradiction
    next_offset = log_scanner.next_offset
    if not (tail.surplus_bytes or tail.indexed_count):
        return ""
    if next_start is not None and next_offset == next_start:
        return ""  # all messages are there, and something follows them
    if history is not None and next_offset < history.stored_below:
        return "it was on the disk when the server stopped"
    if not may_be_torn:
        return f"segment {next_start} follows"
    if (
        history is not None
        and next_start is not None
        and history.covers_gap(next_offset, next_start)
    ):
        return ""
    if kept is SurvivingWrites.SYNCED and not (tail.runs and history is None):
        return ""
    if tail.indexed_count:
        return f"the index tells that {tail.indexed_count} messages were written from there on"
    if next_start is not None:
        return f"segment {next_start} follows"
    return damage_in_last(tail, kept, is_noted=history is not None)


def damage_in_last(tail: LogTail, kept: SurvivingWrites, *, is_noted: bool) -> str:
    """Tell why the end of the last log cannot be torn; empty when it can."""
    if tail.runs and (kept is SurvivingWrites.EVERYTHING or not is_noted):
        return "there is an intact one behind it"
    if tail.claimed_count and kept is SurvivingWrites.EVERYTHING:
        return "all of its bytes are there, so it was written in whole"
    return ""

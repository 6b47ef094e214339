"""Checks one segment: the whole log, and every entry of its index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol import record
from iggy_ref_server.doctor.index_file import IndexComparison
from iggy_ref_server.segments.intact import Run, count_claimed, find_runs, find_stranger
from iggy_ref_server.segments.names import SegmentFiles, index_path, log_path
from iggy_ref_server.segments.segment import POSITION_MAX
from iggy_ref_server.segments.tail import count_indexed
from iggy_ref_server.segments.walk import HEADER_BYTES, LogWalk

if TYPE_CHECKING:
    from collections.abc import Callable

    from iggy_ref_server.segments.walk import Stretch
    from iggy_ref_server.storage.interface import Storage

__all__ = ["ExaminedSegment", "examine_segment", "offsets_text"]

# No segment has more messages.
MESSAGES_MAX = POSITION_MAX // HEADER_BYTES


@record
class ExaminedSegment:
    """The content of a segment's files.

    Attributes:
        directory: the partition's directory.
        next_start: the start offset of the next segment; None for the last one.
        runs: the intact messages that belong here.
        index_problem: what is wrong with the index; empty where nothing is.
        is_index_right: whether the index is right as far as it goes.
        indexed_count: messages behind the last one that can be read, of which the index tells.
        claimed_count: messages, at most, that stood there in whole and are damaged.
        stranger: the offset of the first message, where it shows that this is another's log.
    """

    directory: str
    files: SegmentFiles
    next_start: int | None
    runs: tuple[Run, ...]
    index_problem: str
    is_index_right: bool
    indexed_count: int = 0
    claimed_count: int = 0
    stranger: int | None = None

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
    def in_place(self) -> Run | None:
        """The messages at position 0, if they start at the offset of the file name."""
        for run in self.runs[:1]:
            if (run.start, run.first_offset) == (0, self.start_offset):
                return run
        return None

    @property
    def known_end(self) -> int:
        """The offset behind the last message that the log holds or held, or the index tells of."""
        if self.stranger is not None:
            return self.start_offset + MESSAGES_MAX  # nobody can tell how many there were
        end = self.runs[-1].next_offset if self.runs else self.start_offset
        return end + max(self.indexed_count, self.claimed_count)

    @property
    def is_sound(self) -> bool:
        """Whether the log is complete and undamaged."""
        end = 0 if self.in_place is None else self.in_place.end
        is_whole = len(self.runs) <= 1 and end == self.files.log_bytes
        return is_whole and not self.indexed_count

    @property
    def is_torn_only(self) -> bool:
        """Whether only the end of the log is damaged."""
        return not self.runs or (len(self.runs) == 1 and self.in_place is not None)

    @property
    def damage(self) -> tuple[tuple[int, int], ...]:
        """The byte ranges that are not messages, or messages of the next segment."""
        edges = [0, *(edge for run in self.runs for edge in (run.start, run.end))]
        pairs = zip(edges[::2], [*edges[1::2], self.files.log_bytes], strict=True)
        return tuple((start, end) for start, end in pairs if start < end)

    @property
    def rows(self) -> tuple[tuple[int, int], ...]:
        """The existing offsets as half-open ranges; an empty range for an empty segment."""
        if self.runs:
            return tuple((run.first_offset, run.next_offset) for run in self.runs)
        is_kept = self.next_start is None or not self.files.log_bytes
        return ((self.start_offset, self.start_offset),) if is_kept else ()

    @property
    def lost(self) -> tuple[tuple[int, int], ...]:
        """The offsets that the log should have and has not, as far as that is known."""
        edges = [self.start_offset, *(edge for pair in self.rows for edge in pair)]
        last = self.known_end if self.next_start is None else self.next_start
        pairs = zip(edges[::2], [*edges[1::2], last], strict=True)
        return tuple((start, end) for start, end in pairs if start < end)

    def describe_damage(self) -> str:
        """Describe what is wrong with the log."""
        size_bytes = sum(end - start for start, end in self.damage)
        if self.stranger is not None:
            text = f"it begins with the message {self.stranger}, so it is another segment's log"
        elif not size_bytes:
            text = "it ends too early"
        elif self.is_torn_only and self.claimed_count:
            text = f"its last {size_bytes} bytes are damaged"
        elif self.is_torn_only:
            text = f"its last {size_bytes} bytes are not a complete message"
        else:
            places = ", ".join(f"{start} to {end}" for start, end in self.damage)
            text = f"{size_bytes} bytes are no messages ({places})" if places else "offsets jump"
        if self.stranger is not None and self.next_start is None:
            text += f"; all messages from {self.start_offset} on are lost"
        elif self.lost:
            text += f"; the messages {offsets_text(self.lost)} are lost"
        return text


def offsets_text(ranges: tuple[tuple[int, int], ...]) -> str:
    """Format half-open ranges of offsets."""
    return ", ".join(
        f"{start}" if end == start + 1 else f"{start} to {end - 1}" for start, end in ranges
    )


async def examine_segment(
    storage: Storage,
    directory: str,
    files: SegmentFiles,
    next_start: int | None,
    advance: Callable[[int], None],
) -> ExaminedSegment:
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

    async def visit(stretch: Stretch) -> None:
        await comparison.see(stretch)
        advance(len(stretch.messages))

    found = await find_runs(log, files.start_offset, files.log_bytes, visit)
    end = found[-1] if found else Run(0, 0, files.start_offset, files.start_offset)
    claimed_count = await count_claimed(log, end.end, end.next_offset, files.log_bytes)
    indexed_count = 0
    if index is not None:
        walk = LogWalk(log, end.end, end.next_offset, end.end)
        indexed_count = await count_indexed(index, files, walk, next_start)
    # Messages that the next segment has as well are left by a repair that was interrupted.
    runs = tuple(run for run in found if next_start is None or run.first_offset < next_start)
    return ExaminedSegment(
        directory,
        files,
        next_start,
        runs,
        comparison.verdict(),
        is_index_right=comparison.is_right,
        indexed_count=indexed_count,
        claimed_count=claimed_count,
        stranger=None if found else await find_stranger(log, files.start_offset, files.log_bytes),
    )

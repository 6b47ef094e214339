"""Executes polls over the journal, the active segment and sealed segments.

Bytes in a file are not read but returned as file slices for ``sendfile``, after their checksums
were verified once since the start. Bytes in the journal are returned as they are. Only encrypted
messages are read and decrypted here, and spans of many small segments, because only a few files
stay open. Every returned byte belongs to a whole, published message.
"""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING

import trio

from iggy_protocol import (
    Buffer,
    InvalidField,
    MessageBatch,
    PayloadCipher,
    StatusCode,
    TruncatedField,
)
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.partitions.encryption_at_rest import decrypt_messages
from iggy_ref_server.partitions.health import HealthTracker, PartitionHealth
from iggy_ref_server.partitions.poll_plan import (
    LogSpan,
    PollParams,
    PollResult,
    ReadIndex,
    plan_poll,
    plan_time_search,
)
from iggy_ref_server.partitions.settings import IndexCache, PartitionSettings
from iggy_ref_server.partitions.steps import Await, ReadFile, Steps, run_async
from iggy_ref_server.segments.errors import CorruptPartition, IndexDamaged, SearchTooLong
from iggy_ref_server.segments.log_scanner import Effort, LogScanner, find_next_intact
from iggy_ref_server.segments.recovery import rebuild_index
from iggy_ref_server.storage.interface import File, FileSlice, StorageError

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from typing import TypeVar

    from iggy_ref_server.handoff_lock import HandoffLock
    from iggy_ref_server.partitions.journal import Journal
    from iggy_ref_server.partitions.segment_list import SegmentList
    from iggy_ref_server.segments.index import IndexEntry
    from iggy_ref_server.segments.segment import OpenSegments, Segment


LOGGER = logging.getLogger(__name__)


if TYPE_CHECKING:
    ResultT = TypeVar("ResultT")

# A reply refers to at most so many files; what lies in further segments is read into memory.
SLICES_MAX = 8


class PartitionReader:
    """Serves the polls of a partition.

    Args:
        files: opens sealed segments.
        settings: of the partition.
        segment_list: the segments.
        journal: holds what is published and not written.
        health: worsened when a log turns out to be damaged.
        write_lock: the lock that is held while the files change.
    """

    def __init__(
        self,
        files: OpenSegments,
        settings: PartitionSettings,
        segment_list: SegmentList,
        journal: Journal,
        health: HealthTracker,
        write_lock: HandoffLock,
    ) -> None:
        self._files = files
        self._verifier = PollVerifier(files, verifies_always=settings.validate_checksums)
        self._cipher = settings.encryptor
        self._loads_indexes = settings.index_cache is IndexCache.ALL
        self._segment_list = segment_list
        self._journal = journal
        self._health = health
        self._write_lock = write_lock

    def poll(self, request: PollParams, stored_offset: int | None) -> Steps[PollResult]:
        """Serve a poll, from the disk if need be.

        Raises:
            ServerFault: a file cannot be read, or a message not decrypted.
        """
        for is_last_try in (False, True):
            try:
                return (yield from self._poll(request, stored_offset))
            except IndexDamaged as damage:
                if is_last_try:
                    raise ServerFault(
                        StatusCode.CANNOT_READ_INDEX_POSITION, str(damage)
                    ) from damage
                yield Await(self.rebuild_damaged_index, damage)
            except StorageError as error:
                # Retention or a purge may have removed the file meanwhile: plan the poll again.
                if is_last_try or error.errno != errno.ENOENT:
                    raise ServerFault(StatusCode.CANNOT_READ_FILE, str(error)) from error
        raise AssertionError("two tries end one way or the other")

    async def find_offset(self, timestamp_us: int) -> int:
        """Find the first message that is not older than a time.

        Raises:
            IndexDamaged, StorageError: an index cannot be read.
        """
        plan = plan_time_search(self._segment_list.segments, timestamp_us)
        return await run_async(self._run_plan(plan))

    def _poll(self, request: PollParams, stored_offset: int | None) -> Steps[PollResult]:
        cipher = self._cipher
        if cipher is not None:
            request = request.limited_to_memory
        current_offset = self._segment_list.last_offset or 0
        next_offset = self._segment_list.next_offset
        spans = yield from self._run_plan(plan_poll(self._segment_list, request, stored_offset))
        if not self._verifier.are_verified(spans):
            spans = yield from self._verifier.intact_spans(spans)
        if cipher is None and len(spans) > SLICES_MAX:
            spans = within_memory_limit(spans, request.memory_max_bytes)
        parts: list[Buffer | FileSlice] = []
        for number, span in enumerate(spans):
            if span.segment.log is None and span.start < span.segment.written_bytes:
                yield Await(self._files.open, span.segment)
            self._files.note(span.segment)
            found = self._parts(span, span.segment.log)
            if cipher is not None or number >= SLICES_MAX:
                parts += yield from read_parts(found, cipher)
            else:
                parts += found
        return make_poll_result(current_offset, next_offset, spans, parts)

    def _run_plan(self, plan: Generator[ReadIndex, IndexEntry, ResultT]) -> Steps[ResultT]:
        try:
            lookup = next(plan)
            while True:
                entry = lookup.segment.index.entry_nowait(lookup.ordinal)
                if entry is None:
                    entry = yield Await(self._read_entry, lookup)
                lookup = plan.send(entry)
        except StopIteration as stop:
            result: ResultT = stop.value
            return result

    async def _read_entry(self, lookup: ReadIndex) -> IndexEntry:
        await self._files.open(lookup.segment)
        if self._loads_indexes:
            await lookup.segment.index.load()
            await self._files.open(lookup.segment)
        return await lookup.segment.index.entry(lookup.ordinal)

    def _parts(self, span: LogSpan, log: File | None) -> list[Buffer | FileSlice]:
        """Say where the bytes of a span are: in the file up to its end, then in the journal."""
        parts: list[Buffer | FileSlice] = []
        in_file = min(span.end, span.segment.written_bytes)
        if span.start < in_file:
            assert log is not None
            parts.append(FileSlice(log, span.start, in_file - span.start))
        if in_file < span.end:
            start = max(span.start, in_file)
            unwritten = list(self._journal.slices(span.segment, start, span.end))
            if sum([len(part) for part in unwritten]) < span.end - start:
                path = span.segment.log_path
                raise StorageError("read", path, "the messages were purged", errno=errno.ENOENT)
            parts += unwritten
        return parts

    async def rebuild_damaged_index(self, damage: IndexDamaged) -> None:
        """Make an index anew that a power loss has left holes in.

        Raises:
            ServerFault: the log is damaged as well; the partition takes no more messages.
            StorageError: a file cannot be read or written.
        """
        LOGGER.warning("an index is damaged and is rebuilt from its log: %s", damage)
        async with self._write_lock:
            for segment in self._segment_list.segments:
                if segment.start_offset == damage.start_offset:
                    await self._rebuild(segment)

    async def _rebuild(self, segment: Segment) -> None:
        try:
            await self._files.open(segment)
            with trio.CancelScope(shield=True):
                await rebuild_index(segment)
        except CorruptPartition as damage:
            self._health.degrade(PartitionHealth.READ_ONLY, damage.reason)
            raise ServerFault(StatusCode.CANNOT_READ_MESSAGE, str(damage)) from damage


def within_memory_limit(spans: tuple[LogSpan, ...], memory_max_bytes: int) -> tuple[LogSpan, ...]:
    """Leave out the last spans, of those that have to be read into memory, beyond a bound."""
    left_bytes = memory_max_bytes
    for number in range(SLICES_MAX, len(spans)):
        left_bytes -= spans[number].end - spans[number].start
        if left_bytes < 0:
            return spans[:number]
    return spans


def make_poll_result(
    current_offset: int,
    next_offset: int,
    spans: Sequence[LogSpan],
    parts: Sequence[Buffer | FileSlice],
) -> PollResult:
    """Sum up what was found."""
    if not spans:
        return PollResult(current_offset, 0, 0, (), None, next_offset)
    return PollResult(
        current_offset,
        sum([span.messages_count for span in spans]),
        sum([part.size if isinstance(part, FileSlice) else len(part) for part in parts]),
        tuple(parts),
        spans[-1].first_offset + spans[-1].messages_count - 1,
        next_offset,
    )


def read_parts(
    parts: Sequence[Buffer | FileSlice], cipher: PayloadCipher | None
) -> Steps[list[Buffer]]:
    """Read parts into memory, and decrypt them if there is a key.

    Raises:
        ServerFault: a message cannot be decrypted.
        StorageError: a file cannot be read, or ends inside a part.
    """
    contents: list[Buffer] = []
    for part in parts:
        content: Buffer
        if isinstance(part, FileSlice):
            content = yield ReadFile(part.file, part.size, part.position)
            if len(content) < part.size:
                end = part.position + part.size
                raise StorageError("read", part.file.path, f"it ends before byte {end}")
        else:
            content = part
        contents.append(content if cipher is None else decrypt_messages(content, cipher))
    return contents


# Verifies the checksums of stored messages before a poll delivers them.
#
# Bytes go from the file to the socket unread. So the first poll of a range since the start reads
# and verifies it; bytes that this process wrote count as verified. With ``validate_checksums``
# every poll verifies. A poll that reaches damage delivers the messages before it. A poll that
# begins there is refused, and the log says from which offset polls work again.


# Verified without a checkpoint of the event loop: takes about 0.2 ms.
INLINE_VERIFY_BYTES_MAX = 1 << 20

# Damaged places that were logged; beyond this number they are logged again.
REPORTED_MAX = 1024


class PollVerifier:
    """Verifies stored messages before they are delivered.

    Args:
        files: opens sealed segments.
        verifies_always: whether to look each time, and not once.
    """

    def __init__(self, files: OpenSegments, *, verifies_always: bool) -> None:
        self._files = files
        self._verifies_always = verifies_always
        self._reported: dict[tuple[int, int], str] = {}

    def are_verified(self, spans: Sequence[LogSpan]) -> bool:
        """Tell whether nothing has to be read before spans are delivered."""
        return all(map(self._is_verified, spans))

    def _is_verified(self, span: LogSpan) -> bool:
        segment = span.segment
        end = min(span.end, segment.written_bytes)
        return end <= span.start or (
            not self._verifies_always and segment.checked.covers(span.start, end)
        )

    def intact_spans(self, spans: Sequence[LogSpan]) -> Steps[tuple[LogSpan, ...]]:
        """Return the spans up to the first message that is not good.

        Raises:
            ServerFault: that is the first one of all.
            StorageError: a file cannot be read.
        """
        good: list[LogSpan] = []
        for span in spans:
            kept = span if self._is_verified(span) else (yield from self._intact_part(span))
            if kept.messages_count:
                good.append(kept)
            if kept.messages_count < span.messages_count:
                yield from self._report(kept, is_refused=not good)
                break
        return tuple(good)

    def _intact_part(self, span: LogSpan) -> Steps[LogSpan]:
        segment = span.segment
        end = min(span.end, segment.written_bytes)
        if segment.log is None:
            yield Await(self._files.open, segment)
        log = segment.log  # others may close the segment meanwhile
        assert log is not None
        if end == span.end and end - span.start <= INLINE_VERIFY_BYTES_MAX:
            messages: bytes = yield ReadFile(log, end - span.start, span.start)
            if is_intact(messages, span):
                segment.checked.add(span.start, end)
                return span
        # Long, partly in the journal, or damaged: the scanner finds how far it is good.
        log_scanner = LogScanner(log, span.start, span.first_offset, end)
        yield Await(log_scanner.finish)
        if log_scanner.position > span.start:
            segment.checked.add(span.start, log_scanner.position)
        if log_scanner.position == end:
            return span
        count = log_scanner.next_offset - span.first_offset
        return span._replace(end=log_scanner.position, messages_count=count)

    def _report(self, kept: LogSpan, *, is_refused: bool) -> Steps[None]:
        """Say where the damage is; refuse the poll if nothing good lies before it."""
        key = (kept.segment.start_offset, kept.first_offset + kept.messages_count)
        problem = self._reported.get(key)
        if problem is None:
            problem = yield Await(self._describe_damage, kept)
            assert problem is not None
            if len(self._reported) >= REPORTED_MAX:
                self._reported.clear()
            self._reported[key] = problem
            LOGGER.error("%s; to repair it, stop the server and run `iggy-server repair`", problem)
        if is_refused:
            raise ServerFault(StatusCode.CANNOT_READ_MESSAGE, problem)

    async def _describe_damage(self, kept: LogSpan) -> str:
        await self._files.open(kept.segment)
        log = kept.segment.log
        assert log is not None
        return await describe_damage(kept, log)


async def describe_damage(kept: LogSpan, log: File) -> str:
    """Say which messages of a span cannot be read, and where a poll can continue."""
    segment, at = kept.segment, kept.first_offset + kept.messages_count
    place = f"{segment.log_path} is damaged at byte {kept.end}"
    try:
        behind = await find_next_intact(log, kept.end, at, segment.written_bytes, Effort())
    except SearchTooLong:
        return f"{place}: the message {at} cannot be read, and the next good one was not found"
    resumed = segment.next_offset if behind is None else behind[1]
    return (
        f"{place}: the messages {at} to {resumed - 1} cannot be read; poll from offset {resumed} to"
        " continue"
    )


def is_intact(messages: Buffer, span: LogSpan) -> bool:
    """Tell whether bytes are exactly the intact messages of a span."""
    try:
        batch = MessageBatch(messages)
        batch.verify()
    except (InvalidField, TruncatedField):
        return False
    last = span.first_offset + span.messages_count - 1
    return (
        len(batch) == span.messages_count
        and batch.first_offset == span.first_offset
        and batch.last_offset == last
    )

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

from iggy_protocol import Buffer, StatusCode
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.partitions.at_rest import open_messages
from iggy_ref_server.partitions.health import PartitionHealth
from iggy_ref_server.partitions.poll_plan import plan_poll, plan_search
from iggy_ref_server.partitions.polls import Polled
from iggy_ref_server.partitions.settings import IndexCache
from iggy_ref_server.partitions.verification import Verification
from iggy_ref_server.segments.damage import CorruptPartition, IndexDamaged
from iggy_ref_server.segments.recovery import rebuild_index
from iggy_ref_server.storage.interface import File, FileSlice, StorageError

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from typing import TypeVar

    from iggy_protocol import PayloadCipher
    from iggy_ref_server.baton import Baton
    from iggy_ref_server.partitions.chain import SegmentChain
    from iggy_ref_server.partitions.health import Health
    from iggy_ref_server.partitions.journal import Journal
    from iggy_ref_server.partitions.poll_plan import Span, Wanted
    from iggy_ref_server.partitions.polls import PollRequest
    from iggy_ref_server.partitions.settings import PartitionSettings
    from iggy_ref_server.segments.index import IndexEntry
    from iggy_ref_server.segments.open_files import OpenFiles
    from iggy_ref_server.segments.segment import Segment

    ResultT = TypeVar("ResultT")

__all__ = ["Reader"]

_logger = logging.getLogger(__name__)

# A reply refers to at most so many files; what lies in further segments is read into memory.
SLICES_MAX = 8


class Reader:
    """Serves the polls of a partition.

    Args:
        files: opens sealed segments.
        settings: of the partition.
        chain: the segments.
        journal: holds what is published and not written.
        health: worsened when a log turns out to be damaged.
        writing: the lock that is held while the files change.
    """

    def __init__(
        self,
        files: OpenFiles,
        settings: PartitionSettings,
        chain: SegmentChain,
        journal: Journal,
        health: Health,
        writing: Baton,
    ) -> None:
        self._files = files
        self._verification = Verification(files, is_repeated=settings.validate_checksums)
        self._cipher = settings.encryptor
        self._loads_indexes = settings.index_cache is IndexCache.ALL
        self._chain = chain
        self._journal = journal
        self._health = health
        self._writing = writing

    def poll_now(self, request: PollRequest, stored_offset: int | None) -> Polled | None:
        """Serve a poll from memory; None when something must be read from a disk.

        Raises:
            ServerFault: a message cannot be decrypted.
        """
        if self._cipher is not None:
            request = request.in_memory
        current_offset = self._chain.last_offset or 0
        spans = drive_now(plan_poll(self._chain, request, stored_offset))
        if spans is None or not self._verification.passes_now(spans):
            return None
        parts: list[Buffer | FileSlice] = []
        for span in spans:
            if span.start < span.segment.written_bytes and span.segment.log is None:
                return None
            self._files.note(span.segment)
            parts += self._parts(span, span.segment.log)
        if self._cipher is None:
            return polled(current_offset, spans, parts)
        opened = self._open_now(parts, self._cipher)
        return None if opened is None else polled(current_offset, spans, opened)

    async def poll(self, request: PollRequest, stored_offset: int | None) -> Polled:
        """Serve a poll, from the disk if need be.

        Raises:
            ServerFault: a file cannot be read, or a message not decrypted.
        """
        for is_last_try in (False, True):
            try:
                return await self._poll(request, stored_offset)
            except IndexDamaged as damage:
                if is_last_try:
                    raise ServerFault(
                        StatusCode.CANNOT_READ_INDEX_POSITION, str(damage)
                    ) from damage
                await self.mend_index(damage)
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
        return await self._drive(plan_search(self._chain.segments, timestamp_us))

    async def _poll(self, request: PollRequest, stored_offset: int | None) -> Polled:
        await trio.lowlevel.checkpoint()
        if self._cipher is not None:
            request = request.in_memory
        current_offset = self._chain.last_offset or 0
        planned = await self._drive(plan_poll(self._chain, request, stored_offset))
        spans = await self._verification.passing(planned)
        if self._cipher is not None:
            return polled(current_offset, spans, await self._open(spans, self._cipher))
        parts: list[Buffer | FileSlice] = []
        spans = fitting(spans, request.memory_max_bytes)
        for number, span in enumerate(spans):
            for part in self._parts(span, await self._log_of(span)):
                if number >= SLICES_MAX and isinstance(part, FileSlice):
                    parts.append(await read_slice(part))
                else:
                    parts.append(part)
        return polled(current_offset, spans, parts)

    async def _open(self, spans: Sequence[Span], cipher: PayloadCipher) -> list[Buffer]:
        """Decrypt the messages of spans."""
        opened: list[Buffer] = []
        for span in spans:
            for part in self._parts(span, await self._log_of(span)):
                sealed = await read_slice(part) if isinstance(part, FileSlice) else part
                opened.append(open_messages(sealed, cipher))
        return opened

    async def _drive(self, plan: Generator[Wanted, IndexEntry, ResultT]) -> ResultT:
        try:
            wanted = next(plan)
            while True:
                entry = wanted.segment.index.entry_now(wanted.ordinal)
                if entry is None:
                    entry = await self._read_entry(wanted)
                wanted = plan.send(entry)
        except StopIteration as stop:
            result: ResultT = stop.value
            return result

    async def _read_entry(self, wanted: Wanted) -> IndexEntry:
        await self._files.open(wanted.segment)
        if self._loads_indexes:
            await wanted.segment.index.load()
            await self._files.open(wanted.segment)
        return await wanted.segment.index.entry(wanted.ordinal)

    async def _log_of(self, span: Span) -> File | None:
        """Open the log of a span, unless all of it is in memory."""
        segment = span.segment
        if span.start < segment.written_bytes:
            await self._files.open(segment)
        return segment.log

    def _parts(self, span: Span, log: File | None) -> list[Buffer | FileSlice]:
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

    def _open_now(
        self, parts: list[Buffer | FileSlice], cipher: PayloadCipher
    ) -> list[Buffer | FileSlice] | None:
        """Decrypt parts that are in memory; None when one is not."""
        opened: list[Buffer | FileSlice] = []
        for part in parts:
            sealed: Buffer | None
            if isinstance(part, FileSlice):
                sealed = part.file.read_now(part.size, part.position)
            else:
                sealed = part
            if sealed is None:
                return None
            opened.append(open_messages(sealed, cipher))
        return opened

    async def mend_index(self, damage: IndexDamaged) -> None:
        """Make an index anew that a power loss has left holes in.

        Raises:
            ServerFault: the log is damaged as well; the partition takes no more messages.
            StorageError: a file cannot be read or written.
        """
        _logger.warning("an index is damaged and is rebuilt from its log: %s", damage)
        async with self._writing:
            for segment in self._chain.segments:
                if segment.start_offset == damage.start_offset:
                    await self._rebuild(segment)

    async def _rebuild(self, segment: Segment) -> None:
        try:
            await self._files.open(segment)
            with trio.CancelScope(shield=True):
                await rebuild_index(segment)
        except CorruptPartition as damage:
            self._health.worsen(PartitionHealth.READ_ONLY, damage.reason)
            raise ServerFault(StatusCode.CANNOT_READ_MESSAGE, str(damage)) from damage


def drive_now(plan: Generator[Wanted, IndexEntry, tuple[Span, ...]]) -> tuple[Span, ...] | None:
    """Carry out a plan over what is in memory; None when that is not all."""
    try:
        wanted = next(plan)
        while True:
            entry = wanted.segment.index.entry_now(wanted.ordinal)
            if entry is None:
                return None
            wanted = plan.send(entry)
    except StopIteration as stop:
        spans: tuple[Span, ...] = stop.value
        return spans
    except IndexDamaged:
        return None


def fitting(spans: tuple[Span, ...], memory_max_bytes: int) -> tuple[Span, ...]:
    """Leave out the last spans, of those that have to be read into memory, beyond a bound."""
    left_bytes = memory_max_bytes
    for number in range(SLICES_MAX, len(spans)):
        left_bytes -= spans[number].end - spans[number].start
        if left_bytes < 0:
            return spans[:number]
    return spans


def polled(
    current_offset: int, spans: Sequence[Span], parts: Sequence[Buffer | FileSlice]
) -> Polled:
    """Sum up what was found."""
    if not spans:
        return Polled(current_offset, 0, 0, (), None)
    return Polled(
        current_offset,
        sum([span.messages_count for span in spans]),
        sum([part.size if isinstance(part, FileSlice) else len(part) for part in parts]),
        tuple(parts),
        spans[-1].first_offset + spans[-1].messages_count - 1,
    )


async def read_slice(part: FileSlice) -> bytes:
    """Read a slice into memory.

    Raises:
        StorageError: it cannot be read, or the file ends inside it.
    """
    content = await part.file.read(part.size, part.position)
    if len(content) < part.size:
        raise StorageError(
            "read", part.file.path, f"it ends before byte {part.position + part.size}"
        )
    return content

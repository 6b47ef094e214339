"""Writes the journal to the segments, in order, one write at a time.

A write is done when it is in the log file (under ``FSYNC``: when it is synced). Then, in this
order: its messages are published to polls, the index file follows (under ``FSYNC`` always,
otherwise if it lags too far behind), a full segment is rolled, and the commit group is finished.

A failed write may leave any part of its bytes behind the end of the log. Messages that were not
acknowledged are rolled back, and the log is truncated before the next write. Messages that were
acknowledged from memory stay in the journal, and the same bytes are written to the same position
later. After a failed sync the content of the disk is unknown, so the partition becomes read-only.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from iggy_protocol import StatusCode
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.handoff_lock import HandoffLock
from iggy_ref_server.partitions.health import HealthTracker, PartitionHealth
from iggy_ref_server.partitions.index_writer import ActiveProblems, IndexWriter
from iggy_ref_server.partitions.settings import AckLevel, PartitionSettings
from iggy_ref_server.partitions.steps import (
    NOT_READY,
    AcquireLock,
    AwaitShielded,
    Need,
    Steps,
    run_async,
)
from iggy_ref_server.storage.interface import DoneCallback, File, Storage, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iggy_ref_server.partitions.append import Appender
    from iggy_ref_server.partitions.journal import PendingWrite
    from iggy_ref_server.partitions.reservation import OffsetReservation
    from iggy_ref_server.partitions.segment_list import SegmentList
    from iggy_ref_server.segments.segment import OpenSegments, Segment


LOGGER = logging.getLogger(__name__)

MESSAGES_NOT_STORED = "messages are not stored"
OFFSETS_NOT_RESERVED = "offsets cannot be reserved, so messages are acknowledged only once written"


class WriteLog(Need):
    """A write of the journal that has to reach its log; batches join it until it is begun."""

    __slots__ = ("_log", "_sync", "_write")

    is_shielded = True

    # One is made for every commit, so it calls the file itself instead of a base class.
    def __init__(self, log: File, write: PendingWrite, sync: bool) -> None:
        self._log = log
        self._write = write
        self._sync = sync

    def try_now(self) -> Any:
        """Write into the page cache; a sync always has to wait."""
        write = self._write
        if self._sync or not self._log.write_nowait(write.buffers, write.position):
            return NOT_READY
        # Nothing may join what is written, because the index may still have to be waited for.
        write.is_closed = True
        return None

    def begin(self, done: DoneCallback) -> bool:
        """Begin to write and sync. Without a sync there is nothing to call back from."""
        write = self._write
        if not self._sync or not self._log.begin_write(write.buffers, write.position, done):
            return False
        write.is_closed = True
        return True

    async def perform(self) -> None:
        """Write, and sync if asked."""
        write = self._write
        write.is_closed = True
        await self._log.write(write.buffers, write.position, sync=self._sync)


class PartitionWriter:
    """Writes a partition's segments.

    Args:
        storage: where they lie.
        files: keeps sealed ones open.
        settings: of the partition.
        segment_list: the segments.
        appender: whose queue is written.
        reservation: extended in time.
        health: worsened by a failed sync.

    Attributes:
        lock: held while the files change.
        is_committing: whether a commit is writing the journal.
        fault: why acknowledged messages could not be written; None when they were, or are not due.
    """

    def __init__(
        self,
        storage: Storage,
        files: OpenSegments,
        settings: PartitionSettings,
        segment_list: SegmentList,
        appender: Appender,
        reservation: OffsetReservation,
        health: HealthTracker,
    ) -> None:
        self.lock = HandoffLock()
        self.is_committing = False
        self.fault: ServerFault | None = None
        self._storage = storage
        self._files = files
        self._settings = settings
        self._segment_list = segment_list
        self._appender = appender
        self._journal = appender.journal
        self._reservation = reservation
        self._health = health
        self._syncs = settings.ack is AckLevel.FSYNC
        self._reserves = settings.ack is AckLevel.MEMORY
        self._torn_segment: Segment | None = None
        self.has_failed_sync = False
        self._unsynced = [
            segment
            for segment in segment_list.segments
            if segment.is_sealed and not reservation.is_synced(segment.start_offset)
        ]
        self._problems = ActiveProblems()
        self._index_writer = IndexWriter(files, settings, segment_list, self._problems)

    @property
    def next_written(self) -> int:
        """The offset behind the last message that is written."""
        write = self._journal.first
        segment = self._segment_list.last if write is None else write.segment
        return segment.start_offset + segment.written_count

    @property
    def unsynced_offsets(self) -> range:
        """The offsets of acknowledged messages that are written, and not known to be synced."""
        if self._syncs:
            return range(0)
        return range((*self._unsynced, self._segment_list.last)[0].start_offset, self.next_written)

    # ---- committing

    def commit(self) -> Steps[bool]:
        """Write everything that is due; does nothing while another commit is doing so.

        Returns:
            Whether something was written.
        """
        if self.is_committing or not self._has_work():
            return False
        self.is_committing = True
        has_written = False
        try:
            while True:
                if not self.lock.acquire_nowait():
                    yield AcquireLock(self.lock)
                try:
                    has_written |= yield from self.write_due()
                finally:
                    self.lock.release()
                # Nothing may be awaited behind this check: a producer that stages a batch before
                # the end sees `is_committing` and relies on this commit. A fault ends it.
                if self._due() is None or self.fault is not None:
                    return has_written
        finally:
            self.is_committing = False

    def _has_work(self) -> bool:
        return self._due() is not None or self._torn_segment is not None or self._must_reserve()

    def write_due(self) -> Steps[bool]:
        """Write what is due at this moment; the lock is held.

        All needs are shielded from cancellation: what was begun cannot be taken back.

        Returns:
            Whether something was written.
        """
        has_written = False
        # Not more than this: others wait for the lock, and producers never rest.
        for _ in range(len(self._journal)):
            write = self._due()
            if write is None or not (yield from self._execute(write)):
                break
            has_written = True
        if self._torn_segment is not None:
            yield from self._truncate_torn_segment(self._torn_segment)
        if self._reserves:
            yield from self.reserve()
        return has_written

    async def write_all(self) -> None:
        """Write everything that is staged at this moment, due or not; the lock is held.

        Raises:
            ServerFault: acknowledged messages are still in memory only.
        """
        self._journal.close_last()
        await run_async(self.write_due())
        if self.fault is not None:
            raise ServerFault(self.fault.status, self.fault.message)

    async def save_indexes(self) -> None:
        """Write the index entries that are only in memory; the lock is held.

        Raises:
            StorageError: they stay in memory.
        """
        for segment in self._segment_list.segments:
            if segment.is_created and segment.index.written_count < segment.written_count:
                await run_async(self._index_writer.save(segment))

    async def sync(self) -> None:
        """Bring everything that is written to the disk, while everything else goes on.

        Raises:
            ServerFault: it is unknown what the disk has; the partition takes no more messages.
        """
        last = self._segment_list.last
        segments = [*self._unsynced, *([last] if last.is_created else [])]
        try:
            for segment in segments:
                await self._sync_segment(segment)
        except StorageError as error:
            self._on_failed_sync(error)
            raise ServerFault(StatusCode.CANNOT_SYNC_FILE, str(error)) from error
        await self._record_synced()

    async def sync_sealed(self) -> None:
        """Bring sealed segments to the disk, while everything else goes on."""
        for segment in tuple(self._unsynced):
            try:
                await self._sync_segment(segment)
            except StorageError as error:
                if segment in self._unsynced:  # else it was removed meanwhile
                    self._on_failed_sync(error)
                    return
        await self._record_synced()

    async def _record_synced(self) -> None:
        # Up to the first segment that may still change, or has changed since it was synced.
        below = next(
            segment.start_offset
            for segment in self._segment_list.segments
            if not segment.is_sealed or segment in self._unsynced
        )
        try:
            await self._reservation.record_synced(below)
        except StorageError as error:
            LOGGER.warning(
                "the list of synced segments was not saved, the next sync tries again: %s", error
            )

    def forget(self, segment: Segment) -> None:
        """Do nothing more for a segment that is being removed."""
        self._files.close(segment)
        if segment in self._unsynced:
            self._unsynced.remove(segment)

    def restart(self, gone: Iterable[Segment]) -> None:
        """Forget about segments that are gone."""
        self._files.close(*gone)
        self.fault = None
        self._torn_segment = None
        self.has_failed_sync = False
        self._unsynced.clear()

    async def create_first_segment(self) -> None:
        """Make the files of the only segment; the lock is held.

        Raises:
            StorageError: they cannot be made.
        """
        await self._segment_list.last.create(self._storage, self._settings.preallocated_bytes)
        self._files.keep(self._segment_list.last)

    # ---- one write

    def _due(self) -> PendingWrite | None:
        """Return the write that is next, if it shall be written."""
        write = self._journal.first
        if write is None or (self._reserves and not write.is_closed):
            return None
        return write

    def _execute(self, write: PendingWrite) -> Steps[bool]:
        """Bring one write to its end; tell whether it went well."""
        segment = write.segment
        try:
            if segment.log is None or not segment.is_created or self._torn_segment is not None:
                yield from self._prepare(segment)
            assert segment.log is not None
            yield WriteLog(segment.log, write, self._syncs)
        except StorageError as error:
            self._fail(write, error)
            return False
        self._publish(write)
        try:
            if write.next_segment is not None:
                yield from self.roll(segment, write.next_segment)
            elif self._index_writer.is_due(segment):
                yield from self._index_writer.save_or_warn(segment)
        finally:
            # The messages are stored, even if the steps are closed before the index follows.
            self._finish(write)
        return True

    def _prepare(self, segment: Segment) -> Steps[None]:
        """Make sure that a segment's log ends where the next write begins."""
        if self._torn_segment is not None:
            yield AwaitShielded(self._truncate, self._torn_segment)
        if not segment.is_created:
            yield from self._create_segment(segment)
        if segment.log is None:
            yield AwaitShielded(self._files.open, segment)

    def _publish(self, write: PendingWrite) -> None:
        segment = write.segment
        assert segment.written_bytes == write.position
        segment.written_count += write.messages_count
        segment.written_bytes += write.size_bytes
        segment.checked.add(write.position, segment.written_bytes)
        if not write.is_published:
            self._appender.publish(write)

    def _finish(self, write: PendingWrite) -> None:
        """Tell those who wait; the messages are written and visible."""
        self.fault = None
        if self._problems.end(MESSAGES_NOT_STORED):
            LOGGER.warning("messages are stored again in %s", write.segment.directory)
        popped = self._journal.pop_first()
        assert popped is write
        write.release()
        if write.group is not None:
            write.group.finish()

    def _fail(self, write: PendingWrite, error: StorageError) -> None:
        """Withdraw what was not acknowledged; keep what was."""
        is_sync = error.action == "sync"
        status = StatusCode.CANNOT_SYNC_FILE if is_sync else StatusCode.CANNOT_WRITE_TO_FILE
        fault = ServerFault(status, str(error))
        if is_sync:
            self._on_failed_sync(error)
        else:
            self._problems.begin(MESSAGES_NOT_STORED, error)
        if write.is_published:
            self.fault = fault
        elif not is_sync and self._torn_segment is None and write.segment.is_created:
            self._torn_segment = write.segment
        self._appender.roll_back(fault)

    def _on_failed_sync(self, error: StorageError) -> None:
        """Take no more messages if a sync failed, since it is unknown what the disk has."""
        if error.action == "sync":
            self.has_failed_sync = True
            self._health.degrade(PartitionHealth.READ_ONLY, str(error))

    # ---- segments

    def roll(self, full: Segment, following: Segment) -> Steps[None]:
        """Seal a segment and begin the next, as far as can be; the lock is held."""
        yield from self._index_writer.save_or_warn(full)
        try:
            yield from self._create_segment(following)
        except StorageError as error:
            LOGGER.warning(
                "the next segment was not created, the next write tries again: %s", error
            )

    def _create_segment(self, segment: Segment) -> Steps[None]:
        """Make a segment's files; the ones before it are complete."""
        yield AwaitShielded(segment.create, self._storage, self._settings.preallocated_bytes)
        self._files.keep(segment)
        self._segment_list.append(segment)
        for earlier in self._segment_list.segments:
            if earlier.start_offset < segment.start_offset and not earlier.is_sealed:
                yield from self._index_writer.save_or_warn(earlier)
                if earlier.log is not None and earlier.log.has_room_ahead:
                    yield AwaitShielded(self._give_room_back, earlier)
                earlier.is_sealed = True
                self._unsynced.append(earlier)
                self._files.note(earlier)

    async def _give_room_back(self, segment: Segment) -> None:
        """Free the disk space behind the last message of a segment that is full."""
        assert segment.log is not None
        try:
            await segment.log.truncate(segment.written_bytes)
        except StorageError as error:
            LOGGER.warning("%s keeps more of the disk than it uses: %s", segment.log.path, error)

    async def _sync_segment(self, segment: Segment) -> None:
        await self._files.open(segment)
        log, index = segment.log, segment.index.file
        assert log is not None
        assert index is not None
        is_complete = segment.is_sealed
        await log.sync()
        await index.sync()
        if is_complete and segment in self._unsynced:
            self._unsynced.remove(segment)

    def _truncate_torn_segment(self, segment: Segment) -> Steps[None]:
        """Cut what a failed write has left; tried again before the next write."""
        try:
            yield AwaitShielded(self._truncate, segment)
        except StorageError as error:
            LOGGER.warning(
                "a failed write is not truncated yet, the next write tries again: %s", error
            )

    async def _truncate(self, segment: Segment) -> None:
        await self._files.open(segment)
        assert segment.log is not None
        await segment.log.truncate(segment.written_bytes)
        self._torn_segment = None

    # ---- reserved offsets

    def _must_reserve(self) -> bool:
        return self._reserves and self._reservation.needs_extension(self._appender.next_offset)

    def reserve(self) -> Steps[None]:
        """Reserve more offsets if they run low; the lock is held."""
        if not self._must_reserve():
            return
        try:
            yield AwaitShielded(self._reservation.extend, self._appender.next_offset)
            self._problems.end(OFFSETS_NOT_RESERVED)
        except StorageError as error:
            self._problems.begin(OFFSETS_NOT_RESERVED, error)

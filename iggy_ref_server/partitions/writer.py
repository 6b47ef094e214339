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
from functools import partial
from typing import TYPE_CHECKING

import trio

from iggy_protocol import StatusCode
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.handoff_lock import HandoffLock
from iggy_ref_server.partitions.health import PartitionHealth
from iggy_ref_server.partitions.index_writer import ActiveProblems, IndexWriter
from iggy_ref_server.partitions.settings import AckLevel
from iggy_ref_server.storage.interface import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from iggy_ref_server.partitions.append import Appender
    from iggy_ref_server.partitions.health import HealthTracker
    from iggy_ref_server.partitions.journal import PendingWrite
    from iggy_ref_server.partitions.reservation import OffsetReservation
    from iggy_ref_server.partitions.segment_list import SegmentList
    from iggy_ref_server.partitions.settings import PartitionSettings
    from iggy_ref_server.segments.segment import OpenSegments, Segment
    from iggy_ref_server.storage.interface import Storage

__all__ = ["PartitionWriter"]

LOGGER = logging.getLogger(__name__)

MESSAGES_NOT_STORED = "messages are not stored"
OFFSETS_NOT_RESERVED = "offsets cannot be reserved, so messages are acknowledged only once written"


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

    def commit_nowait(self) -> bool:
        """Write what is due without waiting, if that can be.

        Returns:
            Whether nothing is left to do. False means that ``commit`` shall be awaited.
        """
        while (write := self._due()) is not None:
            if not self._write_nowait(write):
                return False
        return self._torn_segment is None and not self._must_reserve()

    def _write_nowait(self, write: PendingWrite) -> bool:
        """Bring one write to its end without waiting; tell whether it is out of the way."""
        if self._syncs or not self._is_plain_append(write):
            return False
        log = write.segment.log
        assert log is not None
        try:
            if not log.write_nowait(write.buffers, write.position):
                return False
        except StorageError as error:
            self._fail(write, error)
            return False
        self._publish(write)
        self._index_writer.save_nowait(write.segment)
        self._finish(write)
        return True

    def begin_commit(self, on_done: Callable[[], None]) -> bool:
        """Begin to write and sync what is due, if that can be begun without waiting.

        Args:
            on_done: called when that has come to its end, well or not; more may be due by then.

        Returns:
            Whether it was begun. False means that ``commit`` shall be awaited.
        """
        write = self._due()
        if write is None or not self._syncs or not self._is_plain_append(write):
            return False
        if not self._begin_sync(write, on_done):
            return False
        self.lock.acquire_nowait()
        write.is_closed = self.is_committing = True
        return True

    def _begin_sync(self, write: PendingWrite, on_done: Callable[[], None]) -> bool:
        log = write.segment.log
        assert log is not None
        try:
            done = partial(self._on_sync_done, write, on_done)
            return log.begin_write(write.buffers, write.position, done)
        except StorageError as error:
            self._fail(write, error)
            return False

    def _on_sync_done(
        self, write: PendingWrite, on_done: Callable[[], None], error: StorageError | None
    ) -> None:
        if error is not None:
            self._fail(write, error)
        else:
            self._publish(write)
            # What is acknowledged is in the index file, too.
            if not self._index_writer.save_nowait(write.segment) and self._begin_index(
                write, on_done
            ):
                return
            self._finish(write)
        self._end_commit(on_done)

    def _begin_index(self, write: PendingWrite, on_done: Callable[[], None]) -> bool:
        """Begin to write the index of a write that is synced, when that cannot be done at once."""
        segment = write.segment

        def done(error: StorageError | None) -> None:
            if error is None:
                self._index_writer.note(segment)
            self._finish(write)
            self._end_commit(on_done)

        try:
            return segment.index.begin_save(segment.written_count, done)
        except StorageError as error:
            self._index_writer.fail(error)
            return False

    def _end_commit(self, on_done: Callable[[], None]) -> None:
        self.is_committing = False
        self.lock.release()
        on_done()

    def _is_plain_append(self, write: PendingWrite) -> bool:
        """Tell whether a write is an append to an open segment, and nothing else is in its way."""
        return (
            write.next_segment is None
            and write.segment.is_created
            and write.segment.log is not None
            and self._torn_segment is None
            and not self.lock.is_locked
        )

    async def commit(self) -> None:
        """Write everything that is due; returns at once when another task is doing so."""
        if self.is_committing:
            return
        self.is_committing = True
        try:
            while True:
                async with self.lock:
                    await self.write_due()
                # No await may follow this check: a producer that stages a batch before the return
                # sees `is_committing` and relies on this task. A fault ends it.
                if self._due() is None or self.fault is not None:
                    return
        finally:
            self.is_committing = False

    async def write_due(self) -> None:
        """Write what is due at this moment; the lock is held."""
        # What was begun cannot be taken back, so it is seen through.
        with trio.CancelScope(shield=True):
            # Not more than this: others wait for the lock, and producers never rest.
            for _ in range(len(self._journal)):
                write = self._due()
                if write is None or not await self._execute(write):
                    break
            await self._truncate_torn_segment()
            await self.reserve()

    async def write_all(self) -> None:
        """Write everything that is staged at this moment, due or not; the lock is held.

        Raises:
            ServerFault: acknowledged messages are still in memory only.
        """
        self._journal.close_last()
        await self.write_due()
        if self.fault is not None:
            raise ServerFault(self.fault.status, self.fault.message)

    async def save_indexes(self) -> None:
        """Write the index entries that are only in memory; the lock is held.

        Raises:
            StorageError: they stay in memory.
        """
        for segment in self._segment_list.segments:
            if segment.is_created and segment.index.written_count < segment.written_count:
                await self._files.open(segment)
                await self._index_writer.save(segment)

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
        await self._segment_list.last.create(self._storage)
        self._files.keep(self._segment_list.last)

    # ---- one write

    def _due(self) -> PendingWrite | None:
        """Return the write that is next, if it shall be written."""
        write = self._journal.first
        if write is None or (self._reserves and not write.is_closed):
            return None
        return write

    async def _execute(self, write: PendingWrite) -> bool:
        """Bring one write to its end; tell whether it went well."""
        write.is_closed = True
        try:
            await self._prepare(write.segment)
            assert write.segment.log is not None
            await write.segment.log.write(write.buffers, write.position, sync=self._syncs)
        except StorageError as error:
            self._fail(write, error)
            return False
        self._publish(write)
        if write.next_segment is not None:
            await self.roll(write.segment, write.next_segment)
        elif not self._index_writer.save_nowait(write.segment):
            await self._index_writer.save_or_warn(write.segment)
        self._finish(write)
        return True

    async def _prepare(self, segment: Segment) -> None:
        """Make sure that a segment's log ends where the next write begins."""
        if self._torn_segment is not None:
            await self._truncate(self._torn_segment)
        if not segment.is_created:
            await self._create_segment(segment)
        await self._files.open(segment)

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

    async def roll(self, full: Segment, following: Segment) -> None:
        """Seal a segment and begin the next, as far as can be; the lock is held."""
        await self._index_writer.save_or_warn(full)
        try:
            await self._create_segment(following)
        except StorageError as error:
            LOGGER.warning(
                "the next segment was not created, the next write tries again: %s", error
            )

    async def _create_segment(self, segment: Segment) -> None:
        """Make a segment's files; the ones before it are complete."""
        await segment.create(self._storage)
        self._files.keep(segment)
        self._segment_list.append(segment)
        for earlier in self._segment_list.segments:
            if earlier.start_offset < segment.start_offset and not earlier.is_sealed:
                await self._index_writer.save_or_warn(earlier)
                earlier.is_sealed = True
                self._unsynced.append(earlier)
                self._files.note(earlier)

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

    async def _truncate_torn_segment(self) -> None:
        """Cut what a failed write has left; tried again before the next write."""
        if self._torn_segment is not None:
            try:
                await self._truncate(self._torn_segment)
            except StorageError as error:
                LOGGER.warning(
                    "a failed write is not truncated yet, the next write tries again: %s",
                    error,
                )

    async def _truncate(self, segment: Segment) -> None:
        await self._files.open(segment)
        assert segment.log is not None
        await segment.log.truncate(segment.written_bytes)
        self._torn_segment = None

    # ---- reserved offsets

    def _must_reserve(self) -> bool:
        return self._reserves and self._reservation.needs_extension(self._appender.next_offset)

    async def reserve(self) -> None:
        """Reserve more offsets if they run low; the lock is held."""
        if not self._must_reserve():
            return
        try:
            await self._reservation.extend(self._appender.next_offset)
            self._problems.end(OFFSETS_NOT_RESERVED)
        except StorageError as error:
            self._problems.begin(OFFSETS_NOT_RESERVED, error)

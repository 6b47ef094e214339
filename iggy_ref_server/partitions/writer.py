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
from iggy_ref_server.baton import Baton
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.partitions.health import PartitionHealth
from iggy_ref_server.partitions.index_saver import IndexSaver, Troubles
from iggy_ref_server.partitions.settings import AckLevel
from iggy_ref_server.storage.interface import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from iggy_ref_server.partitions.appender import Appender
    from iggy_ref_server.partitions.chain import SegmentChain
    from iggy_ref_server.partitions.health import Health
    from iggy_ref_server.partitions.journal import PendingWrite
    from iggy_ref_server.partitions.reservation import Reservation
    from iggy_ref_server.partitions.settings import PartitionSettings
    from iggy_ref_server.segments.open_files import OpenFiles
    from iggy_ref_server.segments.segment import Segment
    from iggy_ref_server.storage.interface import Storage

__all__ = ["Writer"]

_logger = logging.getLogger(__name__)

NOT_STORED = "messages are not stored"
NOT_RESERVED = "offsets cannot be reserved, so messages are acknowledged only once written"


class Writer:
    """Writes a partition's segments.

    Args:
        storage: where they lie.
        files: keeps sealed ones open.
        settings: of the partition.
        chain: the segments.
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
        files: OpenFiles,
        settings: PartitionSettings,
        chain: SegmentChain,
        appender: Appender,
        reservation: Reservation,
        health: Health,
    ) -> None:
        self.lock = Baton()
        self.is_committing = False
        self.fault: ServerFault | None = None
        self._storage = storage
        self._files = files
        self._settings = settings
        self._chain = chain
        self._appender = appender
        self._journal = appender.journal
        self._reservation = reservation
        self._health = health
        self._syncs = settings.ack is AckLevel.FSYNC
        self._reserves = settings.ack is AckLevel.MEMORY
        self._torn: Segment | None = None
        self.has_failed_sync = False
        self._unsynced = [
            segment
            for segment in chain.segments
            if segment.is_sealed and not reservation.is_synced(segment.start_offset)
        ]
        self._troubles = Troubles()
        self._indexes = IndexSaver(files, settings, chain, self._troubles)

    @property
    def next_written(self) -> int:
        """The offset behind the last message that is written."""
        write = self._journal.first
        segment = self._chain.last if write is None else write.segment
        return segment.start_offset + segment.written_count

    @property
    def unconfirmed(self) -> range:
        """The offsets of acknowledged messages that are written, and not known to be synced."""
        if self._syncs:
            return range(0)
        return range((*self._unsynced, self._chain.last)[0].start_offset, self.next_written)

    # ---- committing

    def commit_now(self) -> bool:
        """Write what is due without waiting, if that can be.

        Returns:
            Whether nothing is left to do. False means that ``commit`` shall be awaited.
        """
        while (write := self._due()) is not None:
            if not self._write_now(write):
                return False
        return self._torn is None and not self._must_reserve()

    def _write_now(self, write: PendingWrite) -> bool:
        """Bring one write to its end without waiting; tell whether it is out of the way."""
        if self._syncs or not self._is_simple(write):
            return False
        log = write.segment.log
        assert log is not None
        try:
            if not log.write_now(write.buffers, write.position):
                return False
        except StorageError as error:
            self._fail(write, error)
            return False
        self._publish(write)
        self._indexes.save_now(write.segment)
        self._finish(write)
        return True

    def commit_soon(self, ended: Callable[[], None]) -> bool:
        """Begin to write and sync what is due, if that can be begun without waiting.

        Args:
            ended: called when that has come to its end, well or not; more may be due by then.

        Returns:
            Whether it was begun. False means that ``commit`` shall be awaited.
        """
        write = self._due()
        if write is None or not self._syncs or not self._is_simple(write):
            return False
        if not self._begin_sync(write, ended):
            return False
        self.lock.take_now()
        write.is_closed = self.is_committing = True
        return True

    def _begin_sync(self, write: PendingWrite, ended: Callable[[], None]) -> bool:
        log = write.segment.log
        assert log is not None
        try:
            done = partial(self._end_sync, write, ended)
            return log.write_soon(write.buffers, write.position, done)
        except StorageError as error:
            self._fail(write, error)
            return False

    def _end_sync(
        self, write: PendingWrite, ended: Callable[[], None], error: StorageError | None
    ) -> None:
        if error is not None:
            self._fail(write, error)
        else:
            self._publish(write)
            # What is acknowledged is in the index file, too.
            if not self._indexes.save_now(write.segment) and self._begin_index(write, ended):
                return
            self._finish(write)
        self._end_commit(ended)

    def _begin_index(self, write: PendingWrite, ended: Callable[[], None]) -> bool:
        """Begin to write the index of a write that is synced, when that cannot be done at once."""
        segment = write.segment

        def done(error: StorageError | None) -> None:
            if error is None:
                self._indexes.note(segment)
            self._finish(write)
            self._end_commit(ended)

        try:
            return segment.index.save_soon(segment.written_count, done)
        except StorageError as error:
            self._indexes.fail(error)
            return False

    def _end_commit(self, ended: Callable[[], None]) -> None:
        self.is_committing = False
        self.lock.give_back()
        ended()

    def _is_simple(self, write: PendingWrite) -> bool:
        """Tell whether a write is an append to an open segment, and nothing else is in its way."""
        return (
            write.next_segment is None
            and write.segment.is_created
            and write.segment.log is not None
            and self._torn is None
            and not self.lock.is_held
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
                if write is None or not await self._carry_out(write):
                    break
            await self._cut_torn()
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
        for segment in self._chain.segments:
            if segment.is_created and segment.index.written_count < segment.written_count:
                await self._files.open(segment)
                await self._indexes.save(segment)

    async def sync(self) -> None:
        """Bring everything that is written to the disk, while everything else goes on.

        Raises:
            ServerFault: it is unknown what the disk has; the partition takes no more messages.
        """
        last = self._chain.last
        segments = [*self._unsynced, *([last] if last.is_created else [])]
        try:
            for segment in segments:
                await self._sync_segment(segment)
        except StorageError as error:
            self._distrust(error)
            raise ServerFault(StatusCode.CANNOT_SYNC_FILE, str(error)) from error
        await self._note_synced()

    async def sync_sealed(self) -> None:
        """Bring sealed segments to the disk, while everything else goes on."""
        for segment in tuple(self._unsynced):
            try:
                await self._sync_segment(segment)
            except StorageError as error:
                if segment in self._unsynced:  # else it was removed meanwhile
                    self._distrust(error)
                    return
        await self._note_synced()

    async def _note_synced(self) -> None:
        # Up to the first segment that may still change, or has changed since it was synced.
        below = next(
            segment.start_offset
            for segment in self._chain.segments
            if not segment.is_sealed or segment in self._unsynced
        )
        try:
            await self._reservation.note_synced(below)
        except StorageError as error:
            _logger.warning(
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
        self._torn = None
        self.has_failed_sync = False
        self._unsynced.clear()

    async def begin_first(self) -> None:
        """Make the files of the only segment; the lock is held.

        Raises:
            StorageError: they cannot be made.
        """
        await self._chain.last.create(self._storage)
        self._files.keep(self._chain.last)

    # ---- one write

    def _due(self) -> PendingWrite | None:
        """Return the write that is next, if it shall be written."""
        write = self._journal.first
        if write is None or (self._reserves and not write.is_closed):
            return None
        return write

    async def _carry_out(self, write: PendingWrite) -> bool:
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
        elif not self._indexes.save_now(write.segment):
            await self._indexes.save_or_warn(write.segment)
        self._finish(write)
        return True

    async def _prepare(self, segment: Segment) -> None:
        """Make sure that a segment's log ends where the next write begins."""
        if self._torn is not None:
            await self._cut(self._torn)
        if not segment.is_created:
            await self._begin(segment)
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
        if self._troubles.end(NOT_STORED):
            _logger.warning("messages are stored again in %s", write.segment.directory)
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
            self._distrust(error)
        else:
            self._troubles.begin(NOT_STORED, error)
        if write.is_published:
            self.fault = fault
        elif not is_sync and self._torn is None and write.segment.is_created:
            self._torn = write.segment
        self._appender.withdraw(fault)

    def _distrust(self, error: StorageError) -> None:
        """Take no more messages if a sync failed, since it is unknown what the disk has."""
        if error.action == "sync":
            self.has_failed_sync = True
            self._health.worsen(PartitionHealth.READ_ONLY, str(error))

    # ---- segments

    async def roll(self, full: Segment, following: Segment) -> None:
        """Seal a segment and begin the next, as far as can be; the lock is held."""
        await self._indexes.save_or_warn(full)
        try:
            await self._begin(following)
        except StorageError as error:
            _logger.warning(
                "the next segment was not created, the next write tries again: %s", error
            )

    async def _begin(self, segment: Segment) -> None:
        """Make a segment's files; the ones before it are complete."""
        await segment.create(self._storage)
        self._files.keep(segment)
        self._chain.append(segment)
        for earlier in self._chain.segments:
            if earlier.start_offset < segment.start_offset and not earlier.is_sealed:
                await self._indexes.save_or_warn(earlier)
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

    async def _cut_torn(self) -> None:
        """Cut what a failed write has left; tried again before the next write."""
        if self._torn is not None:
            try:
                await self._cut(self._torn)
            except StorageError as error:
                _logger.warning(
                    "a failed write is not truncated yet, the next write tries again: %s",
                    error,
                )

    async def _cut(self, segment: Segment) -> None:
        await self._files.open(segment)
        assert segment.log is not None
        await segment.log.truncate(segment.written_bytes)
        self._torn = None

    # ---- reserved offsets

    def _must_reserve(self) -> bool:
        return self._reserves and self._reservation.is_low(self._appender.next_offset)

    async def reserve(self) -> None:
        """Reserve more offsets if they run low; the lock is held."""
        if not self._must_reserve():
            return
        try:
            await self._reservation.extend(self._appender.next_offset)
            self._troubles.end(NOT_RESERVED)
        except StorageError as error:
            self._troubles.begin(NOT_RESERVED, error)

"""A partition: an append-only log of messages in segments.

One event loop owns a partition. ``stage`` never waits. ``commit``, ``poll`` and ``store_offset``
return ``Steps``, which are run at once, in the background or awaited. All batches staged since the
last commit are written with one write:

    group = partition.stage(body, shape)                # once for each batch
    run_in_background(partition.commit(), nursery)      # once for all of them
    group.add_done_callback(acknowledge)
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from iggy_protocol import BatchShape, ConsumerKind, StatusCode
from iggy_ref_server.completion import Wait
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.partitions.append import JOURNAL_BYTES_MAX, Appender
from iggy_ref_server.partitions.health import HealthTracker, PartitionHealth
from iggy_ref_server.partitions.lifecycle import (
    UnsavedData,
    create_empty,
    flush_for_close,
    load_recent_ids,
    open_partition_files,
)
from iggy_ref_server.partitions.offsets import OffsetKey, OffsetTable
from iggy_ref_server.partitions.poll import PartitionReader
from iggy_ref_server.partitions.producers import ProducerTable
from iggy_ref_server.partitions.retention import SegmentRetention, is_older_than
from iggy_ref_server.partitions.steps import Steps, run_async, run_if_ready
from iggy_ref_server.partitions.write_receipts import WriteReceipts
from iggy_ref_server.partitions.writer import PartitionWriter
from iggy_ref_server.segments.errors import CorruptPartition, IndexDamaged
from iggy_ref_server.segments.segment import OpenSegments
from iggy_ref_server.storage.interface import Storage, StorageError

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from iggy_ref_server.clock import Clock
    from iggy_ref_server.partitions.deduplication import Deduplicator
    from iggy_ref_server.partitions.journal import CommitGroup
    from iggy_ref_server.partitions.poll_plan import PollParams, PollResult
    from iggy_ref_server.partitions.reservation import OffsetReservation
    from iggy_ref_server.partitions.segment_list import SegmentList
    from iggy_ref_server.partitions.settings import PartitionSettings


LOGGER = logging.getLogger(__name__)


class PartitionStatistics(NamedTuple):
    """A partition in numbers.

    Attributes:
        segments_count: how many segments there are.
        size_bytes: bytes of all messages.
        messages_count: how many messages are kept.
        current_offset: the highest offset, 0 while the partition is empty.
        oldest_sealed_timestamp_us: time of the first message of the oldest segment that may be
            dropped, None when there is no such segment.
    """

    segments_count: int
    size_bytes: int
    messages_count: int
    current_offset: int
    oldest_sealed_timestamp_us: int | None


class PartitionLog:
    """One partition; made by ``create`` or ``open``.

    Attributes:
        retention: removes segments.
        receipts: the newest writes of the sessions that may repeat them.
        producers: what idempotent producers have sent.
    """

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        settings: PartitionSettings,
        path: str,
        segment_list: SegmentList,
        reservation: OffsetReservation,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._path = path
        self._segment_list = segment_list
        self._reservation = reservation
        self._health = HealthTracker(path)
        self._files = OpenSegments(storage)
        self._appender = Appender(clock, settings, segment_list, reservation)
        self._writer = PartitionWriter(
            storage, self._files, settings, segment_list, self._appender, reservation, self._health
        )
        self._reader = PartitionReader(
            self._files,
            settings,
            segment_list,
            self._appender.journal,
            self._health,
            self._writer.lock,
        )
        self._offsets = OffsetTable(storage, path, syncs=settings.syncs_offsets)
        self.retention = SegmentRetention(
            storage,
            path,
            segment_list,
            self._appender,
            self._writer,
            self._offsets,
            reservation,
            self._health,
        )
        self.receipts = WriteReceipts()
        self.producers = ProducerTable()
        self._is_closed = False
        self._writes_survived = settings.writes_survived

    # ---- beginning and end

    @classmethod
    async def create(
        cls,
        storage: Storage,
        clock: Clock,
        settings: PartitionSettings,
        path: str,
        *,
        generation: int,
    ) -> PartitionLog:
        """Create an empty partition and delete the files of an earlier one.

        Raises:
            StorageError: the files cannot be created.
        """
        segment_list, reservation = await create_empty(
            storage, path, generation, settings.preallocated_bytes
        )
        return await cls(storage, clock, settings, path, segment_list, reservation)._finish_open()

    @classmethod
    async def open(
        cls,
        storage: Storage,
        clock: Clock,
        settings: PartitionSettings,
        path: str,
        *,
        generation: int,
    ) -> PartitionLog:
        """Open a partition and recover it after a crash.

        Files of an earlier generation than the given one are deleted.

        Raises:
            CorruptPartition: messages are damaged or missing in the middle, or it cannot be proved
                which generation the files belong to; nothing was changed.
            StorageError: a file cannot be read or changed.
        """
        segment_list, reservation = await open_partition_files(storage, path, settings, generation)
        return await cls(storage, clock, settings, path, segment_list, reservation)._finish_open()

    async def _finish_open(self) -> PartitionLog:
        await self._offsets.make_directories()
        await self._offsets.load(
            self._segment_list.last_offset,
            self._appender.next_offset,
            is_loss_possible=not self._writes_survived,
        )
        if self._appender.deduplicator is not None:
            await self._load_recent_ids(self._appender.deduplicator)
        self._files.keep(self._segment_list.last)
        async with self._writer.lock:
            await run_async(self._writer.write_due())
        return self

    async def _load_recent_ids(self, deduplicator: Deduplicator) -> None:
        for _ in self._segment_list.segments:
            try:
                await load_recent_ids(
                    deduplicator,
                    self._segment_list,
                    self._files,
                    self._reader,
                    self._clock.now_us(),
                )
                return
            except IndexDamaged as damage:
                await self._rebuild_damaged_index(damage)

    async def _rebuild_damaged_index(self, damage: IndexDamaged) -> None:
        try:
            await self._reader.rebuild_damaged_index(damage)
        except ServerFault as fault:
            raise CorruptPartition(self._path, fault.message) from fault

    async def aclose(self) -> UnsavedData | None:
        """Write and sync everything, and close the files; return what could not be saved."""
        if self._is_closed:
            return None
        self._is_closed = True
        self._segment_list.waiters.end(self._closed_fault())
        unsaved = await flush_for_close(
            self._writer, self._appender, self._offsets, self._reservation, self._health
        )
        self._files.close(*self._segment_list.segments)
        self._offsets.close()
        return unsaved

    @property
    def health(self) -> PartitionHealth:
        """What the partition can do."""
        return self._health.state

    @property
    def reason(self) -> str:
        """Why it cannot do more; empty when all is well."""
        return self._health.reason

    # ---- append

    @property
    def is_backlogged(self) -> bool:
        """Whether the journal is full, so that senders have to wait."""
        return self._appender.journal.size_bytes >= JOURNAL_BYTES_MAX

    def stage(self, body: memoryview, shape: BatchShape) -> CommitGroup:
        """Add a batch of messages to the journal; ``commit`` writes it.

        Args:
            body: a whole inspected SendMessages body. Its messages are stamped in place if it is
                writable, and it stays in use until the group is done.
            shape: what the inspection found.

        Returns:
            The group that tells when the batch is stored, or why not.

        Raises:
            ServerFault: the partition takes no messages.
        """
        self._health.check_writable()
        if self._is_closed:
            raise ServerFault(StatusCode.CANNOT_APPEND_MESSAGE, f"partition {self._path} is closed")
        if self._writer.fault is not None:
            # Acknowledged messages are in memory only, because the disk was full. They go first.
            run_if_ready(self._writer.commit())
            if self._writer.fault is not None:
                raise ServerFault(self._writer.fault.status, self._writer.fault.message)
        return self._appender.stage(body, shape)

    @property
    def staged_offset(self) -> int | None:
        """The offset of the first message of the batch that was staged last.

        None if all its messages were duplicates of earlier ones.
        """
        return self._appender.staged_offset

    def commit(self) -> Steps[None]:
        """Write all staged groups; does nothing while another commit is running, which does that.

        Errors are reported to the groups and never raised.
        """
        has_written = yield from self._writer.commit()
        # If another task is storing offsets, the next commit or flush writes the deferred ones:
        # commits do not queue up for the lock.
        if has_written and self._offsets.deferred_count and not self._offsets.lock.is_locked:
            try:
                yield from self._offsets.save_deferred(self._writer.next_written)
            except StorageError as error:
                LOGGER.warning(
                    "partition %s: stored offsets are not written yet, the next commit tries"
                    " again: %s",
                    self._path,
                    error,
                )

    # ---- polls

    def poll(self, request: PollParams) -> Steps[PollResult]:
        """Read messages.

        Raises:
            ServerFault: the partition cannot be read, or a message not be decrypted.
        """
        return self._reader.poll(request, self._stored(request))

    def _stored(self, request: PollParams) -> int | None:
        return None if request.consumer is None else self._offsets.get(request.consumer)

    def wait_for(self, offset: int) -> Wait:
        """Wait for a message with this offset or a later one; done if it is there.

        A callback of the wait must not touch the partition.

        Returns:
            The wait, which the caller cancels; its fault says that the partition was purged or
            closed.

        Raises:
            ServerFault: the partition is closed, or too many wait.
        """
        if self._is_closed:
            raise self._closed_fault()
        last_offset = self._segment_list.last_offset
        if self._segment_list.messages_count and last_offset is not None and offset <= last_offset:
            return Wait.finished()
        return self._segment_list.waiters.add(offset)

    def _closed_fault(self) -> ServerFault:
        return ServerFault(StatusCode.PARTITION_NOT_FOUND, f"partition {self._path} is closed")

    # ---- stored offsets

    def stored_offset(self, key: OffsetKey) -> int | None:
        """Return what is stored for a consumer or group, None when nothing is."""
        return self._offsets.get(key)

    def store_offset(self, key: OffsetKey, offset: int) -> Steps[None]:
        """Store an offset.

        Raises:
            ServerFault: there is no message with that offset yet, or the disk refused.
        """
        self._check_offset(offset)
        is_written = offset < self._writer.next_written
        with storage_errors_as_faults():
            yield from self._offsets.store(key, offset, is_written=is_written)

    async def delete_offset(self, key: OffsetKey) -> None:
        """Delete a stored offset.

        Raises:
            ServerFault: there is none, or the disk refused.
        """
        with storage_errors_as_faults():
            if not await self._offsets.delete(key):
                raise ServerFault(
                    StatusCode.CONSUMER_OFFSET_NOT_FOUND, f"{key} has no offset in {self._path}"
                )

    async def delete_other_groups(self, group_ids: Container[int]) -> None:
        """Delete the offsets of all other groups, because they are gone.

        Raises:
            ServerFault: the disk refused.
        """
        with storage_errors_as_faults():
            for group_id in self._offsets.group_ids():
                if group_id not in group_ids:
                    await self._offsets.delete(OffsetKey(ConsumerKind.GROUP, group_id))

    def _check_offset(self, offset: int) -> None:
        last_offset = self._segment_list.last_offset
        if last_offset is None or offset > last_offset:
            raise ServerFault(
                StatusCode.INVALID_OFFSET,
                f"offset {offset} is beyond the last message of {self._path}",
            )

    # ---- flushing

    async def flush(self, *, fsync: bool) -> None:
        """Write everything that is in memory; with ``fsync`` wait until the disk has it.

        Raises:
            ServerFault: something is still in memory only.
        """
        self._health.check_writable()
        with storage_errors_as_faults():
            async with self._writer.lock:
                await self._writer.write_all()
                await self._writer.save_indexes()
            if fsync:
                await self._writer.sync()
            await run_async(self._offsets.save_deferred(self._writer.next_written))

    async def save(self) -> None:
        """Run the periodic flush and sync; errors are logged and retried by the next one."""
        if self.health is not PartitionHealth.OK or self._is_closed:
            return
        try:
            await self.flush(fsync=False)
            await self._writer.sync_sealed()
        except ServerFault as fault:
            LOGGER.warning(
                "partition %s: the periodic flush failed, the next one tries again: %s",
                self._path,
                fault,
            )

    # ---- removing

    async def purge(self, *, generation: int) -> None:
        """Remove all messages and stored offsets; the next message gets offset 0.

        The metadata hold the new generation already. If the process dies during the purge, the next
        start finds files of an earlier generation and deletes them.

        Raises:
            ServerFault: the disk refused; the partition is read-only until the next start.
        """
        self.producers.clear()
        await self.retention.purge(generation)

    async def delete_segments(self, count: int) -> int:
        """Remove at most so many of the oldest sealed segments that no consumer needs.

        Returns:
            How many were removed.

        Raises:
            ServerFault: the disk refused.
        """
        return await self.retention.delete_segments(count)

    async def expire_segments(self, expiry_us: int) -> int:
        """Remove the sealed segments whose messages are all too old and that no consumer needs.

        Returns:
            How many were removed.

        Raises:
            ServerFault: the disk refused.
        """
        return await self.retention.expire_segments(expiry_us, self._clock.now_us())

    async def roll_aged(self, max_age_us: int) -> None:
        """Seal the segment that is written to if its first message is too old.

        Raises:
            ServerFault: messages in memory could not be written before.
        """
        if self.health is PartitionHealth.OK and not self._is_closed and self._is_aged(max_age_us):
            async with self._writer.lock:
                await self._writer.write_all()
                if not len(self._appender.journal) and self._is_aged(max_age_us):
                    following = self._appender.begin_segment()
                    await run_async(self._writer.roll(self._segment_list.last, following))

    def _is_aged(self, max_age_us: int) -> bool:
        return is_older_than(
            self._segment_list.last, max_age_us=max_age_us, now_us=self._clock.now_us()
        )

    # ---- numbers

    def kept_offsets(self) -> range:
        """Return the offsets from the oldest message to the newest; none if there is no message."""
        segment_list = self._segment_list
        first = segment_list.oldest_offset
        last_offset = segment_list.last_offset
        if last_offset is None or not segment_list.messages_count:
            return range(segment_list.next_offset, segment_list.next_offset)
        return range(first, last_offset + 1)

    def statistics(self) -> PartitionStatistics:
        """Return the partition in numbers."""
        oldest = self._segment_list.segments[0]
        return PartitionStatistics(
            segments_count=len(self._segment_list.segments),
            size_bytes=self._segment_list.size_bytes,
            messages_count=self._segment_list.messages_count,
            current_offset=self._segment_list.last_offset or 0,
            oldest_sealed_timestamp_us=oldest.first_timestamp_us if oldest.is_sealed else None,
        )


@contextmanager
def storage_errors_as_faults() -> Iterator[None]:
    """Raise storage errors as faults for the client."""
    try:
        yield
    except StorageError as error:
        raise ServerFault(StatusCode.CANNOT_WRITE_TO_FILE, str(error)) from error

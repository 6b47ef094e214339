"""Retention: which of the oldest sealed segments may be removed.

A segment is kept while a consumer or group has a stored offset before the segment's last message.
Segments are removed from the oldest on only, so that no hole appears.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from itertools import takewhile
from typing import TYPE_CHECKING

import trio

from iggy_protocol import StatusCode
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.partitions.generation import (
    Generation,
    GenerationState,
    wipe_partition,
    write_generation,
)
from iggy_ref_server.partitions.health import HealthTracker, PartitionHealth
from iggy_ref_server.partitions.steps import run_async
from iggy_ref_server.segments.segment import Segment
from iggy_ref_server.storage.interface import DiskFull, Storage, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from iggy_ref_server.partitions.append import Appender
    from iggy_ref_server.partitions.offsets import OffsetTable
    from iggy_ref_server.partitions.reservation import OffsetReservation
    from iggy_ref_server.partitions.segment_list import SegmentList
    from iggy_ref_server.partitions.writer import PartitionWriter


LOGGER = logging.getLogger(__name__)


def plan_removal(
    segments: Sequence[Segment], barrier: int | None, *, count: int
) -> tuple[Segment, ...]:
    """Choose the oldest segments.

    Args:
        segments: all of a partition's, oldest first; the last one is never chosen.
        barrier: the smallest stored offset of any consumer or group, None when there is none.
        count: the most to choose.
    """
    removable = takewhile(lambda segment: is_removable(segment, barrier), segments[:-1])
    return tuple(segment for segment, _ in zip(removable, range(count), strict=False))


def plan_expiry(
    segments: Sequence[Segment], barrier: int | None, *, expiry_us: int, now_us: int
) -> tuple[Segment, ...]:
    """Choose the segments whose last message is too old.

    Args:
        segments: all of a partition's, oldest first; the last one is never chosen.
        barrier: the smallest stored offset of any consumer or group, None when there is none.
        expiry_us: how old a message may be.
        now_us: the time.
    """

    def expired() -> Iterator[Segment]:
        for segment in segments[:-1]:
            # A segment of unknown age does not expire, unless there is nothing in it.
            last_us = segment.last_timestamp_us
            if segment.messages_count and (not last_us or last_us + expiry_us > now_us):
                return
            if not is_removable(segment, barrier):
                return
            yield segment

    return tuple(expired())


def plan_reclaim(
    segments: Sequence[Segment], barrier: int | None, *, is_unread_allowed: bool
) -> Segment | None:
    """Choose what goes when the disk is almost full: the oldest segment, if it may go.

    Args:
        segments: all of a partition's, oldest first; the last one is never chosen.
        barrier: the smallest stored offset of any consumer or group, None when there is none.
        is_unread_allowed: whether a segment may go that a consumer has not read.
    """
    oldest, *newer = segments
    may_go = newer and oldest.is_sealed and oldest.messages_count
    return oldest if may_go and (is_unread_allowed or is_removable(oldest, barrier)) else None


def is_older_than(segment: Segment, *, max_age_us: int, now_us: int) -> bool:
    """Tell whether the segment that is written to is old enough to be followed by a new one."""
    return bool(segment.messages_count) and segment.first_timestamp_us + max_age_us <= now_us


def is_removable(segment: Segment, barrier: int | None) -> bool:
    """Tell whether a segment is complete and read by every consumer with a stored offset."""
    return segment.is_sealed and (barrier is None or segment.next_offset - 1 <= barrier)


# Removes old segments, or all messages of a partition.
#
# Segments leave the list before their files are removed, so that no new poll plans to read them. A
# poll that holds a slice of a removed file can still read it.


# Producers that never pause get an error in the end, and a purge comes to its end.
DRAINS_MAX = 16


class SegmentRetention:
    """Removes a partition's messages.

    Args:
        storage: where the files lie.
        path: the partition's directory.
        segment_list: the segments.
        appender: begins anew after a purge.
        writer: keeps away from the files meanwhile.
        offsets: hold segments back, and go with a purge.
        reservation: is told what goes, before it does.
        health: worsened by a purge that fails.
    """

    def __init__(
        self,
        storage: Storage,
        path: str,
        segment_list: SegmentList,
        appender: Appender,
        writer: PartitionWriter,
        offsets: OffsetTable,
        reservation: OffsetReservation,
        health: HealthTracker,
    ) -> None:
        self._storage = storage
        self._path = path
        self._segment_list = segment_list
        self._appender = appender
        self._writer = writer
        self._offsets = offsets
        self._reservation = reservation
        self._health = health
        self._lock = trio.Lock()

    async def delete_segments(self, count: int) -> int:
        """Remove the oldest segments that may go; return how many did."""
        async with self._lock:
            plan = plan_removal(self._segment_list.segments, self._offsets.lowest(), count=count)
            return await self._remove(plan)

    async def expire_segments(self, expiry_us: int, now_us: int) -> int:
        """Remove the segments that are too old and may go; return how many did."""
        async with self._lock:
            plan = plan_expiry(
                self._segment_list.segments,
                self._offsets.lowest(),
                expiry_us=expiry_us,
                now_us=now_us,
            )
            return await self._remove(plan)

    def reclaimable(self, *, is_unread_allowed: bool) -> Segment | None:
        """Find what could go when the disk is almost full."""
        lowest = self._offsets.lowest()
        return plan_reclaim(
            self._segment_list.segments, lowest, is_unread_allowed=is_unread_allowed
        )

    async def reclaim(self, segment: Segment) -> bool:
        """Remove the oldest segment even if it is needed; False if another is the oldest now."""
        async with self._lock:
            oldest, *newer = self._segment_list.segments
            return bool(newer) and oldest is segment and await self._remove((segment,)) == 1

    async def _remove(self, segments: tuple[Segment, ...]) -> int:
        if not segments:
            return 0
        kept_from = self._segment_list.segments[len(segments)].start_offset
        # On a full disk there is no room for the note before something has gone. If the process
        # dies in between, the next start sets the partition aside, and nothing is lost.
        is_noted = await self._record_removed(kept_from)
        await self._remove_files(segments)
        if not is_noted and not await self._record_removed(kept_from):
            LOGGER.warning(
                "partition %s: the full disk has no space to record that segments were deleted;"
                " free some, otherwise the next start quarantines the partition until"
                " `iggy-server repair` has run",
                self._path,
            )
        return len(segments)

    async def _remove_files(self, segments: tuple[Segment, ...]) -> None:
        # One after another, each to its end: what a crash leaves has no hole.
        for segment in segments:
            removed = self._segment_list.remove_first()
            assert removed is segment
            self._writer.forget(segment)
            try:
                with trio.CancelScope(shield=True):
                    await segment.remove(self._storage)
            except StorageError as error:
                self._segment_list.restore_first(segment)
                raise ServerFault(StatusCode.CANNOT_DELETE_FILE, str(error)) from error

    async def _record_removed(self, kept_from: int) -> bool:
        """Have a later start know that segments go on purpose; False if the disk is full."""
        try:
            await self._reservation.record_removed(kept_from)
        except DiskFull:
            return False
        except StorageError as error:
            raise ServerFault(StatusCode.CANNOT_DELETE_FILE, str(error)) from error
        return True

    async def purge(self, generation: int) -> None:
        """Remove everything and begin a new life."""
        async with self._lock, self._writer.lock, self._offsets.lock:
            await self._drain()
            # Nothing is awaited in between: polls see all or nothing.
            self._writer.restart(self._segment_list.restart(Segment(self._path, 0)))
            self._appender.reset()
            self._offsets.clear()
            purged = f"partition {self._path} was purged"
            self._segment_list.waiters.end(
                ServerFault(StatusCode.PARTITION_HISTORY_UNAVAILABLE, purged)
            )
            with trio.CancelScope(shield=True):
                await self._wipe(generation)

    async def _drain(self) -> None:
        """Bring the groups of those who wait to their end; forget what is only in memory."""
        for _ in range(DRAINS_MAX):
            if self._appender.journal.newest_group is None:
                break
            await run_async(self._writer.write_due())
        refusal = ServerFault(
            StatusCode.CANNOT_APPEND_MESSAGE, f"partition {self._path} is being purged"
        )
        self._appender.roll_back(refusal)
        self._appender.journal.clear()

    async def _wipe(self, generation: int) -> None:
        creating = Generation(generation, GenerationState.CREATING)
        try:
            # From here on a start finishes what is begun; what is acknowledged comes afterwards. A
            # full disk has room for it only behind the wipe: the old number is over all the same.
            with suppress(DiskFull):
                await write_generation(self._storage, self._path, creating)
            async with self._reservation.lock:
                await wipe_partition(self._storage, self._path)
                await self._writer.create_first_segment()
                await self._offsets.make_directories()
                await write_generation(self._storage, self._path, Generation(generation))
            await run_async(self._writer.reserve())
        except StorageError as error:
            self._health.degrade(PartitionHealth.READ_ONLY, f"a purge failed: {error}")
            raise ServerFault(StatusCode.CANNOT_DELETE_FILE, str(error)) from error
        self._health.restore()

"""Removes old segments, or all messages of a partition.

Segments leave the list before their files are removed, so that no new poll plans to read them. A
poll that holds a slice of a removed file can still read it.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from iggy_protocol import StatusCode
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.partitions.health import PartitionHealth
from iggy_ref_server.partitions.incarnation import (
    Generation,
    GenerationState,
    wipe,
    write_generation,
)
from iggy_ref_server.partitions.retention import plan_expiry, plan_reclaim, plan_removal
from iggy_ref_server.segments.segment import Segment
from iggy_ref_server.storage.interface import DiskFull, StorageError

if TYPE_CHECKING:
    from iggy_ref_server.partitions.appender import Appender
    from iggy_ref_server.partitions.chain import SegmentChain
    from iggy_ref_server.partitions.health import Health
    from iggy_ref_server.partitions.offsets import OffsetTable
    from iggy_ref_server.partitions.reservation import Reservation
    from iggy_ref_server.partitions.writer import Writer
    from iggy_ref_server.storage.interface import Storage

__all__ = ["Removal"]

_logger = logging.getLogger(__name__)

# Producers that never pause get an error in the end, and a purge comes to its end.
DRAINS_MAX = 16


class Removal:
    """Removes a partition's messages.

    Args:
        storage: where the files lie.
        path: the partition's directory.
        chain: the segments.
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
        chain: SegmentChain,
        appender: Appender,
        writer: Writer,
        offsets: OffsetTable,
        reservation: Reservation,
        health: Health,
    ) -> None:
        self._storage = storage
        self._path = path
        self._chain = chain
        self._appender = appender
        self._writer = writer
        self._offsets = offsets
        self._reservation = reservation
        self._health = health
        self._lock = trio.Lock()

    async def delete_segments(self, count: int) -> int:
        """Remove the oldest segments that may go; return how many did."""
        async with self._lock:
            plan = plan_removal(self._chain.segments, self._offsets.lowest(), count=count)
            return await self._remove(plan)

    async def expire_segments(self, expiry_us: int, now_us: int) -> int:
        """Remove the segments that are too old and may go; return how many did."""
        async with self._lock:
            plan = plan_expiry(
                self._chain.segments, self._offsets.lowest(), expiry_us=expiry_us, now_us=now_us
            )
            return await self._remove(plan)

    def reclaimable(self, *, is_unread_allowed: bool) -> Segment | None:
        """Find what could go when the disk is almost full."""
        lowest = self._offsets.lowest()
        return plan_reclaim(self._chain.segments, lowest, is_unread_allowed=is_unread_allowed)

    async def reclaim(self, segment: Segment) -> bool:
        """Remove the oldest segment even if it is needed; False if another is the oldest now."""
        async with self._lock:
            oldest, *newer = self._chain.segments
            return bool(newer) and oldest is segment and await self._remove((segment,)) == 1

    async def _remove(self, segments: tuple[Segment, ...]) -> int:
        if not segments:
            return 0
        kept_from = self._chain.segments[len(segments)].start_offset
        # On a full disk there is no room for the note before something has gone. If the process
        # dies in between, the next start sets the partition aside, and nothing is lost.
        is_noted = await self._note_removed(kept_from)
        await self._remove_files(segments)
        if not is_noted and not await self._note_removed(kept_from):
            _logger.warning(
                "partition %s: the full disk has no space to record that segments were deleted;"
                " free some, otherwise the next start quarantines the partition until"
                " `iggy-server repair` has run",
                self._path,
            )
        return len(segments)

    async def _remove_files(self, segments: tuple[Segment, ...]) -> None:
        # One after another, each to its end: what a crash leaves has no hole.
        for segment in segments:
            removed = self._chain.remove_first()
            assert removed is segment
            self._writer.forget(segment)
            try:
                with trio.CancelScope(shield=True):
                    await segment.remove(self._storage)
            except StorageError as error:
                self._chain.restore_first(segment)
                raise ServerFault(StatusCode.CANNOT_DELETE_FILE, str(error)) from error

    async def _note_removed(self, kept_from: int) -> bool:
        """Have a later start know that segments go on purpose; False if the disk is full."""
        try:
            await self._reservation.note_removed(kept_from)
        except DiskFull:
            return False
        except StorageError as error:
            raise ServerFault(StatusCode.CANNOT_DELETE_FILE, str(error)) from error
        return True

    async def purge(self, incarnation: int) -> None:
        """Remove everything and begin a new life."""
        async with self._lock, self._writer.lock, self._offsets.lock:
            await self._drain()
            # Nothing is awaited in between: polls see all or nothing.
            self._writer.restart(self._chain.restart(Segment(self._path, 0)))
            self._appender.begin_anew()
            self._offsets.clear()
            with trio.CancelScope(shield=True):
                await self._wipe(incarnation)

    async def _drain(self) -> None:
        """Bring the groups of those who wait to their end; forget what is only in memory."""
        for _ in range(DRAINS_MAX):
            if self._appender.journal.newest_group is None:
                break
            await self._writer.write_due()
        refusal = ServerFault(
            StatusCode.CANNOT_APPEND_MESSAGE, f"partition {self._path} is being purged"
        )
        self._appender.withdraw(refusal)
        self._appender.journal.clear()

    async def _wipe(self, incarnation: int) -> None:
        creating = Generation(incarnation, GenerationState.CREATING)
        try:
            # From here on a start finishes what is begun; what is acknowledged comes afterwards. A
            # full disk has room for it only behind the wipe: the old number is over all the same.
            with suppress(DiskFull):
                await write_generation(self._storage, self._path, creating)
            async with self._reservation.lock:
                await wipe(self._storage, self._path)
                await self._writer.begin_first()
                await self._offsets.make_directories()
                await write_generation(self._storage, self._path, Generation(incarnation))
            await self._writer.reserve()
        except StorageError as error:
            self._health.worsen(PartitionHealth.READ_ONLY, f"a purge failed: {error}")
            raise ServerFault(StatusCode.CANNOT_DELETE_FILE, str(error)) from error
        self._health.restore()

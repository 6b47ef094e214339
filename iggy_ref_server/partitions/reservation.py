"""Persistent facts about a partition's offsets: reserved, lost, synced and removed ones.

Under acknowledgement from memory a crash loses messages whose offsets clients have seen. No other
message may get those offsets. So a *ceiling* is written ahead: only offsets below it may be
acknowledged before they are written. After a crash the next message gets the ceiling as its offset,
in a new segment. After a clean stop no offset is skipped. The other levels need no ceiling.

A *gap* is a range of offsets that is known to be lost, so that recovery does not take it for a
missing file. The ceiling makes gaps, and so does a power loss that tears a full segment before it
was synced. Segments below ``synced_below`` are synced: errors in them are damage. Messages below
``stored_below`` were synced by a clean stop. Segments below ``removed_below`` were deleted on
purpose; this is recorded before the first file goes, so other missing first segments are damage.

    {"ceiling": 131072, "gaps": [[1000, 65536]], "synced_below": 800, ...}
    5f0c2a9be1d34c77

The second line is a checksum of the first line and of the partition's ids. Files of earlier
releases have none; they are accepted, and written again with one. The generation file records that
this file exists, so that its loss is noticed. On disk the file is named ``reservation``.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec
import trio

from iggy_ref_server.partitions.generation import (
    GenerationDamaged,
    partition_checksum,
    read_generation,
    write_generation,
)
from iggy_ref_server.segments.errors import CorruptPartition
from iggy_ref_server.storage.interface import Storage, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable


LOGGER = logging.getLogger(__name__)

# Large enough that even small messages seldom wait for a step, and offsets have 64 bits.
RESERVATION_STEP = 65_536
RESERVATION_FILE = "reservation"
RESERVATION_FILE_BYTES_MAX = 1 << 20


class ReservationRecord(msgspec.Struct, frozen=True):
    """The content of the file.

    Attributes:
        ceiling: offsets from here on were never given away before they were written.
        gaps: offsets that are lost, as half-open ranges.
        synced_below: segments that start below are complete on the disk.
        stored_below: messages below were on the disk when a server stopped in order.
        removed_below: segments that start below were deleted on purpose.
    """

    ceiling: int = 0
    gaps: tuple[tuple[int, int], ...] = ()
    synced_below: int = 0
    stored_below: int = 0
    removed_below: int = 0


class OffsetReservation:
    """The offsets of one partition.

    Args:
        storage: where the file lies.
        directory: the partition's directory.
        record: what the file says, None where there is none.

    Attributes:
        ceiling: offsets below may be acknowledged from memory.
    """

    def __init__(
        self, storage: Storage, directory: str, record: ReservationRecord | None = None
    ) -> None:
        self._storage = storage
        self._directory = directory
        self._path = f"{directory}/{RESERVATION_FILE}"
        self._record = record or ReservationRecord()
        self._generation = 0
        self.is_missing = record is None
        self.is_checked = True
        self.lock = trio.Lock()
        # What an earlier process reserved is not for this one to use.
        self.ceiling = 0

    @classmethod
    async def load(cls, storage: Storage, directory: str) -> OffsetReservation:
        """Read the file, if there is one.

        Raises:
            CorruptPartition: it cannot be understood.
            StorageError: it cannot be read.
        """
        path = f"{directory}/{RESERVATION_FILE}"
        content = await storage.read_file(path, size_max=RESERVATION_FILE_BYTES_MAX)
        if content is None:
            return cls(storage, directory)
        text, _, check = content.partition(b"\n")
        if check and check != checksum_line(text, directory):
            reason = (
                f"{path} is damaged: its checksum does not match,"
                " or it belongs to another partition"
            )
            raise CorruptPartition(directory, reason)
        try:
            loaded = cls(storage, directory, msgspec.json.decode(text, type=ReservationRecord))
        except msgspec.DecodeError as error:
            raise CorruptPartition(directory, f"{path} cannot be understood: {error}") from error
        loaded.is_checked = bool(check)
        return loaded

    # ---- gaps

    def covers_gap(self, start: int, end: int) -> bool:
        """Tell whether the offsets from start to before end are known to be lost."""
        reached = start
        for gap_start, gap_end in self._record.gaps:  # sorted; neighbours make one larger gap
            if gap_start <= reached < gap_end:
                reached = gap_end
        return reached >= end

    async def record_gaps(self, gaps: Iterable[tuple[int, int]]) -> None:
        """Remember that offsets are lost, each gap from a start to before an end.

        Raises:
            StorageError: it is not remembered.
        """
        generation = self._generation
        async with self.lock:
            known = tuple(sorted({*self._record.gaps, *gaps}))
            if known != self._record.gaps:
                record = msgspec.structs.replace(self._record, gaps=known)
                await self._write(record, generation)

    async def _raise_mark(self, name: str, offset: int) -> None:
        """Write a higher offset under one of the names of the record; they never fall."""
        generation = self._generation
        async with self.lock:
            if offset > getattr(self._record, name):
                record = msgspec.structs.replace(self._record, **{name: offset})
                await self._write(record, generation)

    # ---- what is safe

    def is_synced(self, start_offset: int) -> bool:
        """Tell whether the segment that starts here is complete on the disk."""
        return start_offset < self._record.synced_below

    async def record_synced(self, below: int) -> None:
        """Remember that all segments that start below are complete on the disk.

        Raises:
            StorageError: it is not remembered.
        """
        await self._raise_mark("synced_below", below)

    @property
    def stored_below(self) -> int:
        """The offset behind the last message that was on the disk when a server stopped."""
        return self._record.stored_below

    @property
    def highest(self) -> int:
        """An offset behind all that are known to have been given."""
        record = self._record
        ends = [end for _, end in record.gaps]
        return max(
            record.ceiling, record.stored_below, record.synced_below, record.removed_below, *ends
        )

    # ---- what was removed

    @property
    def removed_below(self) -> int:
        """Where the oldest segment may start at the latest."""
        return self._record.removed_below

    async def record_removed(self, below: int) -> None:
        """Remember that segments which start below are about to be deleted, or are gone for good.

        Raises:
            StorageError: it is not remembered.
        """
        await self._raise_mark("removed_below", below)

    # ---- reserved offsets

    async def skip_to(self, offset: int) -> None:
        """Remember that no offset below may be given again.

        Raises:
            StorageError: it is not remembered.
        """
        await self._raise_mark("ceiling", offset)

    async def resume(self, next_offset: int) -> int:
        """Decide after a start which offset comes next, and note the gap if there is one.

        Args:
            next_offset: the offset behind the last message that was found.

        Raises:
            StorageError: the gap cannot be noted.
        """
        resumed = max(self._record.ceiling, next_offset)
        if resumed > next_offset:
            await self.record_gaps([(next_offset, resumed)])
        return resumed

    def needs_extension(self, next_offset: int) -> bool:
        """Tell whether it is time to reserve more offsets."""
        return self.ceiling - next_offset < RESERVATION_STEP

    async def extend(self, next_offset: int) -> None:
        """Reserve more offsets.

        Raises:
            StorageError: the ceiling stays where it is.
        """
        generation = self._generation
        async with self.lock:
            ceiling = next_offset + 2 * RESERVATION_STEP
            await self._write(msgspec.structs.replace(self._record, ceiling=ceiling), generation)
            if generation == self._generation:
                self.ceiling = ceiling

    async def release_unused(self, next_offset: int) -> None:
        """Give back what was not used, and note how many messages there are: all are safe.

        An error does not stop the shutdown: the next start skips some offsets then.
        """
        async with self.lock:
            self.ceiling = 0
            record = msgspec.structs.replace(
                self._record,
                ceiling=min(self._record.ceiling, next_offset),
                stored_below=max(self._record.stored_below, next_offset),
            )
            if record != self._record:
                try:
                    await self._write(record, self._generation)
                except StorageError as error:
                    LOGGER.warning(
                        "the clean stop was not recorded, the next start skips some offsets: %s",
                        error,
                    )

    async def confirm(self) -> None:
        """Write the file again if an earlier release wrote it, without a checksum.

        Raises:
            StorageError: it is as it was.
        """
        async with self.lock:
            if not self.is_checked:
                await self._write(self._record, self._generation)

    def reset(self) -> None:
        """Begin anew; the file is going, and what is still to be noted is of the past."""
        self._record = ReservationRecord()
        self._generation += 1
        self.is_missing = True
        self.ceiling = 0

    async def _write(self, record: ReservationRecord, generation: int) -> None:
        """Write the file, unless the partition was purged since the call; the lock is held."""
        if generation != self._generation:
            return
        text = msgspec.json.encode(record)
        await self._storage.replace(self._path, text + b"\n" + checksum_line(text, self._directory))
        if generation == self._generation:
            self._record = record
            self.is_checked = True
            if self.is_missing:
                self.is_missing = False
                await self._mark_in_generation_file()

    async def _mark_in_generation_file(self) -> None:
        """Have the file ``incarnation`` say that there must be this one from now on."""
        try:
            found = await read_generation(self._storage, self._directory)
        except GenerationDamaged:
            return  # a repair comes to that, too
        if found is not None and found.is_checked and not found.has_reservation:
            marked = found._replace(has_reservation=True)
            await write_generation(self._storage, self._directory, marked)


def checksum_line(text: bytes, directory: str) -> bytes:
    """Return the line that vouches for the text of a partition's file."""
    return b"%016x\n" % partition_checksum(text, directory)

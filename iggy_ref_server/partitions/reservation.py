"""What a partition knows about its offsets: which are promised, which are lost, which are safe.

Under acknowledgement from memory a crash loses messages whose offsets clients have seen already.
To give those offsets to no other message, a *ceiling* is written ahead: only offsets below it may
be acknowledged before they are written. After a crash the next message gets the ceiling as its
offset, in a new segment. After an orderly stop nothing is missing and nothing is skipped. The other
levels need no ceiling.

A *gap* is a range of offsets that is known to be lost, so that it is not taken for a lost file. The
ceiling makes gaps, and so does a power loss that tears a segment which was full but not yet safe.
Segments below ``synced_below`` are safe: what is wrong with those is damage.

    {"ceiling": 131072, "gaps": [[1000, 65536]], "synced_below": 800}

Owns the file ``reservation`` in a partition's directory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import trio

from iggy_ref_server.segments.damage import CorruptPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iggy_ref_server.storage.interface import Storage

__all__ = ["RESERVATION_STEP", "Reservation"]

# Large enough that even small messages seldom wait for a step, and offsets have 64 bits.
RESERVATION_STEP = 65_536
NAME = "reservation"
SIZE_MAX = 1 << 20


class Record(msgspec.Struct, frozen=True):
    """The content of the file.

    Attributes:
        ceiling: offsets from here on were never given away before they were written.
        gaps: offsets that are lost, as half-open ranges.
        synced_below: segments that start below are complete on the disk.
    """

    ceiling: int = 0
    gaps: tuple[tuple[int, int], ...] = ()
    synced_below: int = 0


class Reservation:
    """The offsets of one partition.

    Args:
        storage: where the file lies.
        directory: the partition's directory.
        record: what the file says, None where there is none.

    Attributes:
        ceiling: offsets below may be acknowledged from memory.
    """

    def __init__(self, storage: Storage, directory: str, record: Record | None = None) -> None:
        self._storage = storage
        self._path = f"{directory}/{NAME}"
        self._record = record or Record()
        self.is_missing = record is None
        self._lock = trio.Lock()
        # What an earlier life reserved is not for this one to use.
        self.ceiling = 0

    @classmethod
    async def load(cls, storage: Storage, directory: str) -> Reservation:
        """Read the file, if there is one.

        Raises:
            CorruptPartition: it cannot be understood.
            StorageError: it cannot be read.
        """
        path = f"{directory}/{NAME}"
        content = await storage.read_file(path, size_max=SIZE_MAX)
        if content is None:
            return cls(storage, directory)
        try:
            return cls(storage, directory, msgspec.json.decode(content, type=Record))
        except msgspec.DecodeError as error:
            raise CorruptPartition(directory, f"{path} cannot be understood: {error}") from error

    # ---- gaps

    def explains(self, start: int, end: int) -> bool:
        """Tell whether the offsets from start to before end are known to be lost."""
        reached = start
        for gap_start, gap_end in self._record.gaps:  # sorted; neighbours make one larger gap
            if gap_start <= reached < gap_end:
                reached = gap_end
        return reached >= end

    async def note_gaps(self, gaps: Iterable[tuple[int, int]]) -> None:
        """Remember that offsets are lost, each gap from a start to before an end.

        Raises:
            StorageError: it is not remembered.
        """
        async with self._lock:
            known = tuple(sorted({*self._record.gaps, *gaps}))
            if known != self._record.gaps:
                await self._write(msgspec.structs.replace(self._record, gaps=known))

    # ---- what is safe

    def is_synced(self, start_offset: int) -> bool:
        """Tell whether the segment that starts here is complete on the disk."""
        return start_offset < self._record.synced_below

    async def note_synced(self, below: int) -> None:
        """Remember that all segments that start below are complete on the disk.

        Raises:
            StorageError: it is not remembered.
        """
        async with self._lock:
            if below > self._record.synced_below:
                await self._write(msgspec.structs.replace(self._record, synced_below=below))

    # ---- reserved offsets

    async def resume(self, next_offset: int) -> int:
        """Decide after a start which offset comes next, and note the gap if there is one.

        Args:
            next_offset: the offset behind the last message that was found.

        Raises:
            StorageError: the gap cannot be noted.
        """
        resumed = max(self._record.ceiling, next_offset)
        if resumed > next_offset:
            await self.note_gaps([(next_offset, resumed)])
        return resumed

    def is_low(self, next_offset: int) -> bool:
        """Tell whether it is time to reserve more offsets."""
        return self.ceiling - next_offset < RESERVATION_STEP

    async def extend(self, next_offset: int) -> None:
        """Reserve more offsets.

        Raises:
            StorageError: the ceiling stays where it is.
        """
        async with self._lock:
            ceiling = next_offset + 2 * RESERVATION_STEP
            await self._write(msgspec.structs.replace(self._record, ceiling=ceiling))
            self.ceiling = ceiling

    async def settle(self, next_offset: int) -> None:
        """Give back what was not used, when all messages are safe.

        Raises:
            StorageError: the next start will find a gap.
        """
        async with self._lock:
            self.ceiling = 0
            if self._record.ceiling > next_offset:
                await self._write(msgspec.structs.replace(self._record, ceiling=next_offset))

    def reset(self) -> None:
        """Begin anew; the file is gone."""
        self._record = Record()
        self.is_missing = True
        self.ceiling = 0

    async def _write(self, record: Record) -> None:
        await self._storage.replace(self._path, msgspec.json.encode(record))
        self._record = record
        self.is_missing = False

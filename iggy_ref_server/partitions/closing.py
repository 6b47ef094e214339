"""Closing a partition: everything is written and synced, and what fails is reported.

Each step runs even if an earlier one failed: write messages, write indexes, sync files, write
deferred offsets. The caller reports acknowledged messages and offsets that could not be saved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol import record
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.partitions.health import PartitionHealth
from iggy_ref_server.storage.interface import StorageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iggy_ref_server.partitions.appender import Appender
    from iggy_ref_server.partitions.health import Health
    from iggy_ref_server.partitions.journal import Journal
    from iggy_ref_server.partitions.offsets import OffsetTable
    from iggy_ref_server.partitions.reservation import Reservation
    from iggy_ref_server.partitions.writer import Writer

__all__ = ["Unsaved", "save_for_good"]

NONE = range(0)


@record(kw_only=True)
class Unsaved:
    """Acknowledged data that could not be saved when the partition closed.

    Attributes:
        reason: what the disk said.
        lost: offsets of messages that are in no file, and gone with the process.
        unsynced: offsets of messages that are written, but that the disk did not confirm.
        offsets_count: stored offsets of consumers and groups that are in no file.
    """

    reason: str
    lost: range = NONE
    unsynced: range = NONE
    offsets_count: int = 0

    @property
    def lines(self) -> list[str]:
        """What to tell people, one sentence for each kind."""
        told = []
        if self.lost:
            told.append(f"{_messages(self.lost)} are LOST, they could not be written")
        if self.unsynced:
            told.append(
                f"{_messages(self.unsynced)} are written but not synced: a power loss may lose them"
            )
        if self.offsets_count:
            told.append(f"stored offsets of {self.offsets_count} consumers or groups are LOST")
        return [f"{line}; {self.reason}" for line in told]


def _messages(offsets: range) -> str:
    """Name a run of messages, as in ``messages 15 to 309 (295 of them)``."""
    return f"messages {offsets[0]} to {offsets[-1]} ({len(offsets)} of them)"


async def save_for_good(
    writer: Writer,
    appender: Appender,
    offsets: OffsetTable,
    reservation: Reservation,
    health: Health,
) -> Unsaved | None:
    """Bring everything to the disk.

    Returns:
        What was acknowledged and is not there; None when nothing is missing.
    """
    if health.state is PartitionHealth.QUARANTINED:
        return None
    # A failed purge or damage leaves little to do, except for messages in memory.
    is_sound = health.state is PartitionHealth.OK
    reasons = [] if is_sound else [health.reason]

    async def attempt(step: Callable[[], Awaitable[object]]) -> bool:
        try:
            await step()
        except (ServerFault, StorageError) as error:
            reasons.append(str(error))
            return False
        return True

    is_synced = not writer.has_failed_sync

    if is_sound or len(appender.journal):
        async with writer.lock:
            await attempt(writer.write_all)
            await attempt(writer.save_indexes)
        is_synced = await attempt(writer.sync) and is_synced
    await attempt(lambda: offsets.save_kept_back(writer.next_written))
    salvaged_count = await count_salvaged(appender.journal)
    unsaved = Unsaved(
        reason="; ".join(dict.fromkeys(reasons)),
        lost=range(writer.next_written + salvaged_count, appender.next_offset),
        unsynced=NONE if is_synced else writer.unconfirmed,
        offsets_count=offsets.kept_back_count,
    )
    if unsaved.lines:
        return unsaved
    if is_sound:
        await attempt(lambda: reservation.settle(appender.next_offset))
        await attempt(offsets.note)
    return None


async def count_salvaged(journal: Journal) -> int:
    """Count the messages that are in their log although the write of them failed.

    A full disk takes what fits. The next start finds these messages, so they are not lost.
    """
    write = journal.first
    if write is None or write.segment.log is None:
        return 0
    try:
        found = await write.segment.log.read(write.size_bytes, write.position)
    except StorageError:
        return 0
    wanted, index = b"".join(write.buffers), write.segment.index
    start = count = 0
    while count < write.messages_count:
        entry = index.entry_now(write.segment.written_count + count)
        end = 0 if entry is None else entry.end_position - write.position
        if not start < end <= len(found) or found[start:end] != wanted[start:end]:
            break
        start, count = end, count + 1
    return count

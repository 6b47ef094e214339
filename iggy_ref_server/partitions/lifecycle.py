"""Opening and closing a partition.

Opening finds the segments on disk, orders them, checks them against each other, and repairs what a
crash can explain (``segments.recovery``). Any other damage raises ``CorruptPartition``, and the
partition is quarantined until ``iggy-server repair`` has run.
"""

from __future__ import annotations

import logging
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING

from iggy_protocol import MessageBatch, record
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.partitions.file_ownership import OwnershipVerdict, find_file_owner
from iggy_ref_server.partitions.generation import (
    IMPORTED_GENERATION,
    Generation,
    GenerationState,
    wipe_partition,
    write_generation,
)
from iggy_ref_server.partitions.health import HealthTracker, PartitionHealth
from iggy_ref_server.partitions.reservation import OffsetReservation
from iggy_ref_server.partitions.segment_list import SegmentList
from iggy_ref_server.partitions.settings import AckLevel, PartitionSettings
from iggy_ref_server.partitions.steps import run_async
from iggy_ref_server.segments.errors import CorruptPartition, SegmentSplit
from iggy_ref_server.segments.file_names import SegmentListing, list_segments
from iggy_ref_server.segments.log_scanner import LogScanner
from iggy_ref_server.segments.recovery import recover_segment, verify_segment
from iggy_ref_server.segments.segment import OpenSegments, Segment
from iggy_ref_server.segments.torn_tail import SurvivingWrites
from iggy_ref_server.storage.interface import Storage, StorageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from iggy_ref_server.partitions.append import Appender
    from iggy_ref_server.partitions.deduplication import Deduplicator
    from iggy_ref_server.partitions.journal import Journal
    from iggy_ref_server.partitions.offsets import OffsetTable
    from iggy_ref_server.partitions.poll import PartitionReader
    from iggy_ref_server.partitions.writer import PartitionWriter


LOGGER = logging.getLogger(__name__)


async def create_empty(
    storage: Storage, directory: str, generation: int, preallocated_bytes: int = 0
) -> tuple[SegmentList, OffsetReservation]:
    """Begin a generation of the partition: remove what is there and make one empty segment.

    Args:
        storage: the data directory.
        directory: the partition's directory.
        generation: the new one.
        preallocated_bytes: so much of the disk the segment takes at once, if there is room.

    Raises:
        StorageError: a file or directory cannot be changed.
    """
    await storage.make_directories(directory)
    if await storage.entries(directory):
        # If the process dies from here on, CREATING tells the next start to delete the files.
        creating = Generation(generation, GenerationState.CREATING)
        await write_generation(storage, directory, creating)
        await wipe_partition(storage, directory)
    segment = Segment(directory, 0)
    await segment.create(storage, preallocated_bytes)
    await write_generation(storage, directory, Generation(generation))
    return SegmentList([segment]), OffsetReservation(storage, directory)


async def open_partition_files(
    storage: Storage, directory: str, settings: PartitionSettings, generation: int
) -> tuple[SegmentList, OffsetReservation]:
    """Open the files of a generation, or make them where there are none or older ones.

    Args:
        storage: the data directory.
        directory: the partition's directory.
        settings: of the partition.
        generation: the generation of the partition, from the metadata.

    Raises:
        CorruptPartition: messages are damaged or missing in the middle, or it cannot be proved
            which generation the files belong to; nothing was changed.
        StorageError: a file cannot be read or changed.
    """
    was_opened = generation <= settings.opened_generation
    owner = await find_file_owner(storage, directory, generation, was_opened=was_opened)
    if owner.verdict.is_damage:
        raise CorruptPartition(directory, owner.reason)
    if not owner.verdict.is_opened:
        if owner.verdict is not OwnershipVerdict.NOTHING:
            LOGGER.info("partition %s: its old files are deleted: %s", directory, owner.reason)
        return await create_empty(storage, directory, generation, settings.preallocated_bytes)
    segment_list, reservation = await recover_segments(
        storage,
        directory,
        settings,
        is_imported=generation == IMPORTED_GENERATION,
        is_adopted=owner.verdict is OwnershipVerdict.ADOPTED,
    )
    is_marked = owner.found is not None and owner.found.has_reservation
    if owner.verdict is OwnershipVerdict.ADOPTED or (not is_marked and not reservation.is_missing):
        await record_generation(storage, directory, reservation, generation)
    return segment_list, reservation


async def record_generation(
    storage: Storage, directory: str, reservation: OffsetReservation, generation: int
) -> None:
    """Write down what is known of the files of a partition, after they were opened."""
    try:
        await reservation.confirm()
        marked = Generation(generation, has_reservation=not reservation.is_missing)
        await write_generation(storage, directory, marked)
    except StorageError as error:
        LOGGER.warning(
            "partition %s: the generation file was not updated, the next start tries again: %s",
            directory,
            error,
        )


async def recover_segments(
    storage: Storage,
    directory: str,
    settings: PartitionSettings,
    *,
    is_imported: bool,
    is_adopted: bool,
) -> tuple[SegmentList, OffsetReservation]:
    """Find and mend the segments of a partition; the last one is open.

    Args:
        storage: the data directory.
        directory: the partition's directory.
        settings: of the partition.
        is_imported: whether Apache Iggy wrote them.
        is_adopted: whether nothing was noted of segments that were removed.

    Raises:
        CorruptPartition: messages are damaged or missing in the middle.
        StorageError: a file cannot be read or changed.
    """
    listing = list_segments(await storage.entries(directory))
    reservation = await OffsetReservation.load(storage, directory)
    if is_imported and reservation.is_missing and listing.segments:
        await reservation.record_synced(listing.segments[-1].start_offset)
    if is_adopted and listing.segments:
        await reservation.record_removed(listing.segments[0].start_offset)
    kept = surviving_writes(settings)
    check_first_segment(directory, listing, reservation)
    check_orphans(directory, listing, kept)
    for name in listing.orphans:
        LOGGER.warning("removed the index %s/%s: its log file does not exist", directory, name)
        await storage.remove(f"{directory}/{name}")
    segments = await recover_all_segments(storage, directory, reservation, kept)
    await check_continuity(directory, segments, reservation, kept)
    if settings.validate_checksums:
        for segment in segments:
            await verify_segment(storage, segment)
    await ensure_active_segment(
        storage, directory, segments, reservation, settings.preallocated_bytes
    )
    for segment in segments[:-1]:
        segment.is_sealed = True
    await segments[-1].open(storage)
    return SegmentList(segments), reservation


def surviving_writes(settings: PartitionSettings) -> SurvivingWrites:
    """Tell what the files hold of all that was written to them."""
    if settings.writes_survived:
        return SurvivingWrites.EVERYTHING
    return SurvivingWrites.INDEXED if settings.ack is AckLevel.FSYNC else SurvivingWrites.SYNCED


def check_first_segment(
    directory: str, listing: SegmentListing, reservation: OffsetReservation
) -> None:
    """Refuse a partition whose first segments are missing although retention kept them."""
    starts = [files.start_offset for files in listing.segments]
    known = reservation.removed_below
    if starts and starts[0] > known and not reservation.covers_gap(known, starts[0]):
        raise CorruptPartition(directory, f"the messages {known} to {starts[0] - 1} are missing")


def check_orphans(directory: str, listing: SegmentListing, kept: SurvivingWrites) -> None:
    """Refuse a partition with an index whose log is missing without a record of its removal."""
    starts = [files.start_offset for files in listing.segments]
    for name, size in listing.filled_orphans:
        # The log goes first when a segment is removed, and only the oldest ones are.
        if starts and name >= f"{starts[0]:020}":
            raise CorruptPartition(
                directory, f"the log beside {name} is missing, and the index has {size} bytes"
            )
    for name in listing.orphans:
        # A loss of power may take the name of a log that was never used; nothing else does.
        if kept is SurvivingWrites.EVERYTHING and listing.is_behind_all_logs(name):
            raise CorruptPartition(
                directory, f"the log beside {name} is missing, and it was the last one"
            )


async def recover_all_segments(
    storage: Storage, directory: str, reservation: OffsetReservation, kept: SurvivingWrites
) -> list[Segment]:
    """Mend all segments, from the first one again when one of them had to be split."""
    found = list_segments(await storage.entries(directory)).segments
    # What was split is sound from then on, so each of them is split once at most.
    for _ in range(len(found) + 1):
        segments: list[Segment] = []
        try:
            for files, following in zip_longest(found, found[1:]):
                segment = await recover_segment(
                    storage,
                    directory,
                    files,
                    next_start=None if following is None else following.start_offset,
                    may_be_torn=following is None or not reservation.is_synced(files.start_offset),
                    kept=kept,
                    history=reservation,
                )
                segments.append(segment)
            return segments
        except SegmentSplit:
            found = list_segments(await storage.entries(directory)).segments
    raise CorruptPartition(directory, "the segments behind the damage cannot be put in order")


async def check_continuity(
    directory: str,
    segments: Sequence[Segment],
    reservation: OffsetReservation,
    kept: SurvivingWrites,
) -> None:
    """Refuse segments that overlap or leave out messages for no known reason."""
    end, stored = segments[-1].next_offset if segments else 0, reservation.stored_below
    if end < stored and not reservation.covers_gap(end, stored):
        reason = f"the messages {end} to {stored - 1} are missing, although they were synced"
        raise CorruptPartition(directory, reason)
    for segment, following in pairwise(segments):
        end, start = segment.next_offset, following.start_offset
        if end > start:
            reason = (
                f"segment {segment.start_offset} reaches to offset {end - 1}, into the next one"
            )
            raise CorruptPartition(directory, reason)
        if end == start or reservation.covers_gap(end, start):
            continue
        if kept is not SurvivingWrites.SYNCED or reservation.is_synced(segment.start_offset):
            raise CorruptPartition(directory, f"the messages {end} to {start - 1} are missing")
        LOGGER.error(
            "partition %s: messages %d to %d are lost, the power failed before they were synced",
            directory,
            end,
            start - 1,
        )
        await reservation.record_gaps([(end, start)])


async def ensure_active_segment(
    storage: Storage,
    directory: str,
    segments: list[Segment],
    reservation: OffsetReservation,
    preallocated_bytes: int,
) -> None:
    """Make sure that there is a segment for the next message, behind all offsets ever given."""
    next_offset = segments[-1].next_offset if segments else 0
    resumed = await reservation.resume(next_offset)
    if segments and resumed == next_offset:
        return
    if resumed > next_offset:
        LOGGER.warning(
            "partition %s: offsets %d to %d are skipped: clients may have seen them",
            directory,
            next_offset,
            resumed - 1,
        )
    following = Segment(directory, resumed)
    await following.create(storage, preallocated_bytes)
    if segments and not segments[-1].messages_count:
        await segments.pop().remove(storage)
    segments.append(following)


async def load_recent_ids(
    deduplicator: Deduplicator,
    segment_list: SegmentList,
    files: OpenSegments,
    reader: PartitionReader,
    now_us: int,
) -> None:
    """Fill the window of ids from the newest messages.

    Raises:
        StorageError: a file cannot be read.
    """
    start = await find_first_recent_offset(deduplicator, segment_list, reader, now_us)
    for segment in segment_list.segments:
        skip = max(start - segment.start_offset, 0)
        if skip >= segment.messages_count:
            continue
        await files.open(segment)
        log = segment.log  # others may close the segment meanwhile
        assert log is not None
        position = (await segment.index.entry(skip - 1)).end_position if skip else 0
        log_scanner = LogScanner(log, position, segment.start_offset + skip, segment.written_bytes)
        while (chunk := await log_scanner.next()) is not None:
            for view in MessageBatch(chunk.messages):
                deduplicator.confirm((view.id,), view.timestamp_us)


async def find_first_recent_offset(
    deduplicator: Deduplicator, segment_list: SegmentList, reader: PartitionReader, now_us: int
) -> int:
    """Find the oldest message whose id is still in the window."""
    settings = deduplicator.settings
    start = segment_list.oldest_offset
    if settings.entries_max:
        start = max(start, segment_list.last.next_offset - settings.entries_max)
    if settings.expiry_us:
        start = max(start, await reader.find_offset(now_us - settings.expiry_us + 1))
    return start


# Closing a partition: everything is written and synced, and what fails is reported.
#
# Each step runs even if an earlier one failed: write messages, write indexes, sync files, write
# deferred offsets. The caller reports acknowledged messages and offsets that could not be saved.


NO_OFFSETS = range(0)


@record(kw_only=True)
class UnsavedData:
    """Acknowledged data that could not be saved when the partition closed.

    Attributes:
        reason: what the disk said.
        lost: offsets of messages that are in no file, and gone with the process.
        unsynced: offsets of messages that are written, but that the disk did not confirm.
        offsets_count: stored offsets of consumers and groups that are in no file.
    """

    reason: str
    lost: range = NO_OFFSETS
    unsynced: range = NO_OFFSETS
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


async def flush_for_close(
    writer: PartitionWriter,
    appender: Appender,
    offsets: OffsetTable,
    reservation: OffsetReservation,
    health: HealthTracker,
) -> UnsavedData | None:
    """Bring everything to the disk.

    Returns:
        What was acknowledged and is not there; None when nothing is missing.
    """
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
    await attempt(lambda: run_async(offsets.save_deferred(writer.next_written)))
    salvaged_count = await count_salvaged(appender.journal)
    unsaved = UnsavedData(
        reason="; ".join(dict.fromkeys(reasons)),
        lost=range(writer.next_written + salvaged_count, appender.next_offset),
        unsynced=NO_OFFSETS if is_synced else writer.unsynced_offsets,
        offsets_count=offsets.deferred_count,
    )
    if unsaved.lines:
        return unsaved
    if is_sound:
        await attempt(lambda: reservation.release_unused(appender.next_offset))
        await attempt(offsets.checkpoint)
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
        entry = index.entry_nowait(write.segment.written_count + count)
        end = 0 if entry is None else entry.end_position - write.position
        if not start < end <= len(found) or found[start:end] != wanted[start:end]:
            break
        start, count = end, count + 1
    return count

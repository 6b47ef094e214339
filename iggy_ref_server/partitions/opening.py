"""Opening and closing a partition.

Opening finds the segments on disk, orders them, checks them against each other, and repairs what a
crash can explain (``segments.recovery``). Any other damage raises ``CorruptPartition``, and the
partition is quarantined until ``iggy-server repair`` has run.
"""

from __future__ import annotations

import logging
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING

from iggy_protocol import MessageBatch
from iggy_ref_server.partitions.chain import SegmentChain
from iggy_ref_server.partitions.incarnation import (
    IMPORTED,
    Generation,
    GenerationState,
    wipe,
    write_generation,
)
from iggy_ref_server.partitions.ownership import Verdict, find_owner
from iggy_ref_server.partitions.reservation import Reservation
from iggy_ref_server.partitions.settings import AckLevel
from iggy_ref_server.segments.damage import CorruptPartition, SegmentSplit
from iggy_ref_server.segments.names import read_listing
from iggy_ref_server.segments.recovery import mend_segment, verify_segment
from iggy_ref_server.segments.segment import Segment
from iggy_ref_server.segments.tail import Kept
from iggy_ref_server.segments.walk import LogWalk
from iggy_ref_server.storage.interface import StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iggy_ref_server.partitions.deduplication import Deduplicator
    from iggy_ref_server.partitions.reader import Reader
    from iggy_ref_server.partitions.settings import PartitionSettings
    from iggy_ref_server.segments.names import Listing
    from iggy_ref_server.segments.open_files import OpenFiles
    from iggy_ref_server.storage.interface import Storage

__all__ = ["find_segments", "make_empty", "open_files", "remember_ids"]

_logger = logging.getLogger(__name__)


async def make_empty(
    storage: Storage, directory: str, incarnation: int
) -> tuple[SegmentChain, Reservation]:
    """Begin a generation of the partition: remove what is there and make one empty segment.

    Raises:
        StorageError: a file or directory cannot be changed.
    """
    await storage.make_directories(directory)
    if await storage.entries(directory):
        # If the process dies from here on, CREATING tells the next start to delete the files.
        creating = Generation(incarnation, GenerationState.CREATING)
        await write_generation(storage, directory, creating)
        await wipe(storage, directory)
    segment = Segment(directory, 0)
    await segment.create(storage)
    await write_generation(storage, directory, Generation(incarnation))
    return SegmentChain([segment]), Reservation(storage, directory)


async def open_files(
    storage: Storage, directory: str, settings: PartitionSettings, incarnation: int
) -> tuple[SegmentChain, Reservation]:
    """Open the files of a generation, or make them where there are none or older ones.

    Args:
        storage: the data directory.
        directory: the partition's directory.
        settings: of the partition.
        incarnation: the generation of the partition, from the metadata.

    Raises:
        CorruptPartition: messages are damaged or missing in the middle, or it cannot be proved
            which generation the files belong to; nothing was changed.
        StorageError: a file cannot be read or changed.
    """
    was_opened = incarnation <= settings.opened_generation
    owner = await find_owner(storage, directory, incarnation, was_opened=was_opened)
    if owner.verdict.is_damage:
        raise CorruptPartition(directory, owner.reason)
    if not owner.verdict.is_opened:
        if owner.verdict is not Verdict.NOTHING:
            _logger.info("partition %s: its old files are deleted: %s", directory, owner.reason)
        return await make_empty(storage, directory, incarnation)
    chain, reservation = await find_segments(
        storage,
        directory,
        settings,
        is_imported=incarnation == IMPORTED,
        is_adopted=owner.verdict is Verdict.ADOPTED,
    )
    is_marked = owner.found is not None and owner.found.has_reservation
    if owner.verdict is Verdict.ADOPTED or (not is_marked and not reservation.is_missing):
        await mark(storage, directory, reservation, incarnation)
    return chain, reservation


async def mark(
    storage: Storage, directory: str, reservation: Reservation, incarnation: int
) -> None:
    """Write down what is known of the files of a partition, after they were opened."""
    try:
        await reservation.confirm()
        marked = Generation(incarnation, has_reservation=not reservation.is_missing)
        await write_generation(storage, directory, marked)
    except StorageError as error:
        _logger.warning(
            "partition %s: the generation file was not updated, the next start tries again: %s",
            directory,
            error,
        )


async def find_segments(
    storage: Storage,
    directory: str,
    settings: PartitionSettings,
    *,
    is_imported: bool,
    is_adopted: bool,
) -> tuple[SegmentChain, Reservation]:
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
    listing = read_listing(await storage.entries(directory))
    reservation = await Reservation.load(storage, directory)
    if is_imported and reservation.is_missing and listing.segments:
        await reservation.note_synced(listing.segments[-1].start_offset)
    if is_adopted and listing.segments:
        await reservation.note_removed(listing.segments[0].start_offset)
    check_beginning(directory, listing, reservation)
    for name in listing.orphans:
        _logger.warning("removed the index %s/%s: its log file does not exist", directory, name)
        await storage.remove(f"{directory}/{name}")
    kept = kept_by(settings)
    segments = await mend_all(storage, directory, reservation, kept)
    await check_row(directory, segments, reservation, kept)
    if settings.validate_checksums:
        for segment in segments:
            await verify_segment(storage, segment)
    await continue_row(storage, directory, segments, reservation)
    for segment in segments[:-1]:
        segment.is_sealed = True
    await segments[-1].open(storage)
    return SegmentChain(segments), reservation


def kept_by(settings: PartitionSettings) -> Kept:
    """Tell what the files hold of all that was written to them."""
    if settings.writes_survived:
        return Kept.EVERYTHING
    return Kept.INDEXED if settings.ack is AckLevel.FSYNC else Kept.SYNCED


def check_beginning(directory: str, listing: Listing, reservation: Reservation) -> None:
    """Refuse a partition whose first segments are missing although retention kept them."""
    starts = [files.start_offset for files in listing.segments]
    known = reservation.removed_below
    if starts and starts[0] > known and not reservation.explains(known, starts[0]):
        raise CorruptPartition(directory, f"the messages {known} to {starts[0] - 1} are missing")
    for name, size in listing.filled_orphans:
        # The log goes first when a segment is removed, and only the oldest ones are.
        if starts and name >= f"{starts[0]:020}":
            raise CorruptPartition(
                directory, f"the log beside {name} is missing, and the index has {size} bytes"
            )


async def mend_all(
    storage: Storage, directory: str, reservation: Reservation, kept: Kept
) -> list[Segment]:
    """Mend all segments, from the first one again when one of them had to be split."""
    found = read_listing(await storage.entries(directory)).segments
    # What was split is sound from then on, so each of them is split once at most.
    for _ in range(len(found) + 1):
        segments: list[Segment] = []
        try:
            for files, following in zip_longest(found, found[1:]):
                segment = await mend_segment(
                    storage,
                    directory,
                    files,
                    next_start=None if following is None else following.start_offset,
                    may_be_torn=following is None or not reservation.is_synced(files.start_offset),
                    kept=kept,
                    ledger=reservation,
                )
                segments.append(segment)
            return segments
        except SegmentSplit:
            found = read_listing(await storage.entries(directory)).segments
    raise CorruptPartition(directory, "the segments behind the damage cannot be put in order")


async def check_row(
    directory: str, segments: Sequence[Segment], reservation: Reservation, kept: Kept
) -> None:
    """Refuse segments that overlap or leave out messages for no known reason."""
    end, stored = segments[-1].next_offset if segments else 0, reservation.stored_below
    if end < stored and not reservation.explains(end, stored):
        reason = f"the messages {end} to {stored - 1} are missing, although they were synced"
        raise CorruptPartition(directory, reason)
    for segment, following in pairwise(segments):
        end, start = segment.next_offset, following.start_offset
        if end > start:
            reason = (
                f"segment {segment.start_offset} reaches to offset {end - 1}, into the next one"
            )
            raise CorruptPartition(directory, reason)
        if end == start or reservation.explains(end, start):
            continue
        if kept is not Kept.SYNCED or reservation.is_synced(segment.start_offset):
            raise CorruptPartition(directory, f"the messages {end} to {start - 1} are missing")
        _logger.error(
            "partition %s: messages %d to %d are lost, the power failed before they were synced",
            directory,
            end,
            start - 1,
        )
        await reservation.note_gaps([(end, start)])


async def continue_row(
    storage: Storage, directory: str, segments: list[Segment], reservation: Reservation
) -> None:
    """Make sure that there is a segment for the next message, behind all offsets ever given."""
    next_offset = segments[-1].next_offset if segments else 0
    resumed = await reservation.resume(next_offset)
    if segments and resumed == next_offset:
        return
    if resumed > next_offset:
        _logger.warning(
            "partition %s: offsets %d to %d are skipped: clients may have seen them",
            directory,
            next_offset,
            resumed - 1,
        )
    following = Segment(directory, resumed)
    await following.create(storage)
    if segments and not segments[-1].messages_count:
        await segments.pop().remove(storage)
    segments.append(following)


async def remember_ids(
    deduplicator: Deduplicator, chain: SegmentChain, files: OpenFiles, reader: Reader, now_us: int
) -> None:
    """Fill the window of ids from the newest messages.

    Raises:
        StorageError: a file cannot be read.
    """
    start = await first_to_remember(deduplicator, chain, reader, now_us)
    for segment in chain.segments:
        skip = max(start - segment.start_offset, 0)
        if skip >= segment.messages_count:
            continue
        await files.open(segment)
        log = segment.log  # others may close the segment meanwhile
        assert log is not None
        position = (await segment.index.entry(skip - 1)).end_position if skip else 0
        walk = LogWalk(log, position, segment.start_offset + skip, segment.written_bytes)
        while (stretch := await walk.next()) is not None:
            for view in MessageBatch(stretch.messages):
                deduplicator.confirm((view.id,), view.timestamp_us)


async def first_to_remember(
    deduplicator: Deduplicator, chain: SegmentChain, reader: Reader, now_us: int
) -> int:
    """Find the oldest message whose id is still in the window."""
    settings = deduplicator.settings
    start = chain.oldest_offset
    if settings.entries_max:
        start = max(start, chain.last.next_offset - settings.entries_max)
    if settings.expiry_us:
        start = max(start, await reader.find_offset(now_us - settings.expiry_us + 1))
    return start

"""Checks one partition: whose files these are, its segments, and its stored offsets."""

from __future__ import annotations

from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING

from iggy_protocol import ConsumerKind, record
from iggy_ref_server.fsck.context import Finding, Quarantine, ReadProgress, quarantine_path
from iggy_ref_server.fsck.repair import record_gaps
from iggy_ref_server.fsck.segments import (
    MESSAGES_MAX,
    check_segment,
    check_segment_sequence,
    format_offset_ranges,
    last_offset,
)
from iggy_ref_server.partitions import generation, offsets, reservation
from iggy_ref_server.partitions.file_ownership import (
    FileOwnership,
    OwnershipVerdict,
    find_file_owner,
)
from iggy_ref_server.partitions.generation import (
    Generation,
    find_original_partition,
    write_generation,
)
from iggy_ref_server.partitions.lifecycle import create_empty
from iggy_ref_server.partitions.offsets import (
    FOLDERS,
    ID_MAX,
    OFFSET,
    is_impossible_offset,
    read_offset_checkpoint,
)
from iggy_ref_server.partitions.reservation import OffsetReservation
from iggy_ref_server.segments.errors import CorruptPartition
from iggy_ref_server.segments.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SegmentListing,
    list_segments,
    log_path,
    start_offset_of,
)
from iggy_ref_server.segments.index import ENTRY_BYTES
from iggy_ref_server.segments.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Collection, Container

    from iggy_ref_server.storage.interface import DirectoryEntry, Storage


# Findings for a partition whose files may belong to another generation or partition.
#
# ``partitions.ownership`` decides whose they are, for the server as well. A server quarantines a
# partition in doubt. A repair was requested by the administrator, so it may do more; it deletes
# nothing.


# The files are the partition's own, whatever their generation file says.
_REASSIGNED = frozenset({OwnershipVerdict.NO_NUMBER, OwnershipVerdict.OLDER_THAN_MESSAGES})


def check_ownership(
    directory: str, owner: FileOwnership, generation_number: int
) -> tuple[Finding | None, bool]:
    """Check whose the files are.

    Args:
        owner: what ``partitions.ownership`` has decided.
        generation_number: the current number, from the metadata.

    Returns:
        The finding, if there is one, and whether the segments are to be checked as well.
    """
    verdict = owner.verdict
    if verdict.is_opened or verdict is OwnershipVerdict.NO_RESERVATION:
        return None, True
    if verdict is OwnershipVerdict.NO_FILES:
        return _missing_files(directory, owner), False
    if verdict is OwnershipVerdict.NOTHING:
        remedy = (
            "repair begins it empty, as a server would; if it had messages, restore them from a"
            " backup first"
        )
        repair_action = partial(_create_empty, directory, generation_number)
        return Finding(directory, owner.reason, remedy, repair_action), False
    if verdict is OwnershipVerdict.NO_LOGS:
        return _missing_logs(directory, owner), False
    if verdict in _REASSIGNED or _is_single_bit_error(owner, generation_number):
        return _missing_generation(directory, owner, generation_number), True
    if owner.found is not None and owner.found.number > generation_number:
        return _newer_than_metadata(directory, owner), False
    return _outdated(directory, owner, generation_number), False


def _is_single_bit_error(owner: FileOwnership, generation_number: int) -> bool:
    """Tell whether a number without a checksum is the right one but for a single bit."""
    if (
        owner.verdict is not OwnershipVerdict.CONTRADICTORY
        or owner.found is None
        or owner.found.is_checked
    ):
        return False
    wrong, right = str(owner.found.number).encode(), str(generation_number).encode()
    bits = sum((left ^ right_).bit_count() for left, right_ in zip(wrong, right, strict=False))
    return len(wrong) == len(right) and bits == 1


def misplaced_finding(directory: str, home: str) -> Finding:
    """Return the finding for files of another partition."""
    return Finding(
        directory,
        f"a server does not serve the partition: the files are those of {home}",
        "move the directories back by hand, or restore them from a backup",
        is_fatal=True,
    )


def _missing_files(directory: str, owner: FileOwnership) -> Finding:
    return Finding(
        directory,
        f"a server does not serve the partition: {owner.reason}",
        "restore the directory from a backup; without one, purge or delete the topic, because the"
        " assigned offsets are unknown",
        is_fatal=True,
    )


def _missing_logs(directory: str, owner: FileOwnership) -> Finding:
    return Finding(
        directory,
        f"a server does not serve the partition: {owner.reason}",
        "restore them from a backup; without one, repair begins an empty log above all offsets"
        " that are known to be assigned",
        partial(_create_segment, directory),
    )


def _missing_generation(directory: str, owner: FileOwnership, generation_number: int) -> Finding:
    return Finding(
        f"{directory}/{generation.GENERATION_FILE}",
        f"a server does not serve the partition: {owner.reason}",
        f"repair assigns the files to the current partition, generation {generation_number}",
        partial(_write_generation_file, directory, generation_number),
    )


def _newer_than_metadata(directory: str, owner: FileOwnership) -> Finding:
    return Finding(
        directory,
        f"a server does not serve the partition: {owner.reason}",
        "restore the directory `state` from a backup that is as new as the messages; for an empty"
        " partition, move its directory away by hand",
        is_fatal=True,
    )


def _outdated(directory: str, owner: FileOwnership, generation_number: int) -> Finding:
    server = "does not serve it" if owner.verdict.is_damage else "deletes them when it starts"
    return Finding(
        directory,
        owner.reason,
        f"repair moves them to quarantine and begins the partition empty; a server {server}",
        partial(_quarantine_and_create_empty, directory, generation_number),
    )


async def _create_empty(directory: str, generation_number: int, quarantine: Quarantine) -> None:
    await create_empty(quarantine.storage, directory, generation_number)


async def _quarantine_and_create_empty(
    directory: str, generation_number: int, quarantine: Quarantine
) -> None:
    await quarantine.move(directory)
    await create_empty(quarantine.storage, directory, generation_number)


async def _create_segment(directory: str, quarantine: Quarantine) -> None:
    storage = quarantine.storage
    loaded = await OffsetReservation.load(storage, directory)
    # The index of a missing log may lag behind, so it does not tell how many messages there were.
    orphans = list_segments(await storage.entries(directory)).orphans
    unknown_ends = [int(name.removesuffix(INDEX_SUFFIX)) + MESSAGES_MAX for name in orphans]
    start = max(loaded.highest, *unknown_ends, 0)
    if start > loaded.removed_below:
        await loaded.record_gaps([(loaded.removed_below, start)])
    for name in orphans:
        await quarantine.move(f"{directory}/{name}")
    await Segment(directory, start).create(storage)


async def _write_generation_file(
    directory: str, generation_number: int, quarantine: Quarantine
) -> None:
    storage = quarantine.storage
    await quarantine.copy_file(f"{directory}/{generation.GENERATION_FILE}")
    has_reservation = (
        await storage.read_file(f"{directory}/{reservation.RESERVATION_FILE}") is not None
    )
    record = Generation(generation_number, has_reservation=has_reservation)
    await write_generation(storage, directory, record)


# Checks the stored offsets of a partition: one small file for each consumer and group.
#
# A server ignores files that are not plausible.


REPAIR_MOVES_IT = "repair moves it to quarantine; until then a server ignores it"


@record(kw_only=True)
class AssignedOffsets:
    """The offsets that a partition has assigned to messages.

    Attributes:
        last: its highest offset; None where there never was a message.
        highest: an offset above all that are known to be assigned.
        is_loss_possible: whether a power loss may have lost messages.
    """

    last: int | None
    highest: int
    is_loss_possible: bool


async def check_offsets(
    storage: Storage, directory: str, assigned: AssignedOffsets, group_ids: Container[int]
) -> list[Finding]:
    """Check all stored offsets of a partition.

    Raises:
        StorageError: a file cannot be read.
    """
    findings: list[Finding] = []
    note = await read_offset_checkpoint(storage, directory) or {}
    for kind, folder in FOLDERS.items():
        path = f"{directory}/offsets/{folder}"
        changed = await _changed_since_stop(storage, path, note.get(folder, {}))
        if changed:
            findings += changed
            continue
        for entry in await storage.entries(path):
            known = group_ids if kind is ConsumerKind.GROUP else None
            finding = await _check_offset_file(storage, path, entry, assigned, known)
            if finding is not None:
                findings.append(finding)
    return findings


async def _changed_since_stop(
    storage: Storage, folder: str, noted: dict[str, int]
) -> list[Finding]:
    """Compare the files with the record that a regular stop has written."""
    findings: list[Finding] = []
    for name, offset in noted.items():
        path = f"{folder}/{name}"
        if await storage.read_file(path) != OFFSET.pack(offset):
            findings.append(
                Finding(
                    path,
                    f"it differs from the offset at the last stop of the server, {offset}",
                    "repair restores that offset, and a server does so when it starts",
                    partial(_rewrite_offset, path, offset),
                )
            )
    return findings


async def _check_offset_file(
    storage: Storage,
    folder: str,
    entry: DirectoryEntry,
    assigned: AssignedOffsets,
    group_ids: Container[int] | None,
) -> Finding | None:
    path = f"{folder}/{entry.name}"
    problem = name_or_size_problem(entry)
    if not problem and group_ids is not None and int(entry.name) not in group_ids:
        problem = "it is the offset of a consumer group that does not exist"
    if problem:
        return Finding(path, problem, REPAIR_MOVES_IT, partial(quarantine_path, path))
    content = await storage.read_file(path) or bytes(OFFSET.size)
    stored = OFFSET.unpack(content)[0]
    last_offset = assigned.last
    if last_offset is None:
        problem = f"it holds {stored}, but the partition never had a message"
        return Finding(path, problem, REPAIR_MOVES_IT, partial(quarantine_path, path))
    problem = f"it holds {stored}, but the last message has the offset {last_offset}"
    if is_impossible_offset(
        stored,
        last_offset,
        max(last_offset + 1, assigned.highest),
        is_loss_possible=assigned.is_loss_possible,
    ):
        remedy = (
            "repair moves it to quarantine, and its consumer starts over; a server does the same"
        )
        return Finding(path, problem, remedy, partial(quarantine_path, path))
    if stored > last_offset:
        return Finding(
            path,
            problem,
            "repair lowers it to the last message, so that its consumer gets the next one",
            partial(_rewrite_offset, path, last_offset),
        )
    return None


def name_or_size_problem(entry: DirectoryEntry) -> str:
    """Describe what is wrong with the name or the size; empty if nothing is."""
    is_number = entry.name.isascii() and entry.name.isdigit()
    if entry.is_directory or not is_number or str(int(entry.name)) != entry.name:
        return "its name is not a consumer id"
    if int(entry.name) > ID_MAX:
        return "its name is above the highest consumer id"
    if entry.size_bytes != OFFSET.size:
        return f"it has {entry.size_bytes} bytes instead of {OFFSET.size}"
    return ""


async def _rewrite_offset(path: str, offset: int, quarantine: Quarantine) -> None:
    await quarantine.copy_file(path)
    await quarantine.storage.replace(path, OFFSET.pack(offset))


EXPECTED_NAMES = {
    generation.GENERATION_FILE,
    reservation.RESERVATION_FILE,
    offsets.OFFSET_CHECKPOINT_FILE,
    "offsets",
}


async def check_partition(
    storage: Storage,
    directory: str,
    generation_number: int,
    group_ids: Container[int],
    progress: ReadProgress,
    *,
    was_opened: bool,
    known: Collection[str],
    is_loss_possible: bool,
) -> list[Finding]:
    """Check all files of a partition of the metadata.

    Args:
        storage: the current number, from the metadata.
        group_ids: the consumer groups of the topic.
        was_opened: whether a server has opened that one before.
        known: the directories of all partitions.
        is_loss_possible: whether a power loss may have lost messages.

    Raises:
        StorageError: a file cannot be read.
    """
    entries = await storage.entries(directory)
    listing = list_segments(entries)
    progress.start_partition(
        directory, len(listing.segments), sum(files.log_bytes for files in listing.segments)
    )
    owner = await find_file_owner(storage, directory, generation_number, was_opened=was_opened)
    if owner.verdict is OwnershipVerdict.NO_NUMBER:
        home = await find_original_partition(storage, directory, known)
        if home is not None:
            return [misplaced_finding(directory, home)]
    finding, is_examined = check_ownership(directory, owner, generation_number)
    if finding is not None and not is_examined:
        return [finding]
    starts = [files.start_offset for files in listing.segments]
    segments = [
        await check_segment(storage, directory, files, next_start, progress.advance)
        for files, next_start in zip_longest(listing.segments, starts[1:])
    ]
    findings = [] if finding is None else [finding]
    findings += _unexpected_names(directory, entries, listing, is_loss_possible=is_loss_possible)
    findings += await check_segment_sequence(
        storage, directory, segments, has_lost_file=owner.verdict is OwnershipVerdict.NO_RESERVATION
    )
    assigned = AssignedOffsets(
        last=last_offset(segments),
        highest=await _highest_assigned(storage, directory),
        is_loss_possible=is_loss_possible,
    )
    return findings + await check_offsets(storage, directory, assigned, group_ids)


async def _highest_assigned(storage: Storage, directory: str) -> int:
    """Return an offset above all recorded ones; 0 where the record is damaged."""
    try:
        return (await OffsetReservation.load(storage, directory)).highest
    except CorruptPartition:
        return 0


# ---- names


def _unexpected_names(
    directory: str,
    entries: list[DirectoryEntry],
    listing: SegmentListing,
    *,
    is_loss_possible: bool,
) -> list[Finding]:
    findings = [
        _orphan(directory, name, listing, is_loss_possible=is_loss_possible)
        for name in listing.orphans
    ]
    for entry in entries:
        is_segment = any(
            start_offset_of(entry.name, suffix) is not None for suffix in (LOG_SUFFIX, INDEX_SUFFIX)
        )
        if entry.name not in EXPECTED_NAMES and not is_segment:
            findings.append(
                Finding(
                    f"{directory}/{entry.name}", "it is not a file of a server", "it is not changed"
                )
            )
    return findings


def _orphan(
    directory: str, name: str, listing: SegmentListing, *, is_loss_possible: bool
) -> Finding:
    """Judge an index without a log: the log goes first when an old segment is removed."""
    path, start = f"{directory}/{name}", start_offset_of(name, INDEX_SUFFIX)
    count = dict(listing.filled_orphans).get(name, 0) // ENTRY_BYTES
    assert start is not None
    is_last = listing.is_behind_all_logs(name)
    is_newer = bool(listing.segments) and start >= listing.segments[0].start_offset
    if not (count and is_newer) and not (is_last and not is_loss_possible):
        return Finding(
            path,
            "it is an index without a log",
            "repair moves it to quarantine; a server would delete it when it starts",
            partial(quarantine_path, path),
        )
    named = f"the messages {format_offset_ranges(((start, start + count),))} are lost"
    unknown = f"if there were more, all messages from {start + count} on are lost too"
    known_texts = [named] * bool(count) + [unknown] * is_last
    # The index of a last log may lag behind, so it does not tell how many messages there were.
    lost = (start, start + (MESSAGES_MAX if is_last else count))
    return Finding(
        log_path(directory, start),
        f"it is missing, and its index is there; {'; '.join(known_texts)}",
        "restore the log from a backup; a server sets the partition aside. Without a backup, repair"
        " moves the index to quarantine, and these offsets are never given again",
        partial(_give_up_log, directory, path, lost),
    )


async def _give_up_log(
    directory: str, path: str, lost: tuple[int, int], quarantine: Quarantine
) -> None:
    await record_gaps(quarantine.storage, directory, [lost])
    await quarantine.move(path)

"""Which generation the files of a partition belong to, and what a start does with them.

A start deletes files of earlier generations, so this needs proof. A generation file with a valid
checksum proves that the files are older than the partition, or that their creation was interrupted,
unless the messages are newer than the partition: then it is an old copy of that file.
An empty first segment alone holds nothing to lose. In all other cases nothing is changed, and an
operator has to look.

The server and ``iggy-server check`` both use this module, so they never disagree.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from iggy_protocol import MessageBatch
from iggy_ref_server.partitions.generation import (
    GENERATION_FILE,
    IMPORTED_GENERATION,
    Generation,
    GenerationDamaged,
    GenerationState,
    read_generation,
)
from iggy_ref_server.partitions.reservation import RESERVATION_FILE as RESERVATION_NAME
from iggy_ref_server.segments.file_names import list_segments, log_path
from iggy_ref_server.segments.log_scanner import LogScanner

if TYPE_CHECKING:
    from iggy_ref_server.storage.interface import DirectoryEntry, Storage


# A generation number is the time of its beginning in microseconds. Older releases used the numbers
# of changes, which are below this: the first hour of 1970.
TIMED_GENERATION_MIN = 3_600_000_000


class OwnershipVerdict(Enum):
    """What is to be done with the files of a partition."""

    NOTHING = "there are none, or only an empty first segment: create them"
    OUTDATED = "they belong to a deleted generation: delete them and create new ones"
    UNFINISHED = "their creation was interrupted: start it again"
    OURS = "they belong to the partition: open them"
    ADOPTED = "they belong to the partition, but are not marked yet: open and mark them"
    NO_NUMBER = "their generation is missing or damaged: change nothing"
    CONTRADICTORY = "their generation differs and has no checksum: change nothing"
    OLDER_THAN_MESSAGES = "their generation ended before their first message: change nothing"
    NEWER = "their generation is newer than the metadata: change nothing"
    NO_FILES = "they existed and are missing: create none"
    NO_LOGS = "the log files are missing: change nothing"
    NO_RESERVATION = "the file `reservation` is missing: change nothing"

    @property
    def is_damage(self) -> bool:
        """Whether the partition is quarantined until an operator repairs it."""
        return self in _DAMAGE

    @property
    def is_opened(self) -> bool:
        """Whether the files are those of the partition."""
        return self in {OwnershipVerdict.OURS, OwnershipVerdict.ADOPTED}


_DAMAGE = frozenset(
    {
        OwnershipVerdict.NO_NUMBER,
        OwnershipVerdict.CONTRADICTORY,
        OwnershipVerdict.OLDER_THAN_MESSAGES,
        OwnershipVerdict.NEWER,
        OwnershipVerdict.NO_FILES,
        OwnershipVerdict.NO_LOGS,
        OwnershipVerdict.NO_RESERVATION,
    }
)


class FileOwnership(NamedTuple):
    """The answer.

    Attributes:
        verdict: what is to be done.
        reason: why, for people.
        found: what the file says, None where there is none or it cannot be believed.
    """

    verdict: OwnershipVerdict
    reason: str
    found: Generation | None = None


async def find_file_owner(
    storage: Storage, directory: str, expected: int, *, was_opened: bool = False
) -> FileOwnership:
    """Decide whose files lie in the directory of a partition.

    Args:
        storage: the data directory.
        directory: the partition's directory.
        expected: the generation of the partition, from the metadata.
        was_opened: whether a server has opened this generation before.

    Raises:
        StorageError: a file or directory cannot be read.
    """
    owner = await _find_file_owner(storage, directory, expected)
    if owner.verdict is OwnershipVerdict.NOTHING and was_opened:
        reason = f"the files of generation {expected} are missing, although they existed before"
        return FileOwnership(OwnershipVerdict.NO_FILES, reason)
    if owner.verdict not in {OwnershipVerdict.OUTDATED, OwnershipVerdict.UNFINISHED}:
        return owner
    time_us = await _first_timestamp_us(storage, directory)
    if time_us >= expected >= TIMED_GENERATION_MIN:
        reason = (
            f"the file `{GENERATION_FILE}` is an old one: {owner.reason}; but the first message is"
            " newer than that"
        )
        return FileOwnership(OwnershipVerdict.OLDER_THAN_MESSAGES, reason, owner.found)
    if was_opened:
        # Then the files were made, and their record was written after that.
        reason = f"{owner.reason}; but a server has opened generation {expected} here since then"
        return FileOwnership(OwnershipVerdict.CONTRADICTORY, reason, owner.found)
    return owner


async def _first_timestamp_us(storage: Storage, directory: str) -> int:
    """Return the time of the first intact message at the beginning of a log; 0 without one.

    The last message tells nothing: a generation goes on for a moment after a purge has given the
    next one its number. Only a partition that was empty then and gets its first message in that
    moment is set aside without need, if the process dies in the same moment.
    """
    for files in list_segments(await storage.entries(directory)).segments:
        log = await storage.open(log_path(directory, files.start_offset))
        chunk = await LogScanner(log, 0, files.start_offset, files.log_bytes).next()
        if chunk is not None:
            return next(iter(MessageBatch(chunk.messages))).timestamp_us
    return 0


async def _find_file_owner(storage: Storage, directory: str, expected: int) -> FileOwnership:
    entries = await storage.entries(directory)
    try:
        found = await read_generation(storage, directory)
    except GenerationDamaged as damage:
        return FileOwnership(
            OwnershipVerdict.NO_NUMBER, f"the file `{GENERATION_FILE}` is damaged: {damage}"
        )
    if found is None:
        return await _judge_without_record(storage, directory, entries, expected)
    if not found.is_checked:
        return await _judge_with_legacy_text(storage, directory, entries, expected, found)
    return _judge_with_record(found, expected, entries)


def _judge_with_record(
    found: Generation, expected: int, entries: list[DirectoryEntry]
) -> FileOwnership:
    """Judge files with a record whose checksum holds."""
    if found.number > expected:
        reason = (
            f"the files are of generation {found.number}, but the metadata know only {expected}:"
            " the metadata are older than the messages"
        )
        return FileOwnership(OwnershipVerdict.NEWER, reason, found)
    if found.number < expected:
        reason = (
            f"the files are of generation {found.number}, which was deleted or purged;"
            f" the partition is of generation {expected}"
        )
        return FileOwnership(OwnershipVerdict.OUTDATED, reason, found)
    if found.state is GenerationState.CREATING:
        reason = f"the creation of generation {expected} was interrupted"
        return FileOwnership(OwnershipVerdict.UNFINISHED, reason, found)
    if not list_segments(entries).segments:
        reason = f"the log files of generation {expected} are missing"
        return FileOwnership(OwnershipVerdict.NO_LOGS, reason, found)
    if found.has_reservation and all(entry.name != RESERVATION_NAME for entry in entries):
        reason = f"the file `{RESERVATION_NAME}` is missing"
        return FileOwnership(OwnershipVerdict.NO_RESERVATION, reason, found)
    return FileOwnership(OwnershipVerdict.OURS, f"the files are of generation {expected}", found)


async def _judge_with_legacy_text(
    storage: Storage,
    directory: str,
    entries: list[DirectoryEntry],
    expected: int,
    found: Generation,
) -> FileOwnership:
    """Judge files with a number that no checksum vouches for."""
    if found.number == expected and list_segments(entries).segments:
        reason = f"the files are of generation {expected}, in the format of an earlier release"
        return FileOwnership(OwnershipVerdict.ADOPTED, reason, found)
    if await _holds_no_messages(storage, directory, entries):
        return FileOwnership(OwnershipVerdict.NOTHING, "the partition holds no messages", found)
    if found.number == expected:
        reason = f"the log files of generation {expected} are missing"
        return FileOwnership(OwnershipVerdict.NO_LOGS, reason, found)
    reason = (
        f"the files are of generation {found.number} and the partition is of generation {expected},"
        f" but an earlier release wrote the file `{GENERATION_FILE}` without a checksum,"
        " so nothing is deleted because of it"
    )
    return FileOwnership(OwnershipVerdict.CONTRADICTORY, reason, found)


async def _judge_without_record(
    storage: Storage, directory: str, entries: list[DirectoryEntry], expected: int
) -> FileOwnership:
    """Judge files without a number."""
    if expected == IMPORTED_GENERATION and entries:
        return FileOwnership(OwnershipVerdict.ADOPTED, "Apache Iggy wrote the files")
    if await _holds_no_messages(storage, directory, entries):
        return FileOwnership(OwnershipVerdict.NOTHING, "the partition holds no messages")
    return FileOwnership(
        OwnershipVerdict.NO_NUMBER,
        f"the file `{GENERATION_FILE}` is missing, and other files are there",
    )


async def _holds_no_messages(
    storage: Storage, directory: str, entries: list[DirectoryEntry]
) -> bool:
    """Tell whether nothing is lost if the partition begins anew at offset 0."""
    for entry in entries:
        if entry.is_directory:
            path = f"{directory}/{entry.name}"
            if not await _holds_no_messages(storage, path, await storage.entries(path)):
                return False
        elif entry.size_bytes and entry.name != GENERATION_FILE:
            return False
    return all(files.start_offset == 0 for files in list_segments(entries).segments)

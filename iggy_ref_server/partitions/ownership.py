"""Which generation the files of a partition belong to, and what a start does with them.

A start deletes files of earlier generations, so this needs proof. A generation file with a valid
checksum proves that the files are older than the partition, or that their creation was interrupted.
An empty first segment alone holds nothing to lose. In all other cases nothing is changed, and an
operator has to look.

The server and ``iggy-server check`` both use this module, so they never disagree.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from iggy_ref_server.partitions.incarnation import (
    IMPORTED,
    NAME,
    Generation,
    GenerationDamaged,
    GenerationState,
    read_generation,
)
from iggy_ref_server.partitions.reservation import NAME as RESERVATION_NAME
from iggy_ref_server.segments.names import read_listing

if TYPE_CHECKING:
    from iggy_ref_server.storage.interface import Entry, Storage

__all__ = ["Ownership", "Verdict", "find_owner"]


class Verdict(Enum):
    """What is to be done with the files of a partition."""

    NOTHING = "there are none, or only an empty first segment: create them"
    OUTDATED = "they belong to a deleted generation: delete them and create new ones"
    UNFINISHED = "their creation was interrupted: start it again"
    OURS = "they belong to the partition: open them"
    ADOPTED = "they belong to the partition, but are not marked yet: open and mark them"
    NO_NUMBER = "their generation is missing or damaged: change nothing"
    CONTRADICTORY = "their generation differs and has no checksum: change nothing"
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
        return self in {Verdict.OURS, Verdict.ADOPTED}


_DAMAGE = frozenset(
    {
        Verdict.NO_NUMBER,
        Verdict.CONTRADICTORY,
        Verdict.NEWER,
        Verdict.NO_FILES,
        Verdict.NO_LOGS,
        Verdict.NO_RESERVATION,
    }
)


class Ownership(NamedTuple):
    """The answer.

    Attributes:
        verdict: what is to be done.
        reason: why, for people.
        found: what the file says, None where there is none or it cannot be believed.
    """

    verdict: Verdict
    reason: str
    found: Generation | None = None


async def find_owner(
    storage: Storage, directory: str, expected: int, *, was_opened: bool = False
) -> Ownership:
    """Decide whose files lie in the directory of a partition.

    Args:
        storage: the data directory.
        directory: the partition's directory.
        expected: the generation of the partition, from the metadata.
        was_opened: whether a server has opened this generation before.

    Raises:
        StorageError: a file or directory cannot be read.
    """
    owner = await _find_owner(storage, directory, expected)
    if owner.verdict is Verdict.NOTHING and was_opened:
        reason = f"the files of generation {expected} are missing, although they existed before"
        return Ownership(Verdict.NO_FILES, reason)
    return owner


async def _find_owner(storage: Storage, directory: str, expected: int) -> Ownership:
    entries = await storage.entries(directory)
    try:
        found = await read_generation(storage, directory)
    except GenerationDamaged as damage:
        return Ownership(Verdict.NO_NUMBER, f"the file `{NAME}` is damaged: {damage}")
    if found is None:
        return await _without_record(storage, directory, entries, expected)
    if not found.is_checked:
        return await _with_text(storage, directory, entries, expected, found)
    return _with_record(found, expected, entries)


def _with_record(found: Generation, expected: int, entries: list[Entry]) -> Ownership:
    """Judge files with a record whose checksum holds."""
    if found.number > expected:
        reason = (
            f"the files are of generation {found.number}, but the metadata know only {expected}:"
            " the metadata are older than the messages"
        )
        return Ownership(Verdict.NEWER, reason, found)
    if found.number < expected:
        reason = (
            f"the files are of generation {found.number}, which was deleted or purged;"
            f" the partition is of generation {expected}"
        )
        return Ownership(Verdict.OUTDATED, reason, found)
    if found.state is GenerationState.CREATING:
        reason = f"the creation of generation {expected} was interrupted"
        return Ownership(Verdict.UNFINISHED, reason, found)
    if not read_listing(entries).segments:
        reason = f"the log files of generation {expected} are missing"
        return Ownership(Verdict.NO_LOGS, reason, found)
    if found.has_reservation and all(entry.name != RESERVATION_NAME for entry in entries):
        reason = f"the file `{RESERVATION_NAME}` is missing"
        return Ownership(Verdict.NO_RESERVATION, reason, found)
    return Ownership(Verdict.OURS, f"the files are of generation {expected}", found)


async def _with_text(
    storage: Storage, directory: str, entries: list[Entry], expected: int, found: Generation
) -> Ownership:
    """Judge files with a number that no checksum vouches for."""
    if found.number == expected:
        reason = f"the files are of generation {expected}, in the format of an earlier release"
        return Ownership(Verdict.ADOPTED, reason, found)
    if await _holds_nothing(storage, directory, entries):
        return Ownership(Verdict.NOTHING, "the partition holds no messages", found)
    reason = (
        f"the files are of generation {found.number} and the partition is of generation {expected},"
        f" but an earlier release wrote the file `{NAME}` without a checksum,"
        " so nothing is deleted because of it"
    )
    return Ownership(Verdict.CONTRADICTORY, reason, found)


async def _without_record(
    storage: Storage, directory: str, entries: list[Entry], expected: int
) -> Ownership:
    """Judge files without a number."""
    if expected == IMPORTED and entries:
        return Ownership(Verdict.ADOPTED, "Apache Iggy wrote the files")
    if await _holds_nothing(storage, directory, entries):
        return Ownership(Verdict.NOTHING, "the partition holds no messages")
    return Ownership(Verdict.NO_NUMBER, f"the file `{NAME}` is missing, and other files are there")


async def _holds_nothing(storage: Storage, directory: str, entries: list[Entry]) -> bool:
    """Tell whether nothing is lost if the partition begins anew at offset 0."""
    for entry in entries:
        if entry.is_directory:
            path = f"{directory}/{entry.name}"
            if not await _holds_nothing(storage, path, await storage.entries(path)):
                return False
        elif entry.size_bytes and entry.name != NAME:
            return False
    return all(files.start_offset == 0 for files in read_listing(entries).segments)

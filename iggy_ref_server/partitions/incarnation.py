"""The generation file: which generation of a partition its files belong to.

The metadata give every partition a generation number, and a higher one when it is purged, or
created again under the same ids. The number is also in a small file beside the segments. A start
deletes segments of an earlier generation, so the file has a checksum:

     0        8  9  10      12        16       24         32
    +--------+--+--+-------+---------+--------+----------+
    | magic  |v |s | flags | zeros   | number | checksum |
    +--------+--+--+-------+---------+--------+----------+

``v`` is the version of this format. The state ``s`` is ``CREATING`` from before the first old file
is removed until the new ones are there, then ``COMPLETE``. A flag tells that there must be a file
``reservation``. The checksum is the XXH3 of all that stands before it and of the ids in the path of
the partition: a file that came from another partition is not believed.

Earlier releases wrote the number as text, without a checksum. Apache Iggy writes no such file; its
data count as generation 0. On disk the file is named ``incarnation``.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from iggy_protocol import checksum

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iggy_ref_server.storage.interface import Storage

__all__ = [
    "IMPORTED",
    "Generation",
    "GenerationDamaged",
    "GenerationState",
    "checksum_of",
    "find_home",
    "read_generation",
    "remove_files",
    "wipe",
    "write_generation",
]

# The generation of data that Apache Iggy wrote.
IMPORTED = 0
NAME = "incarnation"
SIZE_MAX = 64

MAGIC = b"iggygen\0"
FORMAT_VERSION = 1
HAS_RESERVATION = 1
HEAD = Struct("<8sBBHIQ")
CHECKSUM = Struct("<Q")
TEXT_DIGITS_MAX = 20


class GenerationDamaged(Exception):
    """The generation file exists and is damaged."""


class GenerationState(IntEnum):
    """How far the files of a generation have come."""

    CREATING = 1
    COMPLETE = 2


class Generation(NamedTuple):
    """What the file says.

    Attributes:
        number: the generation, from the metadata.
        state: how far its files have come.
        has_reservation: whether there must be a file ``reservation``.
        is_checked: whether a checksum vouches for it; earlier releases wrote none.
    """

    number: int
    state: GenerationState = GenerationState.COMPLETE
    has_reservation: bool = False
    is_checked: bool = True


def checksum_of(content: bytes, directory: str) -> int:
    """Sum up the content of a small file together with the ids of the partition it belongs to."""
    ids = [part for part in directory.split("/") if part.isdecimal()]
    return checksum(content + "/".join(ids).encode())


async def read_generation(storage: Storage, directory: str) -> Generation | None:
    """Read the file; None where there is none.

    Raises:
        GenerationDamaged: it cannot be believed.
        StorageError: the file cannot be read.
    """
    content = await storage.read_file(f"{directory}/{NAME}", size_max=SIZE_MAX)
    if content is None:
        return None
    if not content.startswith(MAGIC[:1]):
        return _read_text(content)
    if len(content) != HEAD.size + CHECKSUM.size:
        raise GenerationDamaged(f"it has {len(content)} bytes")
    head = content[: HEAD.size]
    if CHECKSUM.unpack_from(content, HEAD.size)[0] != checksum_of(head, directory):
        raise GenerationDamaged("its checksum does not match, or it belongs to another partition")
    magic, version, state, flags, _, number = HEAD.unpack(head)
    if magic != MAGIC or version != FORMAT_VERSION:
        raise GenerationDamaged(f"its format version {version} is unknown to this release")
    return Generation(number, GenerationState(state), bool(flags & HAS_RESERVATION))


async def find_home(storage: Storage, directory: str, others: Iterable[str]) -> str | None:
    """Tell which other partition a record was written for, if it is intact but for its place.

    Args:
        storage: the data directory.
        directory: where the record lies.
        others: the directories of partitions that it may be of.

    Raises:
        StorageError: the file cannot be read.
    """
    content = await storage.read_file(f"{directory}/{NAME}", size_max=SIZE_MAX)
    if content is None or len(content) != HEAD.size + CHECKSUM.size:
        return None
    head, (stored,) = content[: HEAD.size], CHECKSUM.unpack_from(content, HEAD.size)
    return next((other for other in others if checksum_of(head, other) == stored), None)


def _read_text(content: bytes) -> Generation:
    """Read what earlier releases wrote: digits and the end of a line."""
    digits = content.removesuffix(b"\n")
    is_number = digits.isdigit() and str(int(digits[:TEXT_DIGITS_MAX])).encode() == digits
    if not is_number or digits == content:
        raise GenerationDamaged("it holds neither a generation record nor a number")
    return Generation(int(digits), is_checked=False)


async def write_generation(storage: Storage, directory: str, generation: Generation) -> None:
    """Say which generation the files belong to.

    Raises:
        StorageError: what the file said before stays.
    """
    flags = HAS_RESERVATION if generation.has_reservation else 0
    head = HEAD.pack(MAGIC, FORMAT_VERSION, generation.state, flags, 0, generation.number)
    content = head + CHECKSUM.pack(checksum_of(head, directory))
    await storage.replace(f"{directory}/{NAME}", content)


async def wipe(storage: Storage, directory: str) -> None:
    """Remove everything but the number, which goes with what it speaks of.

    Raises:
        StorageError: some of it is still there.
    """
    entries = await storage.entries(directory)
    for entry in entries:
        path = f"{directory}/{entry.name}"
        if entry.is_directory:
            await storage.remove_tree(path)
        elif entry.name != NAME:
            await storage.remove(path)
    if entries:
        await storage.sync_directory(directory)


async def remove_files(storage: Storage, directory: str) -> None:
    """Remove the files of a partition that was deleted, the number last.

    The generation file goes last, so after a crash in between the rest can still be told from the
    files of the next partition with these ids.

    Raises:
        StorageError: some of it is still there.
    """
    await wipe(storage, directory)
    await storage.remove_tree(directory)

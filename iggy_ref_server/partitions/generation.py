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

import logging
from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from iggy_protocol import checksum, record

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iggy_ref_server.storage.interface import Storage


LOGGER = logging.getLogger(__name__)


# The generation of data that Apache Iggy wrote.
IMPORTED_GENERATION = 0
GENERATION_FILE = "incarnation"
GENERATION_FILE_BYTES_MAX = 64

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


def partition_checksum(content: bytes, directory: str) -> int:
    """Sum up the content of a small file together with the ids of the partition it belongs to."""
    ids = [part for part in directory.split("/") if part.isdecimal()]
    return checksum(content + "/".join(ids).encode())


async def read_generation(storage: Storage, directory: str) -> Generation | None:
    """Read the file; None where there is none.

    Raises:
        GenerationDamaged: it cannot be believed.
        StorageError: the file cannot be read.
    """
    content = await storage.read_file(
        f"{directory}/{GENERATION_FILE}", size_max=GENERATION_FILE_BYTES_MAX
    )
    if content is None:
        return None
    if not content.startswith(MAGIC[:1]):
        return _read_legacy_text(content)
    if len(content) != HEAD.size + CHECKSUM.size:
        raise GenerationDamaged(f"it has {len(content)} bytes")
    head = content[: HEAD.size]
    if CHECKSUM.unpack_from(content, HEAD.size)[0] != partition_checksum(head, directory):
        raise GenerationDamaged("its checksum does not match, or it belongs to another partition")
    magic, version, state, flags, _, number = HEAD.unpack(head)
    if magic != MAGIC or version != FORMAT_VERSION:
        raise GenerationDamaged(f"its format version {version} is unknown to this release")
    return Generation(number, GenerationState(state), bool(flags & HAS_RESERVATION))


async def find_original_partition(
    storage: Storage, directory: str, others: Iterable[str]
) -> str | None:
    """Tell which other partition a record was written for, if it is intact but for its place.

    Args:
        storage: the data directory.
        directory: where the record lies.
        others: the directories of partitions that it may be of.

    Raises:
        StorageError: the file cannot be read.
    """
    content = await storage.read_file(
        f"{directory}/{GENERATION_FILE}", size_max=GENERATION_FILE_BYTES_MAX
    )
    if content is None or len(content) != HEAD.size + CHECKSUM.size:
        return None
    head, (stored,) = content[: HEAD.size], CHECKSUM.unpack_from(content, HEAD.size)
    return next((other for other in others if partition_checksum(head, other) == stored), None)


def _read_legacy_text(content: bytes) -> Generation:
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
    content = head + CHECKSUM.pack(partition_checksum(head, directory))
    await storage.replace(f"{directory}/{GENERATION_FILE}", content)


async def wipe_partition(storage: Storage, directory: str) -> None:
    """Remove everything but the number, which goes with what it speaks of.

    Raises:
        StorageError: some of it is still there.
    """
    entries = await storage.entries(directory)
    for entry in entries:
        path = f"{directory}/{entry.name}"
        if entry.is_directory:
            await storage.remove_tree(path)
        elif entry.name != GENERATION_FILE:
            await storage.remove(path)
    if entries:
        await storage.sync_directory(directory)


async def remove_partition_files(storage: Storage, directory: str) -> None:
    """Remove the files of a partition that was deleted, the number last.

    The generation file goes last, so after a crash in between the rest can still be told from the
    files of the next partition with these ids.

    Raises:
        StorageError: some of it is still there.
    """
    await wipe_partition(storage, directory)
    await storage.remove_tree(directory)


# Up to which generation all partitions have existed on the disk.
#
# The metadata log holds a change before the files of its partitions are created. A server that dies
# in between leaves partitions without files, and the next start creates them. Files that were lost
# look the same. To tell the two apart, every shard records up to which generation it has opened all
# its partitions; generations only rise. If files of such a generation are missing, the start
# quarantines the partition.
#
#     state/opened.0      {"shards": 2, "generation": 1767323045678901}
#                         5f0c2a9be1d34c77
#
# A record that is missing, damaged or of another number of shards is ignored.


OPENED_DIRECTORY = "state"
OPENED_FILE = "opened"
OPENED_FILE_BYTES_MAX = 1 << 10
# No partition has a generation below this one.
NO_GENERATION = -1


@record
class OpenedRecord:
    """What one shard notes.

    Attributes:
        shards: how many there were.
        generation: all its partitions up to this one were opened.
    """

    shards: int
    generation: int


async def read_opened_generation(storage: Storage) -> int:
    """Return the generation up to which all partitions were on the disk.

    Raises:
        StorageError: a note cannot be read.
    """
    first = await _read_opened_record(storage, 0)
    if first is None:
        return NO_GENERATION
    notes = [
        first,
        *[await _read_opened_record(storage, shard_id) for shard_id in range(1, first.shards)],
    ]
    return min(
        note.generation if note is not None and note.shards == first.shards else NO_GENERATION
        for note in notes
    )


async def _read_opened_record(storage: Storage, shard_id: int) -> OpenedRecord | None:
    path = f"{OPENED_DIRECTORY}/{OPENED_FILE}.{shard_id}"
    content = await storage.read_file(path, size_max=OPENED_FILE_BYTES_MAX)
    if content is None:
        return None
    text, _, check = content.partition(b"\n")
    if check != _opened_checksum_line(text, shard_id):
        LOGGER.warning("ignored %s: the checksum does not match", path)
        return None
    return OpenedRecord(**msgspec.json.decode(text, type=dict[str, int]))


async def write_opened_generation(
    storage: Storage, shard_id: int, *, shards_count: int, generation: int
) -> None:
    """Note that a shard has opened all its partitions up to a generation.

    Raises:
        StorageError: the last note stays.
    """
    text = msgspec.json.encode({"shards": shards_count, "generation": generation})
    content = text + b"\n" + _opened_checksum_line(text, shard_id)
    await storage.replace(f"{OPENED_DIRECTORY}/{OPENED_FILE}.{shard_id}", content)


def _opened_checksum_line(text: bytes, shard_id: int) -> bytes:
    """Return the line that vouches for a note of this shard."""
    return b"%016x\n" % checksum(b"%b %d" % (text, shard_id))

"""Up to which generation all partitions have existed on the disk.

The metadata log holds a change before the files of its partitions are created. A server that dies
in between leaves partitions without files, and the next start creates them. Files that were lost
look the same. To tell the two apart, every shard records up to which generation it has opened all
its partitions; generations only rise. If files of such a generation are missing, the start
quarantines the partition.

    state/opened.0      {"shards": 2, "generation": 1767323045678901}
                        5f0c2a9be1d34c77

A record that is missing, damaged or of another number of shards is ignored.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from iggy_protocol import checksum, record

if TYPE_CHECKING:
    from iggy_ref_server.storage.interface import Storage

__all__ = ["NOTHING_KNOWN", "read_opened", "write_opened"]

_logger = logging.getLogger(__name__)

DIRECTORY = "state"
NAME = "opened"
SIZE_MAX = 1 << 10
# No partition has a generation below this one.
NOTHING_KNOWN = -1


@record
class OpenedNote:
    """What one shard notes.

    Attributes:
        shards: how many there were.
        generation: all its partitions up to this one were opened.
    """

    shards: int
    generation: int


async def read_opened(storage: Storage) -> int:
    """Return the generation up to which all partitions were on the disk.

    Raises:
        StorageError: a note cannot be read.
    """
    first = await _read(storage, 0)
    if first is None:
        return NOTHING_KNOWN
    notes = [first, *[await _read(storage, shard_id) for shard_id in range(1, first.shards)]]
    return min(
        note.generation if note is not None and note.shards == first.shards else NOTHING_KNOWN
        for note in notes
    )


async def _read(storage: Storage, shard_id: int) -> OpenedNote | None:
    path = f"{DIRECTORY}/{NAME}.{shard_id}"
    content = await storage.read_file(path, size_max=SIZE_MAX)
    if content is None:
        return None
    text, _, check = content.partition(b"\n")
    if check != _check_line(text, shard_id):
        _logger.warning("ignored %s: the checksum does not match", path)
        return None
    return OpenedNote(**msgspec.json.decode(text, type=dict[str, int]))


async def write_opened(
    storage: Storage, shard_id: int, *, shards_count: int, generation: int
) -> None:
    """Note that a shard has opened all its partitions up to a generation.

    Raises:
        StorageError: the last note stays.
    """
    text = msgspec.json.encode({"shards": shards_count, "generation": generation})
    content = text + b"\n" + _check_line(text, shard_id)
    await storage.replace(f"{DIRECTORY}/{NAME}.{shard_id}", content)


def _check_line(text: bytes, shard_id: int) -> bytes:
    """Return the line that vouches for a note of this shard."""
    return b"%016x\n" % checksum(b"%b %d" % (text, shard_id))

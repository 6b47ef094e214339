"""The checkpoint of a partition's stored offsets, written by a clean stop.

The offset files have eight bytes each, as in Apache Iggy, and no checksum: one flipped bit makes
a consumer miss messages. So a clean stop writes all offsets to one file with a checksum, and the
next start compares the offset files with it. The checkpoint is removed before an offset changes.

    {"consumers": {"1": 20}, "groups": {}}
    5f0c2a9be1d34c77

On disk the file is named ``offsets.noted``.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from iggy_ref_server.partitions.reservation import check_line

if TYPE_CHECKING:
    from iggy_ref_server.storage.interface import Storage

__all__ = ["NAME", "OffsetNote", "read_note", "remove_note", "write_note"]

_logger = logging.getLogger(__name__)

NAME = "offsets.noted"
SIZE_MAX = 64 << 20

OffsetNote: TypeAlias = "dict[str, dict[str, int]]"
"""Offsets by the names of their folders and files."""


async def read_note(storage: Storage, directory: str) -> OffsetNote | None:
    """Read the note; None where there is none, or where it cannot be believed.

    Raises:
        StorageError: it cannot be read.
    """
    path = f"{directory}/{NAME}"
    content = await storage.read_file(path, size_max=SIZE_MAX)
    if content is None:
        return None
    text, _, check = content.partition(b"\n")
    if check == check_line(text, directory):
        return msgspec.json.decode(text, type=dict[str, dict[str, int]])
    _logger.warning("ignored %s: the checksum does not match", path)
    return None


async def write_note(storage: Storage, directory: str, note: OffsetNote) -> None:
    """Note all offsets.

    Raises:
        StorageError: they are not noted.
    """
    text = msgspec.json.encode(note)
    await storage.replace(f"{directory}/{NAME}", text + b"\n" + check_line(text, directory))


async def remove_note(storage: Storage, directory: str) -> None:
    """Have the note gone, for good.

    Raises:
        StorageError: it may still be there.
    """
    await storage.remove(f"{directory}/{NAME}")
    await storage.sync_directory(directory)

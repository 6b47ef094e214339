"""Which life of a partition its files belong to.

The metadata gives every partition a number, and a new one when it is purged. The number is also in
a small file beside the segments, written after they are as they should be. Files with another
number are of a partition that was deleted or purged: they are wiped, however far that had come
when the process died. Files of a real server have no number and count as number 0.

Owns the file ``incarnation`` in a partition's directory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iggy_ref_server.storage.interface import Storage

__all__ = ["IMPORTED", "read_incarnation", "wipe", "write_incarnation"]

# What data of a real server has.
IMPORTED = 0
NAME = "incarnation"
SIZE_MAX = 64


async def read_incarnation(storage: Storage, directory: str) -> int | None:
    """Read the number of the files in a directory.

    Returns:
        The number, ``IMPORTED`` where there is none, and None where it makes no sense.

    Raises:
        StorageError: the file cannot be read.
    """
    content = await storage.read_file(f"{directory}/{NAME}", size_max=SIZE_MAX)
    if content is None:
        return IMPORTED
    text = content.strip()
    return int(text) if text.isdigit() else None


async def write_incarnation(storage: Storage, directory: str, incarnation: int) -> None:
    """Say which life the files belong to.

    Raises:
        StorageError: the old number stays.
    """
    await storage.replace(f"{directory}/{NAME}", f"{incarnation}\n".encode())


async def wipe(storage: Storage, directory: str) -> None:
    """Remove everything but the number, which goes with what it speaks of.

    Raises:
        StorageError: some of it is still there.
    """
    for entry in await storage.entries(directory):
        path = f"{directory}/{entry.name}"
        if entry.is_directory:
            await storage.remove_tree(path)
        elif entry.name != NAME:
            await storage.remove(path)
    await storage.sync_directory(directory)

"""The context of a check: findings, the quarantine of a repair, and progress output.

A repair moves what it removes to the quarantine, where nothing is ever deleted:

    quarantine/0001/streams/0/topics/0/partitions/0/<what was moved, under its old name>
    quarantine/0001/<...>/00000000000000000000.log.bytes-4096-4133

Each repair has its own number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_ref_server.segments.salvage import copy_bytes
from iggy_ref_server.storage.paths import parent

if TYPE_CHECKING:
    from iggy_ref_server.storage.interface import File, Storage

__all__ = ["QUARANTINE_PATH", "Quarantine"]

QUARANTINE_PATH = "quarantine"


class Quarantine:
    """The quarantine directory of one repair.

    Args:
        storage: the data directory.
        path: the directory of this repair, created when it is needed.

    Attributes:
        kept: the paths that were moved or copied here, in sequence.
    """

    def __init__(self, storage: Storage, path: str) -> None:
        self.storage = storage
        self.path = path
        self.kept: list[str] = []

    @classmethod
    async def begin(cls, storage: Storage) -> Quarantine:
        """Start a repair with the next free number.

        Raises:
            StorageError: the directory cannot be read.
        """
        names = [entry.name for entry in await storage.entries(QUARANTINE_PATH)]
        number = max((int(name) for name in names if name.isdecimal()), default=0) + 1
        return cls(storage, f"{QUARANTINE_PATH}/{number:04}")

    async def take(self, path: str) -> None:
        """Move a file or a directory here.

        Raises:
            StorageError: it was not moved.
        """
        await self.storage.rename(path, await self._place(path))

    async def take_copy(self, path: str) -> None:
        """Copy a small file that is about to be overwritten.

        Raises:
            StorageError: there is no copy.
        """
        content = await self.storage.read_file(path)
        if content is not None:
            await self.storage.replace(await self._place(path), content)

    async def take_bytes(self, file: File, start: int, end: int) -> None:
        """Copy a range of a file that is about to be cut out.

        Raises:
            StorageError: there is no complete copy.
        """
        target = await self._place(f"{file.path}.bytes-{start}-{end}")
        await copy_bytes(file, start, end, await self.storage.open(target, create=True))
        await self.storage.sync_directory(parent(target))

    async def workbench(self, path: str) -> str:
        """Return the path of a temporary file, to be renamed when it is complete."""
        target = f"{self.path}/unfinished/{path}"
        await self.storage.make_directories(parent(target))
        await self.storage.remove(target)
        return target

    async def _place(self, path: str) -> str:
        directory, name = parent(f"{self.path}/{path}"), path.rpartition("/")[2]
        await self.storage.make_directories(directory)
        taken = {entry.name for entry in await self.storage.entries(directory)}
        number, free = 1, name
        while free in taken:
            number += 1
            free = f"{name}.{number}"
        self.kept.append(f"{directory}/{free}")
        return self.kept[-1]

"""An open file of memory storage."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import trio

from iggy_ref_server.storage.interface import StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iggy_protocol import Buffer
    from iggy_ref_server.baton import Baton
    from iggy_ref_server.storage.interface import Done
    from iggy_ref_server.storage.memory_content import Content
    from iggy_ref_server.storage.memory_disk import MemoryDisk

__all__ = ["MemoryFile"]


class MemoryFile:
    """An open file: what its path was, and the content that path led to.

    Args:
        disk: where it is.
        path: its name, relative to the data directory.
        content: its bytes.
        turn: all changes pass it in the order of their calls, from whichever open file.
    """

    def __init__(self, disk: MemoryDisk, path: str, content: Content, turn: Baton) -> None:
        self._disk = disk
        self._path = path
        self._content = content
        self._turn = turn

    @property
    def path(self) -> str:
        """Its name when it was opened, relative to the data directory."""
        return self._path

    @property
    def descriptor(self) -> None:
        """Nothing that ``sendfile`` could use."""
        return

    def size(self) -> int:
        """Return the length of the file in bytes."""
        return len(self._content.written)

    def write_now(self, buffers: Sequence[Buffer], position: int) -> bool:
        """Write all buffers one after another at once, unless the plan refuses."""
        self._disk.gate.check("write", self._path)
        if self._turn.is_held or self._disk.plan.is_refused(self._path):
            return False
        self._disk.write_at_once(self._path, self._content, b"".join(buffers), position)
        return True

    async def write(self, buffers: Sequence[Buffer], position: int, *, sync: bool = False) -> None:
        """Write all buffers one after another, and then sync the data if asked."""
        with self._disk.gate.passing("write", self._path):
            async with self._turn:
                data = b"".join(buffers)
                await self._disk.write(self._path, self._content, data, position)
                if sync:
                    await self._disk.sync(self._path, self._content)

    def write_soon(self, buffers: Sequence[Buffer], position: int, done: Done) -> bool:
        """Write all buffers at once and begin to sync the data, unless the plan refuses."""
        if not self.write_now(buffers, position):
            return False
        self._disk.gate.enter("sync", self._path)
        trio.lowlevel.spawn_system_task(self._sync_soon, done)
        return True

    async def _sync_soon(self, done: Done) -> None:
        failure = None
        try:
            await self._disk.sync(self._path, self._content)
        except StorageError as error:
            failure = error
        finally:
            self._disk.gate.leave()
        done(failure)

    def read_now(self, size: int, position: int) -> bytes | None:
        """Read, unless the plan says that the bytes are on the disk only."""
        self._disk.gate.check("read", self._path)
        return None if self._disk.plan.is_cold(self._path) else self._slice(size, position)

    async def read(self, size: int, position: int) -> bytes:
        """Read ``size`` bytes, or as many as there are before the file's end."""
        return await self._disk.visit("read", self._path, partial(self._slice, size, position))

    def is_cached(self, size: int, position: int) -> bool:
        """Tell whether the plan lets these bytes be in memory."""
        is_empty = not size or position >= self.size()
        return is_empty or not self._disk.plan.is_cold(self._path)

    async def sync(self) -> None:
        """Bring the data, and the size, to the disk."""
        with self._disk.gate.passing("sync", self._path):
            async with self._turn:
                pass  # what was to be changed before is changed; what comes later need not wait
            await self._disk.sync(self._path, self._content)

    async def truncate(self, size: int) -> None:
        """Cut or extend the file."""
        with self._disk.gate.passing("truncate", self._path):
            async with self._turn:
                work = partial(self._content.truncate, size)
                await self._disk.do("truncate", self._path, work)

    async def preallocate(self, size: int) -> bool:
        """Have the disk keep room for the file."""
        work = partial(self._disk.preallocate, self._content, size)
        return await self._disk.visit("preallocate", self._path, work)

    def _slice(self, size: int, position: int) -> bytes:
        return bytes(self._content.written[position : position + size])

"""A data directory of the operating system: the methods of ``Storage`` that work on names.

Each method runs in a worker thread and is finished once begun, even if its caller is cancelled. Two
calls on the same path run in the order of the calls. The engines for real files inherit from here
and add ``engine`` and ``open``.
"""

from __future__ import annotations

import errno
import os
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import trio

from iggy_ref_server.storage import posix_verbs
from iggy_ref_server.storage.descriptors import Descriptor
from iggy_ref_server.storage.gate import Gate
from iggy_ref_server.storage.open_budget import OpenBudget
from iggy_ref_server.storage.os_errors import storage_error
from iggy_ref_server.storage.paths import checked, checked_directory
from iggy_ref_server.storage.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iggy_protocol import Buffer
    from iggy_ref_server.storage.interface import Entry

__all__ = ["THREADS_MAX", "PosixDirectory"]

# More would only queue in the kernel instead of here.
THREADS_MAX = 16
NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
# A rename is not tried again: it may be done already when its directory cannot be synced.
PAUSES_S = (0.0, 0.02, 0.1, 0.5, 1.0)

ResultT = TypeVar("ResultT")


class PosixDirectory:
    """The names in a data directory.

    Args:
        root: the data directory; ``make_directories("")`` makes it where it is missing.
        threads_max: how many worker threads may be busy at once.

    Attributes:
        gate: counts what is under way; open files of the engine pass it as well.
        open_files: those that are kept open; no limit by default.
    """

    def __init__(self, root: str | os.PathLike[str], *, threads_max: int = THREADS_MAX) -> None:
        self.gate = Gate()
        self.open_files = OpenBudget()
        self._root = os.path.abspath(root)
        self._limiter = trio.CapacityLimiter(threads_max)
        self._turns = Turns()

    def full_path(self, path: str) -> str:
        """Return a path as the operating system wants it."""
        return os.path.join(self._root, path) if path else self._root

    async def in_thread(self, action: str, path: str, work: Callable[[], ResultT]) -> ResultT:
        """Do blocking work in a worker thread, to its end even when cancelled.

        Args:
            action: the verb, for the error.
            path: what it is about, for the error.
            work: may raise ``OSError``.

        Raises:
            StorageError: the work failed, or the storage is closed.
        """
        with self.gate.passing(action, path):
            return await self.run_blocking(action, path, work)

    async def run_blocking(self, action: str, path: str, work: Callable[[], ResultT]) -> ResultT:
        """Do as ``in_thread`` for a caller that has passed the gate already.

        When descriptors run out, files that are kept open are closed and the call is retried. They
        may still be in use for a moment, so there are several retries with pauses.
        """
        pauses_s = iter(() if action == "rename" else PAUSES_S)
        while True:
            try:
                return await trio.to_thread.run_sync(work, limiter=self._limiter)
            except OSError as error:
                pause_s = next(pauses_s, None) if error.errno in NO_DESCRIPTORS else None
                if pause_s is None:
                    raise storage_error(action, path, error) from error
            self.open_files.squeeze()
            await trio.sleep(pause_s)

    async def in_turn(self, action: str, paths: Sequence[str], work: Callable[[], None]) -> None:
        """Do as ``in_thread`` after all earlier work on the same names."""
        with self.gate.passing(action, paths[0]):
            async with self._turns.taken(*paths):
                await self.run_blocking(action, paths[0], work)

    async def open_descriptor(self, path: str, *, create: bool) -> Descriptor:
        """Open a file for reading and writing, the way ``Storage.open`` says."""
        full = self.full_path(checked("open", path))
        number = await self.in_thread(
            "open", path, partial(posix_verbs.open_file, full, create=create)
        )
        return Descriptor(number)

    async def read_file(self, path: str, *, size_max: int = 1 << 30) -> bytes | None:
        """Read a whole file; None where there is none."""
        full = self.full_path(checked("read_file", path))
        return await self.in_thread(
            "read_file", path, partial(posix_verbs.read_file, full, size_max)
        )

    async def replace(self, path: str, content: Buffer, *, sync: bool = True) -> None:
        """Give a file new content, all of it or none."""
        full = self.full_path(checked("replace", path))
        work = partial(posix_verbs.replace, full, content, sync=sync)
        await self.in_turn("replace", [path], work)

    async def rename(self, source: str, target: str) -> None:
        """Rename a file or directory and sync the directories."""
        work = partial(
            posix_verbs.rename,
            self.full_path(checked("rename", source)),
            self.full_path(checked("rename", target)),
        )
        await self.in_turn("rename", [source, target], work)

    async def remove(self, path: str) -> None:
        """Remove a file; no error where there is none."""
        full = self.full_path(checked("remove", path))
        await self.in_turn("remove", [path], partial(posix_verbs.remove, full))

    async def remove_tree(self, path: str) -> None:
        """Remove a directory with all it holds; no error where there is none."""
        full = self.full_path(checked("remove_tree", path))
        await self.in_turn("remove_tree", [path], partial(posix_verbs.remove_tree, full))

    async def make_directories(self, path: str) -> None:
        """Make a directory and those above it, and sync each parent that changed."""
        full = self.full_path(checked_directory("make_directories", path))
        await self.in_thread("make_directories", path, partial(posix_verbs.make_directories, full))

    async def entries(self, path: str) -> list[Entry]:
        """List a directory sorted by name; an empty list where there is none."""
        full = self.full_path(checked_directory("entries", path))
        return await self.in_thread("entries", path, partial(posix_verbs.list_directory, full))

    async def sync_directory(self, path: str) -> None:
        """Bring the names in a directory to the disk."""
        full = self.full_path(checked_directory("sync_directory", path))
        await self.in_thread("sync_directory", path, partial(posix_verbs.sync_directory, full))

    async def free_bytes(self) -> tuple[int, int]:
        """Return the free and the total bytes of the file system."""
        return await self.in_thread("free_bytes", "", partial(posix_verbs.free_bytes, self._root))

    async def aclose(self) -> None:
        """Wait for operations in flight; open files close with their last reference."""
        await self.gate.close()

"""The portable storage engine: worker threads run the calls that may wait for a disk."""

from __future__ import annotations

import errno
import os
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from iggy_ref_server.storage.files import THREADS_MAX, PosixDirectory, PosixFile, WritebackLimit
from iggy_ref_server.storage.interface import DoneCallback, File, storage_error
from iggy_ref_server.storage.locks import SharedSync
from iggy_ref_server.storage.posix import Descriptor, preallocate, write_all

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iggy_protocol import Buffer


ResultT = TypeVar("ResultT")


class ThreadStorage(PosixDirectory):
    """A data directory served by worker threads.

    Args:
        root: the data directory.
        writeback_limit: says when to write inline; one of its own by default.
        threads_max: how many worker threads may be busy at once.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        writeback_limit: WritebackLimit | None = None,
        threads_max: int = THREADS_MAX,
    ) -> None:
        super().__init__(root, threads_max=threads_max)
        self._writeback_limit = writeback_limit or WritebackLimit()

    @property
    def engine(self) -> str:
        """What serves the files, for people."""
        return "worker threads"

    async def open(self, path: str, *, create: bool = False) -> File:
        """Open a file for reading and writing."""
        descriptor = await self.open_descriptor(path, create=create)
        return ThreadFile(self, path, descriptor, self._writeback_limit)


class ThreadFile(PosixFile):
    """An open file; what may wait runs in a worker thread and is finished once begun."""

    def __init__(
        self,
        directory: PosixDirectory,
        path: str,
        descriptor: Descriptor,
        writeback_limit: WritebackLimit,
    ) -> None:
        super().__init__(path, descriptor, directory.gate, writeback_limit)
        self._directory = directory
        self._syncs = SharedSync()

    async def write(self, buffers: Sequence[Buffer], position: int, *, sync: bool = False) -> None:
        """Write all buffers one after another, and then sync the data if asked."""
        if not sync:
            await self._change("write", partial(write_all, self.descriptor, buffers, position))
            return
        work = partial(write_and_sync, self.descriptor, buffers, position)
        with self._gate.track("write", self.path):
            async with self.write_lock:
                run = partial(self._directory.run_blocking, "write", self.path, work)
                self._check_sync(await self._syncs.lead(run))

    def begin_write(self, buffers: Sequence[Buffer], position: int, done: DoneCallback) -> bool:
        """Leave it to ``write``: a thread has to be awaited anyway."""
        self._gate.check("write", self.path)
        return False

    async def read(self, size: int, position: int) -> bytes:
        """Read ``size`` bytes, or as many as there are before the file's end."""
        size = self._size_inside(size, position)
        return await self._directory.run_in_thread(
            "read", self.path, partial(read_all, self.descriptor, size, position)
        )

    async def sync(self) -> None:
        """Bring the data, and the size, to the disk."""
        with self._gate.track("sync", self.path):
            async with self.write_lock:
                pass  # what was to be changed before is changed; what comes later need not wait
            work = partial(sync_data, self.descriptor)
            run = partial(self._directory.run_blocking, "sync", self.path, work)
            self._check_sync(await self._syncs.join(run))

    def _check_sync(self, result: int) -> None:
        if result:
            raise storage_error("sync", self.path, -result)

    async def truncate(self, size: int) -> None:
        """Cut or extend the file."""
        await self._change("truncate", partial(os.ftruncate, self.descriptor, size))

    async def preallocate(self, size: int) -> bool:
        """Have the disk keep room for the file."""
        return await self._change("preallocate", partial(preallocate, self.descriptor, size))

    async def _change(self, action: str, work: Callable[[], ResultT]) -> ResultT:
        with self._gate.track(action, self.path):
            async with self.write_lock:
                return await self._directory.run_blocking(action, self.path, work)


def write_and_sync(descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
    """Write and sync in one thread call; return 0, or the negative error of the sync."""
    write_all(descriptor, buffers, position)
    return sync_data(descriptor)


def sync_data(descriptor: int) -> int:
    """Sync; return 0, or the negative number of the error."""
    try:
        os.fdatasync(descriptor)
    except OSError as error:
        return -(error.errno or errno.EIO)
    return 0


def read_all(descriptor: int, size: int, position: int) -> bytes:
    """Read until the size is reached or the file ends."""
    content = os.pread(descriptor, size, position)
    if len(content) == size:
        return content
    parts = [content]
    while parts[-1] and size > len(parts[-1]):
        size -= len(parts[-1])
        position += len(parts[-1])
        parts.append(os.pread(descriptor, size, position))
    return b"".join(parts)

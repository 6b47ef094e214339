"""The storage engine for Linux: io_uring runs reads, writes and syncs that may wait for a disk."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import trio

from iggy_ref_server._uring import blank
from iggy_ref_server.storage.directory import THREADS_MAX, PosixDirectory
from iggy_ref_server.storage.inline_file import InlineFile
from iggy_ref_server.storage.os_errors import storage_error
from iggy_ref_server.storage.preallocation import preallocate
from iggy_ref_server.storage.pressure import Pressure
from iggy_ref_server.storage.ring_driver import ENTRIES, RingDriver
from iggy_ref_server.storage.shared_sync import SharedSync
from iggy_ref_server.storage.vectors import BUFFERS_MAX, locate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from iggy_protocol import Buffer
    from iggy_ref_server.storage.descriptors import Descriptor
    from iggy_ref_server.storage.interface import Done, File

__all__ = ["UringStorage"]

# The kernel's result for a linked sync that it skipped because the write was short.
LEFT_OUT = -errno.ECANCELED


class UringStorage(PosixDirectory):
    """A data directory served by io_uring, with worker threads for names.

    It must be made inside a trio run, and ends with that run at the latest.

    Args:
        root: the data directory.
        pressure: says when to write inline; one of its own by default.
        threads_max: how many worker threads may be busy at once.
        entries: how many operations one submission takes.

    Attributes:
        driver: the way to the kernel; for statistics, and for tests that plant faults.

    Raises:
        OSError: there is no io_uring to be had.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        pressure: Pressure | None = None,
        threads_max: int = THREADS_MAX,
        entries: int = ENTRIES,
    ) -> None:
        super().__init__(root, threads_max=threads_max)
        self._pressure = pressure or Pressure()
        self.driver = RingDriver(entries=entries)

    @property
    def engine(self) -> str:
        """What serves the files, for people."""
        return "io_uring"

    async def open(self, path: str, *, create: bool = False) -> File:
        """Open a file for reading and writing."""
        descriptor = await self.open_descriptor(path, create=create)
        return UringFile(self, path, descriptor, self._pressure, self.driver)

    async def aclose(self) -> None:
        """Wait for operations in flight; open files close with their last reference."""
        try:
            await super().aclose()
        finally:
            await self.driver.aclose()


class UringFile(InlineFile):
    """An open file; writes and syncs are finished once begun, reads are given up if possible."""

    def __init__(
        self,
        directory: PosixDirectory,
        path: str,
        descriptor: Descriptor,
        pressure: Pressure,
        driver: RingDriver,
    ) -> None:
        super().__init__(path, descriptor, directory.gate, pressure)
        self._directory = directory
        self._driver = driver
        self._syncs = SharedSync()

    async def write(self, buffers: Sequence[Buffer], position: int, *, sync: bool = False) -> None:
        """Write all buffers one after another, and then sync the data if asked."""
        with self._gate.passing("write", self.path):
            await self.turn.take()
            try:
                work = partial(self._write_all, buffers, position, sync=sync)
                synced = await (self._syncs.lead(work) if sync else work())
            finally:
                self.turn.give_back()
        self._check_sync(synced)

    def write_soon(self, buffers: Sequence[Buffer], position: int, done: Done) -> bool:
        """Write all buffers at once and begin to sync the data, if that is wise."""
        self._gate.check("write", self.path)
        if not self._driver.has_room or not self._syncs.begin_now():
            return False
        is_written = False
        try:
            is_written = self.write_now(buffers, position)
        finally:
            if not is_written:
                self._syncs.end(None)
        if is_written:
            self._gate.enter("sync", self.path)
            self._driver.begin_sync(self.descriptor, partial(self._end_sync, done))
        return is_written

    def _end_sync(self, done: Done, result: int) -> None:
        self._syncs.end(result)
        self._gate.leave()
        done(storage_error("sync", self.path, -result) if result else None)

    async def read(self, size: int, position: int) -> bytes:
        """Read ``size`` bytes, or as many as there are before the file's end."""
        with self._gate.passing("read", self.path):
            size = self._size_inside(size, position)
            if not size:
                await trio.lowlevel.checkpoint()
                return b""
            await trio.lowlevel.checkpoint_if_cancelled()
            return await self._read_all(blank(size), position)

    async def sync(self) -> None:
        """Bring the data, and the size, to the disk."""
        with self._gate.passing("sync", self.path):
            # What was to be changed before is changed then; what comes later need not wait.
            await self.turn.take()
            self.turn.give_back()
            self._check_sync(await self._syncs.join(partial(self._driver.sync, self.descriptor)))

    async def truncate(self, size: int) -> None:
        """Cut or extend the file."""
        with self._gate.passing("truncate", self.path):
            async with self.turn:
                work = partial(os.ftruncate, self.descriptor, size)
                await self._directory.run_blocking("truncate", self.path, work)

    async def preallocate(self, size: int) -> bool:
        """Have the disk keep room for the file."""
        with self._gate.passing("preallocate", self.path):
            async with self.turn:
                work = partial(preallocate, self.descriptor, size)
                return await self._directory.run_blocking("preallocate", self.path, work)

    def _check_sync(self, result: int) -> None:
        if result:
            raise storage_error("sync", self.path, -result)

    async def _read_all(self, target: bytes, position: int) -> bytes:
        count = 0
        while count < len(target):
            more = await self._driver.read(self.descriptor, target, count, position + count)
            if more < 0:
                raise storage_error("read", self.path, -more)
            if not more:  # the file was cut meanwhile
                return target[:count]
            count += more
        return target

    async def _write_all(self, buffers: Sequence[Buffer], position: int, *, sync: bool) -> int:
        """Write until nothing is left; return the result of the sync, 0 if none was asked for."""
        synced = LEFT_OUT
        index, skip = locate(buffers, 0, 0)
        if index == len(buffers) and not sync:
            await trio.lowlevel.checkpoint()
        while index < len(buffers):
            is_last = len(buffers) - index <= BUFFERS_MAX
            with rest_of(buffers, index, skip) as rest:
                written, synced = await self._write_some(rest, position, sync=sync and is_last)
            if synced not in (0, LEFT_OUT):
                return synced
            if written <= 0:
                raise storage_error("write", self.path, -written or errno.EIO)
            position += written
            index, skip = locate(buffers, index, skip + written)
        if not sync:
            return 0
        return synced if synced == 0 else await self._driver.sync(self.descriptor)

    async def _write_some(
        self, buffers: Sequence[Buffer], position: int, *, sync: bool
    ) -> tuple[int, int]:
        if sync:
            return await self._driver.write_and_sync(self.descriptor, buffers, position)
        return await self._driver.write(self.descriptor, buffers, position), LEFT_OUT


@contextmanager
def rest_of(buffers: Sequence[Buffer], index: int, skip: int) -> Iterator[Sequence[Buffer]]:
    """Give what one call takes, beginning inside a buffer."""
    if not skip:
        yield buffers[index : index + BUFFERS_MAX]
        return
    # Let go by hand, so that the caller can resize its buffers even while an error is handled.
    with memoryview(buffers[index]) as whole, whole.cast("B") as flat, flat[skip:] as head:
        yield [head, *buffers[index + 1 : index + BUFFERS_MAX]]

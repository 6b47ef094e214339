"""A data directory of the operating system: the methods of ``Storage`` that work on names.

Each method runs in a worker thread and is finished once begun, even if its caller is cancelled. Two
calls on the same path run in the order of the calls. The engines for real files inherit from here
and add ``engine`` and ``open``.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import trio

from iggy_ref_server.handoff_lock import HandoffLock
from iggy_ref_server.storage import posix
from iggy_ref_server.storage.interface import (
    DirectoryEntry,
    OpenFileBudget,
    check_directory_path,
    check_path,
    storage_error,
)
from iggy_ref_server.storage.locks import InFlightGate, PathLocks
from iggy_ref_server.storage.posix import Descriptor, total_size, write_all

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iggy_protocol import Buffer


# More would only queue in the kernel instead of here.
THREADS_MAX = 16
OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
# A rename is not tried again: it may be done already when its directory cannot be synced.
RETRY_PAUSES_S = (0.0, 0.02, 0.1, 0.5, 1.0)

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
        self.gate = InFlightGate()
        self.open_files = OpenFileBudget()
        self._root = os.path.abspath(root)
        self._limiter = trio.CapacityLimiter(threads_max)
        self._path_locks = PathLocks()

    @property
    def ended_count(self) -> int:
        """How many operations have ended; small reads and writes without a thread do not count."""
        return self.gate.ended_count

    def full_path(self, path: str) -> str:
        """Return a path as the operating system wants it."""
        return os.path.join(self._root, path) if path else self._root

    async def run_in_thread(self, action: str, path: str, work: Callable[[], ResultT]) -> ResultT:
        """Do blocking work in a worker thread, to its end even when cancelled.

        Args:
            action: the verb, for the error.
            path: what it is about, for the error.
            work: may raise ``OSError``.

        Raises:
            StorageError: the work failed, or the storage is closed.
        """
        with self.gate.track(action, path):
            return await self.run_blocking(action, path, work)

    async def run_blocking(self, action: str, path: str, work: Callable[[], ResultT]) -> ResultT:
        """Do as ``run_in_thread`` for a caller that has passed the gate already.

        When descriptors run out, files that are kept open are closed and the call is retried. They
        may still be in use for a moment, so there are several retries with pauses.
        """
        pauses_s = iter(() if action == "rename" else RETRY_PAUSES_S)
        while True:
            try:
                return await trio.to_thread.run_sync(work, limiter=self._limiter)
            except OSError as error:
                pause_s = next(pauses_s, None) if error.errno in OUT_OF_DESCRIPTORS else None
                if pause_s is None:
                    raise storage_error(action, path, error) from error
            self.open_files.evict_some()
            await trio.sleep(pause_s)

    async def run_in_order(
        self, action: str, paths: Sequence[str], work: Callable[[], None]
    ) -> None:
        """Do as ``run_in_thread`` after all earlier work on the same names."""
        with self.gate.track(action, paths[0]):
            async with self._path_locks.hold(*paths):
                await self.run_blocking(action, paths[0], work)

    async def open_descriptor(self, path: str, *, create: bool) -> Descriptor:
        """Open a file for reading and writing, the way ``Storage.open`` says."""
        full = self.full_path(check_path("open", path))
        number = await self.run_in_thread(
            "open", path, partial(posix.open_file, full, create=create)
        )
        return Descriptor(number)

    async def read_file(self, path: str, *, size_max: int = 1 << 30) -> bytes | None:
        """Read a whole file; None where there is none."""
        full = self.full_path(check_path("read_file", path))
        return await self.run_in_thread("read_file", path, partial(posix.read_file, full, size_max))

    async def replace(self, path: str, content: Buffer, *, sync: bool = True) -> None:
        """Give a file new content, all of it or none."""
        full = self.full_path(check_path("replace", path))
        work = partial(posix.replace, full, content, sync=sync)
        await self.run_in_order("replace", [path], work)

    async def rename(self, source: str, target: str) -> None:
        """Rename a file or directory and sync the directories."""
        work = partial(
            posix.rename,
            self.full_path(check_path("rename", source)),
            self.full_path(check_path("rename", target)),
        )
        await self.run_in_order("rename", [source, target], work)

    async def remove(self, path: str) -> None:
        """Remove a file; no error where there is none."""
        full = self.full_path(check_path("remove", path))
        await self.run_in_order("remove", [path], partial(posix.remove, full))

    async def remove_tree(self, path: str) -> None:
        """Remove a directory with all it holds; no error where there is none."""
        full = self.full_path(check_path("remove_tree", path))
        await self.run_in_order("remove_tree", [path], partial(posix.remove_tree, full))

    async def make_directories(self, path: str) -> None:
        """Make a directory and those above it, and sync each parent that changed."""
        full = self.full_path(check_directory_path("make_directories", path))
        await self.run_in_thread("make_directories", path, partial(posix.make_directories, full))

    async def entries(self, path: str) -> list[DirectoryEntry]:
        """List a directory sorted by name; an empty list where there is none."""
        full = self.full_path(check_directory_path("entries", path))
        return await self.run_in_thread("entries", path, partial(posix.list_directory, full))

    async def sync_directory(self, path: str) -> None:
        """Bring the names in a directory to the disk."""
        full = self.full_path(check_directory_path("sync_directory", path))
        await self.run_in_thread("sync_directory", path, partial(posix.sync_directory, full))

    async def free_bytes(self) -> tuple[int, int]:
        """Return the free and the total bytes of the file system."""
        return await self.run_in_thread("free_bytes", "", partial(posix.free_bytes, self._root))

    async def aclose(self) -> None:
        """Wait for operations in flight; open files close with their last reference."""
        await self.gate.close()


# An open file: the operations that never wait, common to all engines for real files.
#
# All changes of the file hold its lock in the order of their calls, so that an inline write never
# overtakes a write that waits.
#
# A file that grows takes disk space ahead of its end. Otherwise ext4 takes each block by itself
# while it is written: 180 us for a megabyte, and 115 us with the space taken before. It is never
# more than a quarter of what the file has, and given back when nothing is added any more.

AHEAD_FROM_BYTES = 4 << 20
AHEAD_SHARE = 4
AHEAD_BYTES_MAX = 8 << 20
# Less is the rest of the last blocks.
ROOM_AHEAD_MIN = 1 << 16
STAT_BLOCK_BYTES = 512


class PosixFile:
    """An open file of the page cache.

    Args:
        path: relative to the data directory.
        descriptor: the open file; it closes with the last reference to this object.
        gate: refuses once the storage is closed.
        writeback_limit: says when to write inline; shared by all files of one disk.

    Attributes:
        write_lock: held by what changes the file in a way that may wait.
    """

    def __init__(
        self, path: str, descriptor: Descriptor, gate: InFlightGate, writeback_limit: WritebackLimit
    ) -> None:
        self.write_lock = HandoffLock()
        self._path = path
        self._owner = descriptor
        self._gate = gate
        self._writeback_limit = writeback_limit
        self._taken_bytes = AHEAD_FROM_BYTES

    @property
    def path(self) -> str:
        """Its name when it was opened, relative to the data directory."""
        return self._path

    @property
    def descriptor(self) -> int:
        """The number for ``sendfile``, valid while this object is referred to."""
        return self._owner.number

    def size(self) -> int:
        """Return the length of the file in bytes."""
        return os.fstat(self._owner.number).st_size

    @property
    def has_room_ahead(self) -> bool:
        """Whether the disk keeps room for more than the file has."""
        facts = os.fstat(self._owner.number)
        return facts.st_blocks * STAT_BLOCK_BYTES - facts.st_size >= ROOM_AHEAD_MIN

    def write_nowait(self, buffers: Sequence[Buffer], position: int) -> bool:
        """Write all buffers into the page cache, unless writeback is slow at the moment."""
        self._gate.check("write", self._path)
        size = total_size(buffers)
        if self.write_lock.is_locked or not self._writeback_limit.allows(size):
            return False
        began_s = self._writeback_limit.begin()
        if position + size > self._taken_bytes:
            self._take_space(position, size)
        try:
            write_all(self._owner.number, buffers, position)
        except OSError as error:
            raise storage_error("write", self._path, error) from error
        finally:
            self._writeback_limit.end(began_s)
        return True

    def _take_space(self, position: int, size: int) -> None:
        """Take disk space for a write and for those that follow it, if there is enough."""
        ahead = min(position // AHEAD_SHARE, AHEAD_BYTES_MAX)
        try:
            is_taken = posix.preallocate(self._owner.number, size + ahead, position)
        except OSError:  # such as a full disk, which the write finds out if it matters
            is_taken = False
        self._taken_bytes = position + size + ahead if is_taken else sys.maxsize

    def read_nowait(self, size: int, position: int) -> bytes | None:
        """Read from memory if all of it is there; None when a disk would have to be asked."""
        self._gate.check("read", self._path)
        size = self._size_inside(size, position)
        if not size:
            return b""
        if NOWAIT is None:
            return None
        target = bytearray(size)
        try:
            count = os.preadv(self._owner.number, [target], position, NOWAIT)
        except OSError:  # not in memory, not on this file system; `read` will find out
            return None
        return bytes(target) if count == size else None

    def is_cached(self, size: int, position: int) -> bool:
        """Tell whether these bytes can be sent without waiting for a disk."""
        inside = self._size_inside(size, position)
        return is_in_page_cache(self._owner.number, position, inside)

    def _size_inside(self, size: int, position: int) -> int:
        return max(0, min(size, self.size() - position))


# Whether bytes of a file are in the page cache, by the system call ``cachestat``.
#
# A page that is just being read counts as cached, so a sender may wait for the rest of that read.


# Linux only: a read with this flag fails instead of waiting for a disk.
NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)

HAS_CACHESTAT = sys.platform == "linux"
# The same number on every architecture that got the call when it was new (6.5).
CACHESTAT_NUMBER = 451
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Without cachestat this many pages of a range are tried, the first and the last among them.
SAMPLES_MAX = 16


# struct cachestat_range: position, size. struct cachestat: cached, dirty, in writeback, evicted,
# recently evicted; all counted in pages.
CachestatRange = ctypes.c_uint64 * 2
CachestatCounts = ctypes.c_uint64 * 5

# Short calls that need not let other threads in.
LIBC = ctypes.PyDLL(None)


def count_cached_pages(descriptor: int, position: int, size: int) -> int | None:
    """Count the pages of a range that are in memory; None where the kernel cannot tell."""
    counts = CachestatCounts()
    failed = LIBC.syscall(
        ctypes.c_long(CACHESTAT_NUMBER),
        ctypes.c_uint(descriptor),
        ctypes.byref(CachestatRange(position, size)),
        ctypes.byref(counts),
        ctypes.c_uint(0),
    )
    return None if failed else counts[0]


def is_in_page_cache(descriptor: int, position: int, size: int) -> bool:
    """Tell whether a range that lies inside a file is in memory.

    Where the kernel has no ``cachestat`` a sample of its pages is tried, so that a gap between
    two of them may go unnoticed. Where it cannot be asked at all the answer is no.
    """
    if size <= 0:
        return True
    first, last = position // PAGE_BYTES, (position + size - 1) // PAGE_BYTES
    cached = count_cached_pages(descriptor, position, size) if HAS_CACHESTAT else None
    if cached is None:
        return is_sample_in_page_cache(descriptor, first, last)
    return cached > last - first


def is_sample_in_page_cache(descriptor: int, first: int, last: int) -> bool:
    """Try evenly spread pages of a range, both ends included."""
    if NOWAIT is None:
        return False
    steps = min(last - first, SAMPLES_MAX - 1)
    pages = [first + (last - first) * step // max(steps, 1) for step in range(steps + 1)]
    byte = bytearray(1)
    try:
        return all(os.preadv(descriptor, [byte], page * PAGE_BYTES, NOWAIT) for page in pages)
    except OSError:
        return False


# The writeback limit: stops inline writes on the event loop while writeback is slow.
#
# A write into the page cache is a memory copy, until the kernel throttles writers because too many
# pages are dirty. Only the duration of the write shows that. After a slow write, inline writes
# pause; then a few are tried, and a slow one among those doubles the next pause.

# The event loop must not block longer than this.
SLOW_S = 0.005
# Writeback comes in bursts of about this length.
PAUSE_S = 0.1
PAUSE_MAX_S = 2.0
# One quick write may be luck.
PROBES_COUNT = 3
# Copying this much takes a millisecond or two on its own.
INLINE_BYTES_MAX = 8 << 20


class WritebackLimit:
    """Decides whether to write inline, from how long it took before.

    Args:
        clock: seconds from any start; a test passes its own.
        slow_s: an inline write that takes longer starts a pause.
        pause_s: how long the first pause is.
        pause_max_s: the longest pause.
        probes_count: quick writes in a row after which all is well again.
        inline_bytes_max: larger writes are never inline.

    Attributes:
        pauses_count: how often inline writes were paused.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        *,
        slow_s: float = SLOW_S,
        pause_s: float = PAUSE_S,
        pause_max_s: float = PAUSE_MAX_S,
        probes_count: int = PROBES_COUNT,
        inline_bytes_max: int = INLINE_BYTES_MAX,
    ) -> None:
        self.pauses_count = 0
        self._clock = clock
        self._slow_s = slow_s
        self._pause_first_s = pause_s
        self._pause_max_s = pause_max_s
        self._probes_count = probes_count
        self._inline_bytes_max = inline_bytes_max
        self._probes_left = 0
        self._pause_s = pause_s
        self._paused_until_s: float | None = None

    def allows(self, size_bytes: int) -> bool:
        """Tell whether a write of this size shall be inline."""
        if size_bytes > self._inline_bytes_max:
            return False
        if self._paused_until_s is None:
            return True
        if self._clock() < self._paused_until_s:
            return False
        self._paused_until_s = None
        return True

    def begin(self) -> float:
        """Return the time at which an inline write begins, for ``end``."""
        return self._clock()

    def end(self, began_s: float) -> None:
        """Learn that the inline write is over, however it went."""
        now_s = self._clock()
        if now_s - began_s > self._slow_s:
            self._pause(now_s)
        elif self._probes_left:
            self._probes_left -= 1

    def _pause(self, now_s: float) -> None:
        was_probing = self._probes_left > 0
        longer_s = min(self._pause_s * 2, self._pause_max_s)
        self._pause_s = longer_s if was_probing else self._pause_first_s
        self._paused_until_s = now_s + self._pause_s
        self._probes_left = self._probes_count
        self.pauses_count += 1

"""Coordinates storage operations: counts those in flight, so that closing can wait for them."""

from __future__ import annotations

import errno
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import trio

from iggy_ref_server.handoff_lock import HandoffLock
from iggy_ref_server.storage.interface import StorageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator


class InFlightGate:
    """Admits operations while it is open, and knows when the last one has ended.

    Attributes:
        ended_count: how many operations have ended since the beginning.
    """

    __slots__ = ("_emptied", "_inside_count", "ended_count", "is_open")

    def __init__(self) -> None:
        self.is_open = True
        self._inside_count = 0
        self.ended_count = 0
        self._emptied = trio.Event()

    def check(self, action: str, path: str) -> None:
        """Refuse when the gate is shut.

        Raises:
            StorageError: with errno EBADF.
        """
        if not self.is_open:
            raise StorageError(action, path, "the storage is closed", errno=errno.EBADF)

    @contextmanager
    def track(self, action: str, path: str) -> Iterator[None]:
        """Count one operation as under way.

        Raises:
            StorageError: the gate is shut.
        """
        self.enter(action, path)
        try:
            yield
        finally:
            self.leave()

    def enter(self, action: str, path: str) -> None:
        """Begin an operation that ends with ``leave``, in whatever task.

        Raises:
            StorageError: the gate is shut.
        """
        self.check(action, path)
        self._inside_count += 1

    def leave(self) -> None:
        """End an operation."""
        self._inside_count -= 1
        self.ended_count += 1
        if not self._inside_count and not self.is_open:
            self._emptied.set()

    def shut(self) -> None:
        """Refuse new operations, without waiting for those in flight."""
        self.is_open = False

    async def close(self) -> None:
        """Refuse new operations, and wait for those in flight even when cancelled."""
        self.shut()
        with trio.CancelScope(shield=True):
            if self._inside_count:
                await self._emptied.wait()
        await trio.lowlevel.checkpoint()


# Locks by path: changes of the same path run in the order of their calls.


class PathLocks:
    """One lock for each path that is in use."""

    __slots__ = ("_locks",)

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, HandoffLock] = WeakValueDictionary()

    @asynccontextmanager
    async def hold(self, *names: str) -> AsyncIterator[None]:
        """Hold the locks of all given paths; they are taken in sorted order, so no deadlock."""
        async with AsyncExitStack() as stack:
            for name in sorted(set(names)):
                lock = self._locks.setdefault(name, HandoffLock())
                await stack.enter_async_context(lock)
            yield


# Syncs of one open file: one at a time, with one result for all callers that came before it.
#
# The kernel reports lost data once, to the first sync; a second sync at the same time would report
# success. So syncs never overlap. Callers that come while one runs share the next one.


class SharedSync:
    """The syncs of one open file; results are 0 or negative error numbers."""

    __slots__ = ("_begun_count", "_ended_number", "_lock", "_result")

    def __init__(self) -> None:
        self._lock = HandoffLock()
        self._begun_count = 0
        self._ended_number = 0
        self._result = 0

    async def join(self, sync: Callable[[], Awaitable[int]]) -> int:
        """Return the result of a sync that began after this call, making one if need be."""
        seen_count = self._begun_count
        await self._lock.acquire()
        try:
            if self._ended_number > seen_count:
                return self._result
            return await self._run(sync)
        finally:
            self._lock.release()

    async def lead(self, sync: Callable[[], Awaitable[int]]) -> int:
        """Make a sync in any case, since more than a sync is to be done.

        Others share the result unless ``sync`` raises.
        """
        await self._lock.acquire()
        try:
            return await self._run(sync)
        finally:
            self._lock.release()

    def begin_nowait(self) -> bool:
        """Begin a sync that ends with ``end``, unless another one runs; tell whether it is so."""
        if not self._lock.acquire_nowait():
            return False
        self._begun_count += 1
        return True

    def end(self, result: int | None) -> None:
        """Share the result of what ``begin_nowait`` began; None when it came to no sync."""
        if result is not None:
            self._ended_number, self._result = self._begun_count, result
        self._lock.release()

    async def _run(self, sync: Callable[[], Awaitable[int]]) -> int:
        self._begun_count += 1
        result = await sync()
        self._ended_number, self._result = self._begun_count, result
        return result

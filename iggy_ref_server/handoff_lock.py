"""A lock that one task acquires and another task, or a callback, releases.

``trio.Lock`` must be released by the task that acquired it. An operation that starts in a task and
ends in the callback of an io_uring completion has no such task, so this lock has no owner. Waiting
tasks get the lock in the order in which they came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from typing import Self


class HandoffLock:
    """A lock without an owner, first come, first served.

    Attributes:
        is_locked: whether the lock is held.
    """

    __slots__ = ("__weakref__", "_waiters", "is_locked")

    def __init__(self) -> None:
        self.is_locked = False
        self._waiters = trio.lowlevel.ParkingLot()

    def acquire_nowait(self) -> bool:
        """Acquire the lock if it is free; return whether it was."""
        if self.is_locked:
            return False
        self.is_locked = True
        return True

    async def acquire(self) -> None:
        """Acquire the lock; this is a checkpoint only if the lock is not free."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if not self.acquire_nowait():
            await self._waiters.park()

    def release(self) -> None:
        """Release the lock, or pass it to the task that has waited longest."""
        assert self.is_locked
        if self._waiters:
            # It stays held in between, so that no other task can overtake the one that is woken.
            self._waiters.unpark()
        else:
            self.is_locked = False

    async def __aenter__(self) -> Self:
        """Acquire the lock; this is always a checkpoint, as with ``trio.Lock``."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if self.acquire_nowait():
            await trio.lowlevel.cancel_shielded_checkpoint()
        else:
            await self._waiters.park()
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Release the lock."""
        self.release()

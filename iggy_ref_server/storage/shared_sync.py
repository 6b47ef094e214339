"""Syncs of one open file: one at a time, its result shared by all who asked before it began.

The kernel tells of lost data once, to the first sync that asks; of two at the same time the other
would report success. So they take turns. Whoever comes while one runs waits for the next, which
then serves all who waited.

Owns the order of syncs and their latest result. Does not know how to sync.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["SharedSync", "take"]


class SharedSync:
    """The syncs of one open file; results are 0 or negative error numbers."""

    __slots__ = ("_begun_count", "_ended_number", "_result", "_turn")

    def __init__(self) -> None:
        self._turn = trio.Lock()
        self._begun_count = 0
        self._ended_number = 0
        self._result = 0

    async def join(self, sync: Callable[[], Awaitable[int]]) -> int:
        """Return the result of a sync that began after this call, making one if need be."""
        seen_count = self._begun_count
        await take(self._turn)
        try:
            if self._ended_number > seen_count:
                return self._result
            return await self._run(sync)
        finally:
            self._turn.release()

    async def lead(self, sync: Callable[[], Awaitable[int]]) -> int:
        """Make a sync in any case, since more than a sync is to be done.

        Others share the result unless ``sync`` raises.
        """
        await take(self._turn)
        try:
            return await self._run(sync)
        finally:
            self._turn.release()

    async def _run(self, sync: Callable[[], Awaitable[int]]) -> int:
        self._begun_count += 1
        number = self._begun_count
        result = await sync()
        self._ended_number, self._result = number, result
        return result


async def take(turn: trio.Lock) -> None:
    """Take a lock; unlike its own ``acquire`` give up the loop only if somebody else has it."""
    await trio.lowlevel.checkpoint_if_cancelled()
    try:
        turn.acquire_nowait()
    except trio.WouldBlock:
        await turn.acquire()

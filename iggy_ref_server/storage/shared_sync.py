"""Syncs of one open file: one at a time, with one result for all callers that came before it.

The kernel reports lost data once, to the first sync; a second sync at the same time would report
success. So syncs never overlap. Callers that come while one runs share the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_ref_server.baton import Baton

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["SharedSync"]


class SharedSync:
    """The syncs of one open file; results are 0 or negative error numbers."""

    __slots__ = ("_begun_count", "_ended_number", "_result", "_turn")

    def __init__(self) -> None:
        self._turn = Baton()
        self._begun_count = 0
        self._ended_number = 0
        self._result = 0

    async def join(self, sync: Callable[[], Awaitable[int]]) -> int:
        """Return the result of a sync that began after this call, making one if need be."""
        seen_count = self._begun_count
        await self._turn.take()
        try:
            if self._ended_number > seen_count:
                return self._result
            return await self._run(sync)
        finally:
            self._turn.give_back()

    async def lead(self, sync: Callable[[], Awaitable[int]]) -> int:
        """Make a sync in any case, since more than a sync is to be done.

        Others share the result unless ``sync`` raises.
        """
        await self._turn.take()
        try:
            return await self._run(sync)
        finally:
            self._turn.give_back()

    def begin_now(self) -> bool:
        """Begin a sync that ends with ``end``, unless another one runs; tell whether it is so."""
        if not self._turn.take_now():
            return False
        self._begun_count += 1
        return True

    def end(self, result: int | None) -> None:
        """Share the result of what ``begin_now`` began; None when it came to no sync."""
        if result is not None:
            self._ended_number, self._result = self._begun_count, result
        self._turn.give_back()

    async def _run(self, sync: Callable[[], Awaitable[int]]) -> int:
        self._begun_count += 1
        result = await sync()
        self._ended_number, self._result = self._begun_count, result
        return result

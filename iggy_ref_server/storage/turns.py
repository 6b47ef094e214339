"""Locks by path: changes of the same path run in the order of their calls."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from iggy_ref_server.baton import Baton

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["Turns"]


class Turns:
    """One lock for each path that is in use."""

    __slots__ = ("_locks",)

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, Baton] = WeakValueDictionary()

    @asynccontextmanager
    async def taken(self, *names: str) -> AsyncIterator[None]:
        """Hold the locks of all given paths; they are taken in sorted order, so no deadlock."""
        async with AsyncExitStack() as stack:
            for name in sorted(set(names)):
                lock = self._locks.setdefault(name, Baton())
                await stack.enter_async_context(lock)
            yield

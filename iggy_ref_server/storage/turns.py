"""Who is next: changes to the same name happen in the order of their calls."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from iggy_ref_server.baton import Baton

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["Turns"]


class Turns:
    """One queue for each name that somebody is busy with."""

    __slots__ = ("_locks",)

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, Baton] = WeakValueDictionary()

    @asynccontextmanager
    async def taken(self, *names: str) -> AsyncIterator[None]:
        """Wait until nobody who came earlier is busy with any of the names."""
        async with AsyncExitStack() as stack:
            for name in sorted(set(names)):
                lock = self._locks.setdefault(name, Baton())
                await stack.enter_async_context(lock)
            yield

"""A lock that one task takes and another hand gives back.

``trio.Lock`` belongs to the task that took it. What begins in one task and ends in the callback of
a completion has no such task; this one belongs to whatever is under way.

Owns the queue of those who wait, who are served in the order in which they came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from typing import Self

__all__ = ["Baton"]


class Baton:
    """Held by one at a time.

    Attributes:
        is_held: whether somebody has it.
    """

    __slots__ = ("__weakref__", "_waiting", "is_held")

    def __init__(self) -> None:
        self.is_held = False
        self._waiting = trio.lowlevel.ParkingLot()

    def take_now(self) -> bool:
        """Take it if nobody has it; tell whether that went well."""
        if self.is_held:
            return False
        self.is_held = True
        return True

    async def take(self) -> None:
        """Take it; the loop is given up only if somebody else has it."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if not self.take_now():
            await self._waiting.park()

    def give_back(self) -> None:
        """Hand it to whoever has waited longest, if anybody does."""
        assert self.is_held
        if self._waiting:
            self._waiting.unpark()
        else:
            self.is_held = False

    async def __aenter__(self) -> Self:
        """Take it; others may run in between, as with every lock of trio."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if self.take_now():
            await trio.lowlevel.cancel_shielded_checkpoint()
        else:
            await self._waiting.park()
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Give it back."""
        self.give_back()

"""How many files a process keeps open, and which are closed when others need the room.

A process has only so many descriptors, and a shard may have more partitions than that. So files are
kept open as long as there is room, and those that nobody used for the longest time are closed for
others; whoever needs them again opens them again. Closing means letting go: a file that somebody
else holds, as a reply on its way does, stays open until he is done.

Nothing is noted when a file is used: the owner tells by its own figures, when room is needed,
whether something has happened since the last time.

Owns the count and the choice. Opens and closes nothing itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

import trio

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["OpenBudget", "Owner"]


class Owner(Protocol):
    """Someone who keeps files open and can do without, by items of its own choice."""

    def is_idle(self, item: Hashable) -> bool:
        """Tell whether an item was not used since the last time this was asked."""

    def let_go(self, item: Hashable) -> None:
        """Keep an item's files open no longer."""


Key: TypeAlias = "tuple[Owner, Hashable]"

OPENING_MAX = 16
# When the system refuses another descriptor, this part of all kept files is closed.
SQUEEZED_PART = 4


class OpenBudget:
    """The files that are kept open in one process.

    Args:
        descriptors_max: how many descriptors they may take; None for any number.

    Attributes:
        descriptors_count: how many they take now.
        opening: taken by whoever opens files to be kept.
    """

    def __init__(self, descriptors_max: int | None = None) -> None:
        self.descriptors_max = descriptors_max
        self.descriptors_count = 0
        self._kept: dict[Key, int] = {}  # the next to be looked at first

        # Files that are being opened are not counted yet, so only a few are at a time.
        self.opening = trio.Semaphore(OPENING_MAX)

    def keep(self, owner: Owner, item: Hashable, descriptors_count: int) -> None:
        """Count what was opened, and close others if that is too much."""
        key = (owner, item)
        if key not in self._kept:
            self._kept[key] = descriptors_count
            self.descriptors_count += descriptors_count
            if self.descriptors_max is not None:
                self._close_until(self.descriptors_max, spared=key)

    def forget(self, owner: Owner, item: Hashable) -> None:
        """Count an item no longer, because its owner has let go of it."""
        self.descriptors_count -= self._kept.pop((owner, item), 0)

    def squeeze(self) -> bool:
        """Close some files because the system has no more descriptors; tell whether any were."""
        before = self.descriptors_count
        self._close_until(before - max(before // SQUEEZED_PART, 1), spared=None)
        return self.descriptors_count < before

    def _close_until(self, descriptors_max: int, *, spared: Key | None) -> None:
        # In the second round everything is idle, so that the loop ends.
        for _ in range(2 * len(self._kept)):
            if self.descriptors_count <= descriptors_max or not self._kept:
                return
            key = next(iter(self._kept))
            owner, item = key
            if key == spared or not owner.is_idle(item):
                self._kept[key] = self._kept.pop(key)
            else:
                self.forget(owner, item)
                owner.let_go(item)

"""The budget of open files: which files are closed when descriptors run out.

A process has a limited number of descriptors, and a shard may have more partitions than that. Files
stay open while the budget allows it; then those that were idle longest are closed, and opened again
on the next use. A file that a reply still refers to stays open until the reply is sent.

The budget records nothing when a file is used. When it needs descriptors it asks the owner whether
the file was used since it asked last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

import trio

if TYPE_CHECKING:
    from collections.abc import Hashable


class OpenFileOwner(Protocol):
    """An owner of open files, which it can close item by item."""

    def is_idle(self, item: Hashable) -> bool:
        """Tell whether an item was not used since the last time this was asked."""

    def close_item(self, item: Hashable) -> None:
        """Keep an item's files open no longer."""


Key: TypeAlias = "tuple[OpenFileOwner, Hashable]"

OPENING_MAX = 16
# When the system refuses another descriptor, this part of all kept files is closed.
EVICTED_FRACTION = 4


class OpenFileBudget:
    """The files that are kept open in one process.

    Args:
        descriptors_max: how many descriptors they may take; None for any number.

    Attributes:
        descriptors_count: how many they take now.
        opening: held while files are opened that will be kept.
    """

    def __init__(self, descriptors_max: int | None = None) -> None:
        self.descriptors_max = descriptors_max
        self.descriptors_count = 0
        self._kept: dict[Key, int] = {}  # the next to be looked at first

        # Files that are being opened are not counted yet, so only a few are at a time.
        self.opening = trio.Semaphore(OPENING_MAX)

    def keep(self, owner: OpenFileOwner, item: Hashable, descriptors_count: int) -> None:
        """Count what was opened, and close others if that is too much."""
        key = (owner, item)
        if key not in self._kept:
            self._kept[key] = descriptors_count
            self.descriptors_count += descriptors_count
            if self.descriptors_max is not None:
                self._close_until(self.descriptors_max, excluded=key)

    def forget(self, owner: OpenFileOwner, item: Hashable) -> None:
        """Count an item no longer, because its owner has let go of it."""
        self.descriptors_count -= self._kept.pop((owner, item), 0)

    def evict_some(self) -> bool:
        """Close some files because the system has no more descriptors; tell whether any were."""
        before = self.descriptors_count
        self._close_until(before - max(before // EVICTED_FRACTION, 1), excluded=None)
        return self.descriptors_count < before

    def _close_until(self, descriptors_max: int, *, excluded: Key | None) -> None:
        # In the second round everything is idle, so that the loop ends.
        for _ in range(2 * len(self._kept)):
            if self.descriptors_count <= descriptors_max or not self._kept:
                return
            key = next(iter(self._kept))
            owner, item = key
            if key == excluded or not owner.is_idle(item):
                self._kept[key] = self._kept.pop(key)
            else:
                self.forget(owner, item)
                owner.close_item(item)

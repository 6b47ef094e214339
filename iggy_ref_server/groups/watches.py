"""Watches: who is told when a member may no longer read a partition.

A client may wait on the server for messages of a partition that it owns. When the partition is
promised or given to another member, the wait has to end, because a poll that is sent then would be
refused. The server notices at the change itself and polls nothing.

A watch is told once and is gone then. Its callback must not call the group: it is called while the
group changes. Whoever makes watches bounds their number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class OwnershipWatch:
    """One watch on some partitions of a group.

    Args:
        watches: where it is listed.
        partitions: what is watched.
        on_lost: called when the member may not read one of them any more.
    """

    __slots__ = ("_on_lost", "_watches", "partitions")

    def __init__(
        self,
        watches: OwnershipWatches,
        partitions: tuple[int, ...],
        on_lost: Callable[[], None],
    ) -> None:
        self._watches = watches
        self._on_lost: Callable[[], None] | None = on_lost
        self.partitions = partitions

    def cancel(self) -> None:
        """End the watch without a call; does nothing if it has ended."""
        self._on_lost = None
        self._watches.remove(self)

    def tell(self) -> None:
        """End the watch with a call; does nothing if it has ended."""
        on_lost = self._on_lost
        self.cancel()
        if on_lost is not None:
            on_lost()


class OwnershipWatches:
    """The watches of one group, by partition."""

    __slots__ = ("_by_partition",)

    def __init__(self) -> None:
        # The inner dictionaries serve as sets that keep their order.
        self._by_partition: dict[int, dict[OwnershipWatch, None]] = {}

    def __len__(self) -> int:
        return len({watch for watches in self._by_partition.values() for watch in watches})

    def add(self, partitions: Iterable[int], on_lost: Callable[[], None]) -> OwnershipWatch:
        """Watch some partitions."""
        watch = OwnershipWatch(self, tuple(partitions), on_lost)
        for partition in watch.partitions:
            self._by_partition.setdefault(partition, {})[watch] = None
        return watch

    def remove(self, watch: OwnershipWatch) -> None:
        """Forget a watch; no error where it is not listed."""
        for partition in watch.partitions:
            watches = self._by_partition.get(partition)
            if watches is not None:
                watches.pop(watch, None)
                if not watches:
                    del self._by_partition[partition]

    def tell(self, partition: int) -> None:
        """Tell all who watch a partition that its owner may not read it any more."""
        for watch in tuple(self._by_partition.get(partition, ())):
            watch.tell()

    def tell_all(self) -> None:
        """Tell everybody, because the group is gone."""
        for partition in tuple(self._by_partition):
            self.tell(partition)

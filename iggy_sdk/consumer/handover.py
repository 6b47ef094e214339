"""The partitions of a consumer coming and going, as the application is told.

``on_assigned`` is awaited before the first message of a partition is delivered. ``on_revoked`` is
awaited before the commit that completes a partition which another member is to get: the server
hands it over upon that commit. Where the server has taken a partition without asking, it is awaited
as soon as that is known.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from iggy_sdk.consumer.events import log_event

if TYPE_CHECKING:
    from iggy_sdk.consumer.subscription import Subscription
    from iggy_sdk.consumer.tracker import OffsetTrackers


PartitionsCallback: TypeAlias = Callable[[frozenset[int]], Awaitable[None] | None]
"""Called with partitions that were assigned or revoked; an async function, or a plain one."""


class Handover:
    """Tells the application which partitions it gets and loses.

    Args:
        subscription: whose partitions they are, for the log.
        trackers: know which messages of a partition are not stored yet.
        on_assigned: called with partitions that are new.
        on_revoked: called with partitions that go.
        stores_all: whether the end of all that was polled is stored without being asked for.
    """

    def __init__(
        self,
        *,
        subscription: Subscription,
        trackers: OffsetTrackers,
        on_assigned: PartitionsCallback | None,
        on_revoked: PartitionsCallback | None,
        stores_all: bool,
    ) -> None:
        self._subscription = subscription
        self._trackers = trackers
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._stores_all = stores_all
        # What is polled, as it was known last.
        self._assigned: frozenset[int] = frozenset()
        # What the application has, as it was told; some of it may be leaving, or be lost.
        self._told: frozenset[int] = frozenset()
        self._leaving: frozenset[int] = frozenset()
        self._lost: frozenset[int] = frozenset()
        self._is_over = False

    async def update(self, assigned: frozenset[int]) -> None:
        """Tell what has changed, now that the consumer has these partitions."""
        if self._is_over:
            return
        before, self._assigned = self._assigned, assigned
        if before - assigned:
            text = f"reads partitions {sorted(assigned)} instead of {sorted(before)}"
            log_event("rebalanced", self._subscription, text, partitions=sorted(assigned))
        await self.tell_lost()
        self._leaving = self._told - assigned
        await self._revoke(
            frozenset(one for one in self._leaving if not self._has_open_messages(one))
        )
        gained = assigned - self._told
        if gained:
            self._told |= gained
            self._log("assigned", gained)
            await _call(self._on_assigned, gained)

    def lose(self, partition_id: int) -> None:
        """Note that the server gave a partition to another member."""
        self._lost |= {partition_id}

    def lose_all(self) -> None:
        """Note that the group was joined anew, and others may have had the partitions since."""
        self._lost |= self._told

    async def tell_lost(self) -> None:
        """Tell of partitions that were lost since the last call."""
        if self._lost:
            lost, self._lost = self._lost, frozenset()
            await self._revoke(lost & self._told)

    async def before_store(self, partition_id: int, offset: int) -> None:
        """Tell of a partition that goes, before the store of an offset that hands it over."""
        if partition_id in self._leaving:
            tracker = self._trackers.find(partition_id)
            if tracker is None or tracker.polled is None or offset >= tracker.polled:
                await self._revoke(frozenset({partition_id}))

    async def end(self) -> None:
        """Tell that all partitions go, because the group is left."""
        self._is_over = True
        self._lost = self._assigned = frozenset()
        await self._revoke(self._told)

    def _has_open_messages(self, partition_id: int) -> bool:
        tracker = self._trackers.find(partition_id)
        if tracker is None:
            return False
        if self._stores_all:
            return tracker.has_open_messages
        return tracker.acknowledged != tracker.polled

    async def _revoke(self, partitions: frozenset[int]) -> None:
        if not partitions:
            return
        # First, so that a callback which commits does not come here again.
        self._told -= partitions
        self._leaving -= partitions
        self._log("revoked", partitions)
        await _call(self._on_revoked, partitions)

    def _log(self, event: str, partitions: frozenset[int]) -> None:
        numbers = sorted(partitions)
        log_event(event, self._subscription, f"{event} partitions {numbers}", partitions=numbers)


async def _call(callback: PartitionsCallback | None, partitions: frozenset[int]) -> None:
    if callback is not None:
        result = callback(partitions)
        if inspect.isawaitable(result):
            await result


class ObservedPartitions:
    """The partitions of a member whose server does not tell them, as its polls show them.

    The server chooses the next partition of the member with each poll, so the assignment is what
    came between two polls of the same partition.

    Attributes:
        partitions: what is known at the moment.
    """

    def __init__(self) -> None:
        self.partitions: frozenset[int] = frozenset()
        self._round: set[int] = set()

    def observe(self, partition_id: int) -> None:
        """Record the partition of a poll."""
        if partition_id in self._round:
            self.partitions = frozenset(self._round)
            self._round.clear()
        self._round.add(partition_id)
        self.partitions |= {partition_id}

    def forget(self, partition_id: int | None = None) -> None:
        """Forget a partition that was lost, or all of them."""
        if partition_id is None:
            self.partitions = frozenset()
            self._round.clear()
        else:
            self.partitions -= {partition_id}
            self._round.discard(partition_id)

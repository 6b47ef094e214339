"""Storing offsets: when they are due, and what a refusal means.

An offset that the server refuses because the partition has another owner is dropped: the owner
continues from the last stored one. After a retriable error the offset stays due, so a commit can be
late but not lost. While a partition is read again, offsets below the stored one are held back.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import anyio

from iggy_sdk.consumer.auto_commit import AutoCommit, Trigger
from iggy_sdk.consumer.membership import ConsumerMembership, RequestWithdrawn
from iggy_sdk.errors import (
    IggyError,
    InvalidOffsetError,
    PartitionNotFoundError,
    PartitionNotOwnedError,
    PartitionRestartedError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iggy_sdk.consumer.cursor import PartitionCursors
    from iggy_sdk.consumer.subscription import Subscription
    from iggy_sdk.consumer.tracker import OffsetTracker, OffsetTrackers


TIMER_SLACK_SECONDS: Final = 0.001
"""A timer may fire this much early."""

LATE_FACTOR: Final = 2
"""How many times the messages of a gathered store may wait while the timer task stores."""

MANY_MESSAGES: Final = 500
"""Who gathers fewer messages wants to know that they are stored."""

logger: logging.Logger = logging.getLogger("iggy_sdk.consumer")


class CommitScheduler:
    """Stores offsets for one consumer; ``on_lost`` is called for a partition of another owner."""

    def __init__(
        self,
        *,
        membership: ConsumerMembership,
        subscription: Subscription,
        trackers: OffsetTrackers,
        cursors: PartitionCursors,
        mode: AutoCommit,
        on_lost: Callable[[int], None],
    ) -> None:
        self.has_timer_task = False
        """Whether a timer task calls ``on_timer``."""
        self.leaves_to_timer = False
        """Whether that task also makes stores which are due while there is more to deliver."""
        self.before_store: Callable[[int, int], Awaitable[None]] = _do_nothing
        """Called before an offset is stored, with the partition."""
        self.stores_count: int = 0
        self.dropped_count: int = 0
        self.failures_count: int = 0
        self.held_count: int = 0
        self._membership = membership
        self._subscription = subscription
        self._trackers = trackers
        self._cursors = cursors
        self._mode = mode
        self._on_lost = on_lost
        self._storing = anyio.Lock()
        self._gathered_since: float | None = None
        self._ticked_at: float | None = None
        self._requested = anyio.Event()

    async def flush_if_due(self, *, drained: bool) -> None:
        """Store what is due, unless further acknowledgements are gathered first.

        Args:
            drained: whether the buffer is empty. Offsets are stored at once then, because the
                group cannot reassign the partition before.

        Raises:
            IggyError: the server refuses for good.
        """
        if self._mode.is_disabled:
            return
        now = anyio.current_time()
        self._tick(now)
        waiting = self._trackers.waiting
        if not waiting:
            self._gathered_since = None
            return
        if self._mode.trigger is Trigger.EACH and not drained:
            if not self._is_due(now, waiting):
                return
            gathered = self._mode.coalesce_messages
            is_left = self.leaves_to_timer and self.has_timer_task and gathered >= MANY_MESSAGES
            if is_left and waiting < LATE_FACTOR * gathered:
                # The reader goes on meanwhile; what was fetched ahead is there already.
                self._requested.set()
                return
        await self.flush()

    async def wait_for_request(self) -> None:
        """Wait until a store is due that is left to the timer task."""
        await self._requested.wait()

    def can_defer(self, tracker: OffsetTracker) -> bool:
        """Tell cheaply whether no store is due after a message of this partition."""
        if not tracker.has_due:
            return self._mode.every is None
        gathers = self._mode.trigger is Trigger.EACH and self.has_timer_task
        return gathers and tracker.waiting < self._mode.coalesce_messages

    async def on_timer(self) -> None:
        """Store what is due; called by the timer task.

        Raises:
            IggyError: the server refuses for good.
        """
        if self._requested.is_set():
            self._requested = anyio.Event()
        self._tick(anyio.current_time())
        if self._trackers.waiting:
            await self.flush()

    async def flush(self) -> None:
        """Store everything that is due.

        Raises:
            IggyError: the server refuses for good. After a retriable error the offset stays due.
        """
        for tracker in self._trackers.with_due():
            if tracker.due is not None:
                await self.before_store(tracker.partition_id, tracker.due)
        async with self._storing:
            for tracker in self._trackers.with_due():
                await self._store_due(tracker)
            self._gathered_since = None

    async def finish(self) -> None:
        """Store what an interval would store later, because the consumer closes.

        Raises:
            IggyError: the server refuses for good.
        """
        if self._mode.every is not None:
            self._trackers.tick()
        await self.flush()

    async def store(self, partition_id: int, offset: int, *, timeout: float | None = None) -> None:
        """Store an offset at the request of the user.

        Args:
            partition_id: the partition.
            offset: the offset.
            timeout: seconds for the request; None takes the timeout of the client.

        Raises:
            IggyError: the server refuses.
        """
        await self.before_store(partition_id, offset)
        async with self._storing:
            tracker = self._trackers.find(partition_id)
            if self._is_held(partition_id, offset):
                if tracker is not None:
                    tracker.hold(offset)
                return
            try:
                await self._membership.request(
                    self._subscription.store_command(partition_id, offset),
                    context=None if tracker is None else tracker.context,
                    timeout=timeout,
                )
            except (PartitionNotOwnedError, PartitionRestartedError):
                # What is left of it in the buffer would only be refused as well.
                if tracker is not None and self._trackers.find(partition_id) is tracker:
                    self._on_lost(partition_id)
                raise
            self._stored(partition_id, offset)

    def _tick(self, now: float) -> None:
        if self._mode.every is None:
            return
        if self._ticked_at is None:
            self._ticked_at = now
        if now - self._ticked_at >= self._mode.every - TIMER_SLACK_SECONDS:
            self._ticked_at = now
            self._trackers.tick()

    def _is_due(self, now: float, waiting: int) -> bool:
        """Tell whether acknowledgements were gathered long enough."""
        if self._gathered_since is None:
            self._gathered_since = now
        enough = waiting >= self._mode.coalesce_messages
        return enough or now - self._gathered_since >= self._mode.coalesce

    async def _store_due(self, tracker: OffsetTracker) -> None:
        offset, partition_id = tracker.due, tracker.partition_id
        if offset is None:
            return
        if self._is_held(partition_id, offset):
            tracker.hold(offset)
            return
        try:
            await self._membership.request(
                self._subscription.store_command(partition_id, offset),
                lambda: self._trackers.find(partition_id) is tracker,
                context=tracker.context,
            )
        except RequestWithdrawn:
            logger.info(
                "%s: partition %d was moved to another position, its offset is not stored",
                self._subscription,
                partition_id,
            )
        except (
            PartitionNotOwnedError,
            PartitionNotFoundError,
            PartitionRestartedError,
            InvalidOffsetError,
        ) as error:
            self._drop(tracker, offset, error)
        except IggyError as error:
            self.failures_count += 1
            if not error.retriable:
                raise
            logger.warning(
                "%s: storing offset %d of partition %d failed, it is tried again later: %s",
                *(self._subscription, offset, partition_id, error),
            )
        else:
            self._stored(partition_id, offset, tracker)

    def _stored(self, partition_id: int, offset: int, tracker: OffsetTracker | None = None) -> None:
        self.stores_count += 1
        if not self._cursors.is_below_floor(partition_id, offset):
            self._cursors.lift_floor(partition_id)
        tracker = tracker or self._trackers.find(partition_id)
        if tracker is not None:
            tracker.store(offset)

    def _is_held(self, partition_id: int, offset: int) -> bool:
        """Hold back a commit during a replay that would move back what is stored."""
        if not self._cursors.is_below_floor(partition_id, offset):
            return False
        self.held_count += 1
        logger.debug(
            "%s: offset %d of partition %d is not stored, the group is at a later one",
            *(self._subscription, offset, partition_id),
        )
        return True

    def _drop(self, tracker: OffsetTracker, offset: int, error: IggyError) -> None:
        partition_id = tracker.partition_id
        logger.info(
            "%s: offset %d of partition %d is not stored, the partition has another owner: %s",
            *(self._subscription, offset, partition_id, error),
        )
        self.dropped_count += 1
        if self._trackers.find(partition_id) is tracker:
            self._on_lost(partition_id)


async def _do_nothing(partition_id: int, offset: int) -> None:
    """Do nothing before an offset is stored."""

"""Offsets of a consumer: polled, delivered, acknowledged, due and stored, by partition.

A tracker never offers an offset for storing while an older message of the partition is still being
handled, however many younger ones are done. "Older" means delivered earlier, so gaps in the offsets
do not matter. No I/O and no clock.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from iggy_sdk.consumer.auto_commit import AutoCommit, Trigger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iggy_protocol import PartitionContext


class OffsetTracker:
    """One partition. A seek begins a new tracker, so that handlers of the old position cannot store
    its offsets."""

    __slots__ = (
        "_counted",
        "_done",
        "_ends",
        "_mode",
        "_open",
        "_settled",
        "acknowledged",
        "context",
        "delivered",
        "due",
        "partition_id",
        "polled",
        "stored",
        "waiting",
    )

    def __init__(self, partition_id: int, mode: AutoCommit) -> None:
        self.partition_id: int = partition_id
        self.context: PartitionContext | None = None
        """The state of the partition that the offsets belong to, if the server told it."""
        self.polled: int | None = None
        """The last offset that was polled."""
        self.delivered: int | None = None
        """The last offset that was delivered to the user."""
        self.acknowledged: int | None = None
        """Everything delivered up to this offset is done."""
        self.due: int | None = None
        """The offset that the commit mode wants stored."""
        self.stored: int | None = None
        """The last offset that this consumer has stored."""
        self.waiting: int = 0
        """How many acknowledged messages are not stored yet."""
        self._mode = mode
        # The last offset that was stored, or held back.
        self._settled: int | None = None
        self._open: deque[int] = deque()
        self._done: set[int] = set()
        self._ends: deque[int] = deque()
        self._counted = 0

    @property
    def is_fully_stored(self) -> bool:
        """Whether all that was polled is stored."""
        return self.polled == self.stored

    @property
    def has_open_messages(self) -> bool:
        """Whether something was polled that is neither stored nor held back."""
        return self.polled is not None and self.polled != self._settled

    @property
    def has_due(self) -> bool:
        """Whether there is something to store that is not stored yet."""
        return self.due is not None and (self._settled is None or self.due > self._settled)

    @property
    def oldest_open(self) -> int | None:
        """The oldest message that a handler has not finished."""
        return self._open[0] if self._open else None

    def poll(self, last_offset: int) -> None:
        """Record the end of a polled batch."""
        assert self.polled is None or last_offset > self.polled
        self.polled = last_offset
        if self._mode.trigger is Trigger.ALL:
            self._ends.append(last_offset)

    def messages_until_due(self) -> int | None:
        """Return after how many further messages a store is due, if the mode counts messages."""
        if self._mode.trigger is Trigger.NTH:
            return self._mode.nth - self._counted
        if self._mode.trigger is Trigger.EACH:
            return max(1, self._mode.coalesce_messages - self.waiting)
        return None

    def advance(self, offset: int, count: int) -> None:
        """Record that the next ``count`` messages, up to this offset, are done in order."""
        assert not self._open, "handlers hold open messages"
        assert self.acknowledged is None or offset > self.acknowledged
        self.deliver(offset)
        self._progress(offset, count)

    def deliver(self, offset: int) -> None:
        """Record that all messages up to this offset were delivered."""
        if self.delivered is None or offset > self.delivered:
            self.delivered = offset

    def open(self, offset: int) -> None:
        """Record that a message was given to a handler."""
        assert self.delivered is None or offset > self.delivered
        self.delivered = offset
        self._open.append(offset)

    def acknowledge(self, offset: int) -> None:
        """Record that the handler of an open message is done, in any order."""
        self._done.add(offset)
        while self._open and self._open[0] in self._done:
            oldest = self._open.popleft()
            self._done.discard(oldest)
            self._progress(oldest, 1)

    def tick(self) -> None:
        """Make all that is done due, because the commit interval is over."""
        if self.acknowledged is not None:
            self.due = self.acknowledged

    def store(self, offset: int) -> None:
        """Record a stored offset; the user may store one below an earlier one."""
        self.stored = offset
        self.hold(offset)

    def hold(self, offset: int) -> None:
        """Record an offset that is not sent to the server, because that has a higher one."""
        self._settled = offset
        if self.acknowledged is None or offset >= self.acknowledged:
            self.waiting = 0

    def forget_undelivered(self, kept: int | None = None) -> None:
        """Record that what was polled and not delivered will be polled again.

        Args:
            kept: the last offset that waits for its delivery all the same.
        """
        if self.polled is None:
            return
        self.polled = self.delivered if kept is None else kept
        while self._ends and (self.polled is None or self._ends[-1] > self.polled):
            self._ends.pop()

    def _progress(self, offset: int, count: int) -> None:
        """Advance the acknowledged offset, and make it due where the mode says so."""
        self.acknowledged = offset
        self.waiting += count
        trigger = self._mode.trigger
        if trigger is Trigger.EACH:
            self.due = offset
        elif trigger is Trigger.NTH:
            self._counted += count
            if self._counted >= self._mode.nth:
                self._counted %= self._mode.nth
                self.due = offset
        elif trigger is Trigger.ALL:
            while self._ends and self._ends[0] <= offset:
                self.due = self._ends.popleft()


class OffsetTrackers:
    """The trackers of all partitions of a consumer."""

    def __init__(self, mode: AutoCommit) -> None:
        self._mode = mode
        self._by_partition: dict[int, OffsetTracker] = {}

    def __iter__(self) -> Iterator[OffsetTracker]:
        return iter(tuple(self._by_partition.values()))

    def find(self, partition_id: int) -> OffsetTracker | None:
        """Return the tracker of a partition, if it has one."""
        return self._by_partition.get(partition_id)

    def get(self, partition_id: int) -> OffsetTracker:
        """Return the tracker of a partition, a new one if it has none."""
        tracker = self._by_partition.get(partition_id)
        if tracker is None:
            tracker = self._by_partition[partition_id] = OffsetTracker(partition_id, self._mode)
        return tracker

    def forget(self, partition_id: int) -> None:
        """Drop the tracker of a partition; what handlers still record in it is ignored."""
        self._by_partition.pop(partition_id, None)

    def tick(self) -> None:
        """Make all that is done due, because the commit interval is over."""
        for tracker in self._by_partition.values():
            tracker.tick()

    @property
    def is_fully_stored(self) -> bool:
        """Whether the stored offsets cover all that was polled."""
        return all(tracker.is_fully_stored for tracker in self._by_partition.values())

    @property
    def waiting(self) -> int:
        """How many acknowledged messages are not stored yet."""
        return sum(tracker.waiting for tracker in self._by_partition.values() if tracker.has_due)

    def with_due(self) -> list[OffsetTracker]:
        """List the trackers with an offset to store."""
        return [tracker for tracker in self._by_partition.values() if tracker.has_due]

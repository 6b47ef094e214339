"""What was handed out, what is done, and what may be stored: the books of a consumer.

One ledger per partition. It never offers an offset for storing while an older message of the
partition is still being worked on, however many younger ones are done. "Older" means handed out
earlier, so holes in the offsets of a partition do not matter.

Pure bookkeeping: no I/O, no clock.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from iggy_sdk.consumer.auto_commit import Trigger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iggy_sdk.consumer.auto_commit import AutoCommit

__all__ = ["Ledger", "LedgerBook"]


class Ledger:
    """One partition. A new one is begun when the position jumps, so that late news of the old
    position cannot be stored."""

    __slots__ = (
        "_counted",
        "_done",
        "_ends",
        "_mode",
        "_open",
        "acknowledged",
        "due",
        "handed_out",
        "partition_id",
        "polled",
        "stored",
        "waiting",
    )

    def __init__(self, partition_id: int, mode: AutoCommit) -> None:
        self.partition_id = partition_id
        self.polled: int | None = None
        """Last offset that a poll brought."""
        self.handed_out: int | None = None
        """Last offset that somebody was given."""
        self.acknowledged: int | None = None
        """Everything handed out up to here is done."""
        self.due: int | None = None
        """What the mode wants stored."""
        self.stored: int | None = None
        """What is stored, as far as this consumer did it."""
        self.waiting = 0
        """How many acknowledged messages wait for their store."""
        self._mode = mode
        self._open: deque[int] = deque()
        self._done: set[int] = set()
        self._ends: deque[int] = deque()
        self._counted = 0

    @property
    def is_settled(self) -> bool:
        """Whether all that was polled is stored."""
        return self.polled == self.stored

    @property
    def has_due(self) -> bool:
        """Whether there is something to store that is not stored yet."""
        return self.due is not None and (self.stored is None or self.due > self.stored)

    @property
    def oldest_open(self) -> int | None:
        """The oldest message that was given to a handler and is not done."""
        return self._open[0] if self._open else None

    def poll(self, last_offset: int) -> None:
        """Note the end of a batch that was polled."""
        assert self.polled is None or last_offset > self.polled
        self.polled = last_offset
        if self._mode.trigger is Trigger.ALL:
            self._ends.append(last_offset)

    def count_to_mark(self) -> int | None:
        """Tell after how many further messages in a row a store is due, where that matters."""
        if self._mode.trigger is Trigger.NTH:
            return self._mode.nth - self._counted
        if self._mode.trigger is Trigger.EACH:
            return max(1, self._mode.coalesce_messages - self.waiting)
        return None

    def advance(self, offset: int, count: int) -> None:
        """Note that the next ``count`` messages, up to this offset, are done in their order."""
        assert not self._open, "messages are with handlers"
        assert self.acknowledged is None or offset > self.acknowledged
        self.hand_out(offset)
        self._progress(offset, count)

    def hand_out(self, offset: int) -> None:
        """Note that somebody was given all messages up to this offset."""
        if self.handed_out is None or offset > self.handed_out:
            self.handed_out = offset

    def open(self, offset: int) -> None:
        """Note that a message was given to a handler."""
        assert self.handed_out is None or offset > self.handed_out
        self.handed_out = offset
        self._open.append(offset)

    def acknowledge(self, offset: int) -> None:
        """Note that the handler of an open message is done, in whatever order."""
        self._done.add(offset)
        while self._open and self._open[0] in self._done:
            oldest = self._open.popleft()
            self._done.discard(oldest)
            self._progress(oldest, 1)

    def tick(self) -> None:
        """Ask for all that is done, because the time has come."""
        if self.acknowledged is not None:
            self.due = self.acknowledged

    def store(self, offset: int) -> None:
        """Note that an offset is stored; it may lie behind an older one that the user stored."""
        self.stored = offset
        if self.acknowledged is None or offset >= self.acknowledged:
            self.waiting = 0

    def forget_undelivered(self) -> None:
        """Note that what was polled and not handed out will be polled again."""
        if self.polled is None:
            return
        self.polled = self.handed_out
        while self._ends and (self.polled is None or self._ends[-1] > self.polled):
            self._ends.pop()

    def _progress(self, offset: int, count: int) -> None:
        """Move the mark of what is done, and ask for a store where the mode says so."""
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


class LedgerBook:
    """The ledgers of all partitions of a consumer."""

    def __init__(self, mode: AutoCommit) -> None:
        self._mode = mode
        self._ledgers: dict[int, Ledger] = {}

    def __iter__(self) -> Iterator[Ledger]:
        return iter(tuple(self._ledgers.values()))

    def find(self, partition_id: int) -> Ledger | None:
        """Look up the ledger of a partition."""
        return self._ledgers.get(partition_id)

    def get(self, partition_id: int) -> Ledger:
        """Look up the ledger of a partition, or begin one."""
        ledger = self._ledgers.get(partition_id)
        if ledger is None:
            ledger = self._ledgers[partition_id] = Ledger(partition_id, self._mode)
        return ledger

    def forget(self, partition_id: int) -> None:
        """End the ledger of a partition; handlers that still hold it tell it in vain."""
        self._ledgers.pop(partition_id, None)

    def tick(self) -> None:
        """Ask for all that is done, because the time has come."""
        for ledger in self._ledgers.values():
            ledger.tick()

    @property
    def is_settled(self) -> bool:
        """Whether the server's stored offsets say all that was polled."""
        return all(ledger.is_settled for ledger in self._ledgers.values())

    @property
    def waiting(self) -> int:
        """How many acknowledged messages wait for their store."""
        return sum(ledger.waiting for ledger in self._ledgers.values() if ledger.has_due)

    def with_due(self) -> list[Ledger]:
        """List the ledgers that have something to store."""
        return [ledger for ledger in self._ledgers.values() if ledger.has_due]

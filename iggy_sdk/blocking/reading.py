"""Iteration without a switch to the event loop for each message.

A few hundred messages are fetched at a time. The request for the next message acknowledges the one
before, as in the async SDK: acknowledged offsets are stored at the commit interval, when the reader
closes, and when the fetched messages are used up. Fetched messages that were not delivered are
rewound before any other call that depends on the position. One thread reads at a time.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Final, Generic

from iggy_protocol import PollingStrategy
from iggy_sdk.blocking.messages import ReceivedMessage, T
from iggy_sdk.consumer.auto_commit import Basis, Trigger

if TYPE_CHECKING:
    from iggy_sdk.blocking.bridge import Bridge
    from iggy_sdk.consumer import AutoCommit, IggyConsumer
    from iggy_sdk.consumer import BatchIterator as AsyncBatchIterator

__all__ = ["Reading"]

FETCHED_MESSAGES_MAX: Final = 512
"""Enough that a thread switch costs little per message, and few to come twice after a crash."""


class Reading(Generic[T]):
    """The fetched messages and the position of a blocking consumer."""

    def __init__(self, bridge: Bridge, consumer: IggyConsumer[T], mode: AutoCommit) -> None:
        self._bridge = bridge
        self._consumer = consumer
        self._mode = mode
        # In at-most-once modes a fetched message counts as delivered, so only one is fetched.
        counts_here = mode.counts_handed_out and not mode.by_server
        self._fetch_count = 1 if counts_here else FETCHED_MESSAGES_MAX
        self._stores_acknowledged = mode.basis is Basis.ACKNOWLEDGED and (
            mode.trigger is Trigger.EACH or mode.every is not None
        )
        self._fetched: deque[ReceivedMessage[T]] = deque()
        self._batches: AsyncBatchIterator[T] | None = None
        self._is_until_end = False
        self._current: ReceivedMessage[T] | None = None
        self._acknowledged: dict[int, int] = {}
        self._waiting_count = 0
        self._settled_at = time.monotonic()
        self._lock = threading.RLock()
        self.handed_out: dict[int, int] = {}
        """The last delivered offset of each partition; the latest partition comes last."""

    def next(self, *, until_end: bool) -> ReceivedMessage[T] | None:
        """Acknowledge the message before, and return the next one; None at the end."""
        with self._lock:
            if until_end != self._is_until_end:
                self.give_back()
                self._is_until_end = until_end
            self._acknowledge()
            if not self._fetched:
                self._fetch()
            elif self._is_time():
                self.settle()
            if not self._fetched:
                return None
            message = self._current = self._fetched.popleft()
            # Removed first, so that the partition read last comes last.
            self.handed_out.pop(message.partition_id, None)
            self.handed_out[message.partition_id] = message.offset
            return message

    def settle(self) -> None:
        """Store acknowledged offsets, if the commit mode says so."""
        with self._lock:
            acknowledged, self._acknowledged = self._acknowledged, {}
            self._waiting_count, self._settled_at = 0, time.monotonic()
            if self._stores_acknowledged:
                for partition_id, offset in acknowledged.items():
                    self._bridge.run(self._consumer.commit(partition_id, offset))

    def give_back(self) -> None:
        """Drop fetched messages, to be polled again; the current message stays."""
        with self._lock:
            self.settle()
            firsts = self.firsts()
            self._fetched.clear()
            self._batches = None
            for partition_id, offset in firsts.items():
                where = PollingStrategy.offset(offset)
                self._bridge.run(self._consumer.seek(where, partition_id))

    def leave_place(self) -> None:
        """Drop fetched messages and the current one, because the position changes."""
        with self._lock:
            self.give_back()
            self._current = None

    def firsts(self) -> dict[int, int]:
        """Tell the offset of each partition's next message among those that were fetched."""
        return {message.partition_id: message.offset for message in reversed(self._fetched)}

    def counts(self) -> dict[int, int]:
        """Tell how many messages of each partition were fetched and not delivered."""
        return Counter(message.partition_id for message in self._fetched)

    def _acknowledge(self) -> None:
        current, self._current = self._current, None
        if current is not None:
            self._acknowledged[current.partition_id] = current.offset
            self._waiting_count += 1

    def _is_time(self) -> bool:
        if not self._stores_acknowledged or not self._waiting_count:
            return False
        pulse = self._mode.pulse
        is_late = pulse is not None and time.monotonic() - self._settled_at >= pulse
        counts = self._mode.trigger is Trigger.EACH
        return is_late or (counts and self._waiting_count >= self._mode.coalesce_messages)

    def _fetch(self) -> None:
        if self._batches is None:
            self._batches = self._consumer.batches(self._fetch_count, until_end=self._is_until_end)
        # The request for the next batch acknowledges all fetched messages.
        self._acknowledged.clear()
        self._waiting_count, self._settled_at = 0, time.monotonic()
        self._bridge.run(self._take(self._batches))

    async def _take(self, batches: AsyncBatchIterator[T]) -> None:
        # In the loop, so that an interrupt of the caller cannot lose a batch that was taken.
        try:
            batch = await anext(batches)
        except StopAsyncIteration:
            return
        self._fetched.extend(ReceivedMessage(message, self._bridge) for message in batch)

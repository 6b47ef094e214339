"""Received messages of the blocking SDK, the reader that fetches them, and the iterators.

A message is wrapped, not copied: both read the same bytes.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from iggy_sdk.consumer.auto_commit import Basis, Trigger
from iggy_sdk.durations import to_seconds
from iggy_sdk.message import ReceivedMessage as AsyncReceivedMessage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iggy_sdk import consumer
    from iggy_sdk.blocking.loop_thread import EventLoopThread
    from iggy_sdk.consumer import AutoCommit, IggyConsumer
    from iggy_sdk.consumer import BatchIterator as AsyncBatchIterator
    from iggy_sdk.durations import Seconds


T = TypeVar("T")


class ReceivedMessage(AsyncReceivedMessage[T]):
    """A message that was received; everything beside its header is read when it is asked for."""

    __slots__ = ("_loop_thread",)

    def __init__(self, message: AsyncReceivedMessage[T], loop_thread: EventLoopThread) -> None:
        """Take a message of the async SDK and its event loop."""
        super().__init__(message, message._source)
        self._loop_thread = loop_thread

    def commit(self, *, timeout: Seconds | None = None) -> None:  # type: ignore[override]
        """Store that this message, and all before it in its partition, are done.

        Args:
            timeout: how long it may take; None takes the ``request_timeout``.
        """
        self._loop_thread.run(super().commit(timeout=timeout))


class MessageList(list[ReceivedMessage[T]]):
    """Messages that are handled together; those of one partition are in their order."""

    __slots__ = ()

    @classmethod
    def of(
        cls, messages: Iterable[AsyncReceivedMessage[T]], loop_thread: EventLoopThread
    ) -> MessageList[T]:
        """Wrap the messages of the async SDK."""
        return cls(ReceivedMessage(message, loop_thread) for message in messages)

    def payloads(self) -> list[bytes]:
        """Read all payloads."""
        return [message.payload for message in self]

    def values(self) -> list[T]:
        """Read all values; the first that cannot be read raises."""
        return [message.value for message in self]

    def last_offsets(self) -> dict[int, int]:
        """Tell the last offset of each partition."""
        return {message.partition_id: message.offset for message in self}

    def commit(self, *, timeout: Seconds | None = None) -> None:
        """Store that all of it is done, without waiting for the next batch to be asked for.

        Args:
            timeout: how long it may take for all partitions; None takes the ``request_timeout``
                for each.
        """
        last = {message.partition_id: message for message in self}
        ends_at = None if timeout is None else time.monotonic() + to_seconds(timeout)
        for message in last.values():
            rest = None if ends_at is None else max(0.0, ends_at - time.monotonic())
            message.commit(timeout=rest)


# Iteration without a switch to the event loop for each message.
#
# A few hundred messages are fetched at a time. The request for the next message acknowledges the
# one before, as in the async SDK: acknowledged offsets are stored at the commit interval, when the
# reader closes, and when the fetched messages are used up. Fetched messages that were not delivered
# are rewound before any other call that depends on the position. One thread reads at a time.


FETCHED_MESSAGES_MAX: Final = 512
"""Enough that a thread switch costs little per message, and few to come twice after a crash."""


class BlockingReader(Generic[T]):
    """The fetched messages and the position of a blocking consumer."""

    def __init__(
        self, loop_thread: EventLoopThread, consumer: IggyConsumer[T], mode: AutoCommit
    ) -> None:
        self._loop_thread = loop_thread
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
        self.delivered: dict[int, int] = {}
        """The last delivered offset of each partition; the latest partition comes last."""

    def next(self, *, until_end: bool) -> ReceivedMessage[T] | None:
        """Acknowledge the message before, and return the next one; None at the end."""
        with self._lock:
            if until_end != self._is_until_end:
                self.rewind_buffer()
                self._is_until_end = until_end
            self._acknowledge()
            if not self._fetched:
                self._fetch()
            elif self._is_commit_due():
                self.commit_acknowledged()
            if not self._fetched:
                return None
            message = self._current = self._fetched.popleft()
            # Removed first, so that the partition read last comes last.
            self.delivered.pop(message.partition_id, None)
            self.delivered[message.partition_id] = message.offset
            return message

    def commit_acknowledged(self) -> None:
        """Store acknowledged offsets, if the commit mode says so."""
        with self._lock:
            acknowledged, self._acknowledged = self._acknowledged, {}
            self._waiting_count, self._settled_at = 0, time.monotonic()
            if self._stores_acknowledged:
                for partition_id, offset in acknowledged.items():
                    self._loop_thread.run(self._consumer.commit(partition_id, offset))

    def rewind_buffer(self) -> None:
        """Drop fetched messages, to be polled again; the current message stays."""
        with self._lock:
            self.commit_acknowledged()
            firsts = self.firsts()
            self._fetched.clear()
            self._batches = None
            for partition_id, offset in firsts.items():
                self._loop_thread.run(self._consumer._core.step_back(partition_id, offset))

    def reset_position(self) -> None:
        """Drop fetched messages and the current one, because the position changes."""
        with self._lock:
            self.rewind_buffer()
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

    def _is_commit_due(self) -> bool:
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
        self._loop_thread.run(self._take(self._batches))

    async def _take(self, batches: AsyncBatchIterator[T]) -> None:
        # In the loop, so that an interrupt of the caller cannot lose a batch that was taken.
        try:
            batch = await anext(batches)
        except StopAsyncIteration:
            return
        self._fetched.extend(ReceivedMessage(message, self._loop_thread) for message in batch)


# The iterators over messages and batches.


class MessageIterator(Generic[T]):
    """Messages one by one; made by ``consumer.iter_messages()``."""

    def __init__(self, reader: BlockingReader[T], *, until_end: bool) -> None:
        self._reader = reader
        self._is_until_end = until_end

    def __iter__(self) -> MessageIterator[T]:
        return self

    def __next__(self) -> ReceivedMessage[T]:
        """Return the next message, and acknowledge the one before."""
        message = self._reader.next(until_end=self._is_until_end)
        if message is None:
            raise StopIteration
        return message


class BatchIterator(Generic[T]):
    """Messages in batches; made by ``consumer.batches()``."""

    def __init__(self, loop_thread: EventLoopThread, inner: consumer.BatchIterator[T]) -> None:
        self._loop_thread = loop_thread
        self._inner = inner
        self._taken: list[MessageList[T]] = []

    def __iter__(self) -> BatchIterator[T]:
        return self

    def __next__(self) -> MessageList[T]:
        """Acknowledge the batch before, and gather the next one.

        Raises:
            IggyError: polling or storing failed for good.
        """
        if not self._taken:
            self._loop_thread.run(self._take())
        if not self._taken:
            raise StopIteration
        return self._taken.pop()

    def close(self) -> None:
        """End the iteration; the last batch stays unacknowledged."""
        self._loop_thread.run(self._inner.aclose())

    async def _take(self) -> None:
        # In the loop, so that an interrupt of the caller cannot lose a batch that was taken.
        try:
            batch = await anext(self._inner)
        except StopAsyncIteration:
            return
        self._taken.append(MessageList.of(batch, self._loop_thread))

"""Delivery to the user: messages one by one, and in batches.

The request for the next message acknowledges the one before. Most messages cost one pop from a
deque: ``credit`` counts how many may be taken before a timer, a commit or a checkpoint is due. The
messages taken on credit are recorded together.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import anyio
import anyio.lowlevel

from iggy_sdk.consumer.auto_commit import AutoCommit, Trigger
from iggy_sdk.deadline import within
from iggy_sdk.message import ReceivedMessage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Self

    from iggy_sdk.consumer.commit_scheduler import CommitScheduler
    from iggy_sdk.consumer.fetch_buffer import FetchBuffer
    from iggy_sdk.consumer.idle import EndDetector
    from iggy_sdk.consumer.tracker import OffsetTracker
    from iggy_sdk.durations import Seconds
    from iggy_sdk.hooks import Hooks


T = TypeVar("T")

CHECKPOINT_MESSAGES: Final = 256
"""How many messages are delivered before other tasks run; about the duration of a request."""


class MessageDelivery(Generic[T]):
    """Delivers the messages of a consumer one by one."""

    __slots__ = (
        "_checks_timer",
        "_commits",
        "_fetch_buffer",
        "_granted",
        "_hooks",
        "_mode",
        "_since_checkpoint",
        "credit",
        "current",
    )

    def __init__(
        self,
        *,
        fetch_buffer: FetchBuffer[T],
        commits: CommitScheduler,
        mode: AutoCommit,
        hooks: Hooks,
    ) -> None:
        self.current: ReceivedMessage[T] | None = None
        """The message that was delivered last."""
        self.credit: int = 0
        """How many messages may be popped from the buffer without a further check."""
        self._fetch_buffer = fetch_buffer
        self._commits = commits
        self._mode = mode
        self._hooks = hooks
        self._granted = 0
        self._since_checkpoint = 0
        # Without a timer task, delivery itself has to check the time.
        self._checks_timer = mode.pulse is not None
        fetch_buffer.before_rewind = self.revoke_credit

    def use_timer_task(self) -> None:
        """Leave time-based commits to the timer task."""
        self._checks_timer = False

    async def next(self, end: EndDetector | None) -> ReceivedMessage[T] | None:
        """Acknowledge what was delivered, and deliver the next message; None at the end.

        Raises:
            IggyError: polling or storing failed for good.
        """
        self.acknowledge_delivered()
        buffer = self._fetch_buffer.buffer
        await self._commits.flush_if_due(drained=self._fetch_buffer.is_drained)
        while True:
            if not buffer:
                if not await self._fetch_buffer.refill(end=end):
                    return None
            elif self._since_checkpoint >= CHECKPOINT_MESSAGES:
                self._since_checkpoint = 0
                await anyio.lowlevel.checkpoint()
            # The buffer may be empty after a wait: a lost partition, a pause, a seek.
            if buffer and await self._may_deliver(buffer[0]):
                return self._deliver()

    def acknowledge_delivered(self) -> None:
        """Acknowledge everything that was delivered."""
        self.record_taken()
        current, self.current = self.current, None
        if current is not None and not self._mode.counts_handed_out:
            assert self._fetch_buffer.tracker is not None
            self._fetch_buffer.tracker.advance(current.offset, 1)

    def record_taken(self) -> None:
        """Record what was taken on credit: all before the current message is acknowledged."""
        taken = self._granted - self.credit
        self._granted = self.credit
        self._since_checkpoint += taken
        current, tracker = self.current, self._fetch_buffer.tracker
        if current is None or tracker is None:
            return
        if taken and self._mode.counts_handed_out:
            tracker.advance(current.offset, taken)
        elif taken:
            # The offset before may be a gap, but storing it means the same.
            tracker.advance(current.offset - 1, taken)
        tracker.deliver(current.offset)

    def revoke_credit(self) -> None:
        """Record what was taken and set the credit to 0, because the buffer changes."""
        self.record_taken()
        self.credit = self._granted = 0

    async def _may_deliver(self, message: ReceivedMessage[T]) -> bool:
        """In at-most-once modes, store first; tell whether the message is still in the buffer."""
        if not self._mode.counts_handed_out:
            return True
        buffer, tracker = self._fetch_buffer.buffer, self._fetch_buffer.tracker
        assert tracker is not None
        if tracker.acknowledged is None or tracker.acknowledged < message.offset:
            tracker.advance(message.offset, 1)
        await self._commits.flush_if_due(drained=len(buffer) == 1)
        return bool(buffer) and buffer[0] is message

    def _deliver(self) -> ReceivedMessage[T]:
        message = self._fetch_buffer.buffer.popleft()
        self.current = message
        self._since_checkpoint += 1
        self.credit = self._granted = self._new_credit()
        if self._hooks:
            self._hooks.on_message(message)
        return message

    def _new_credit(self) -> int:
        """Return how many messages may be taken before the next check."""
        if self._hooks or self._checks_timer:
            return 0
        tracker = self._fetch_buffer.tracker
        assert tracker is not None
        rest = len(self._fetch_buffer.buffer)
        if self._mode.trigger is Trigger.ALL and self._mode.counts_handed_out:
            rest -= 1
        mark = tracker.messages_until_due()
        if mark is not None:
            rest = min(rest, mark - 1)
        return max(0, min(rest, CHECKPOINT_MESSAGES - self._since_checkpoint))


# The iterator that ``iter_messages()`` returns.


class MessageIterator(Generic[T]):
    """Iterates over the messages of a consumer; asking for the next acknowledges the one before."""

    def __init__(
        self,
        ask: Callable[[EndDetector | None], Awaitable[ReceivedMessage[T]]],
        end: EndDetector | None,
    ) -> None:
        self._ask = ask
        self._end = end
        self._is_closed = False

    def __aiter__(self) -> Self:
        """Iterate over messages."""
        return self

    async def __anext__(self) -> ReceivedMessage[T]:
        """Return the next message.

        Raises:
            IggyError: polling or storing failed for good; one may go on asking.
        """
        if self._is_closed:
            raise StopAsyncIteration
        return await self._ask(self._end)

    async def aclose(self) -> None:
        """End the iteration; the last message stays unacknowledged."""
        self._is_closed = True


# Batches of messages: ``async for batch in consumer.batches(max_messages=500, max_wait=0.2)``.
#
# The request for the next batch acknowledges the one before. A batch that is incomplete when its
# reader is cancelled is polled again; none of it counts as delivered.


class MessageList(list[ReceivedMessage[T]]):
    """Messages that are handled together; those of one partition are in their order."""

    __slots__ = ()

    def payloads(self) -> list[bytes]:
        """Read all payloads."""
        return [message.payload for message in self]

    def values(self) -> list[T]:
        """Read all values; the first that cannot be read raises."""
        return [message.value for message in self]

    def last_offsets(self) -> dict[int, int]:
        """Tell the last offset of each partition."""
        return {message.partition_id: message.offset for message in self}

    async def commit(self, *, timeout: Seconds | None = None) -> None:
        """Store that all of it is done, without waiting for the next batch to be asked for.

        Args:
            timeout: how long it may take for all partitions; None takes the ``request_timeout``
                for each.
        """
        await within(timeout, "commit", self._commit)

    async def _commit(self, _: float | None) -> None:
        last = {message.partition_id: message for message in self}
        for message in last.values():
            await message.commit()


class BatchIterator(Generic[T]):
    """Gathers batches; made by ``consumer.batches()``."""

    def __init__(
        self,
        *,
        fetch_buffer: FetchBuffer[T],
        delivery: MessageDelivery[T],
        commits: CommitScheduler,
        guard: anyio.ResourceGuard,
        check: Callable[[], None],
        hooks: Hooks,
        counts_handed_out: bool,
        max_messages: int,
        max_wait: float,
        end: EndDetector | None,
    ) -> None:
        self._fetch_buffer = fetch_buffer
        self._delivery = delivery
        self._commits = commits
        self._guard = guard
        self._check = check
        self._hooks = hooks
        self._counts_handed_out = counts_handed_out
        self._max_messages = max_messages
        self._max_wait = max_wait
        self._end = end
        # Delivered and not acknowledged, by partition: the last offset and the count.
        self._delivered: dict[OffsetTracker, tuple[int, int]] = {}
        self._is_closed = False

    def __aiter__(self) -> Self:
        """Iterate over batches."""
        return self

    async def __anext__(self) -> MessageList[T]:
        """Acknowledge the batch before, and gather the next one.

        Raises:
            IggyError: polling or storing failed for good.
        """
        if self._is_closed:
            raise StopAsyncIteration
        self._check()
        with self._guard:
            self._delivery.acknowledge_delivered()
            self._acknowledge()
            await self._commits.flush_if_due(drained=self._fetch_buffer.is_drained)
            batch = await self._gather()
            if batch and self._counts_handed_out:
                self._acknowledge()
                await self._commits.flush_if_due(drained=True)
        if not batch:
            raise StopAsyncIteration
        for message in batch if self._hooks else ():
            self._hooks.on_message(message)
        return batch

    async def aclose(self) -> None:
        """End the iteration; the last batch stays unacknowledged."""
        self._is_closed = True

    def _acknowledge(self) -> None:
        delivered, self._delivered = self._delivered, {}
        for tracker, (offset, count) in delivered.items():
            tracker.advance(offset, count)

    async def _gather(self) -> MessageList[T]:
        batch: MessageList[T] = MessageList()
        firsts: dict[int, int] = {}
        counts: dict[OffsetTracker, tuple[int, int]] = {}
        deadline = math.inf
        try:
            while len(batch) < self._max_messages and await self._has_more(batch, deadline):
                if not batch:
                    deadline = anyio.current_time() + self._max_wait
                self._move(batch, firsts, counts)
        except BaseException:
            for partition_id, offset in firsts.items():
                self._fetch_buffer.rewind_to(partition_id, offset)
            raise
        for tracker, (offset, _) in counts.items():
            tracker.deliver(offset)
        self._delivered = counts
        return batch

    async def _has_more(self, batch: MessageList[T], deadline: float) -> bool:
        if self._fetch_buffer.buffer:
            return True
        if batch and (self._max_wait <= 0 or anyio.current_time() >= deadline):
            return False
        return await self._fetch_buffer.refill(end=self._end, deadline=deadline)

    def _move(
        self,
        batch: MessageList[T],
        firsts: dict[int, int],
        counts: dict[OffsetTracker, tuple[int, int]],
    ) -> None:
        """Move messages from the buffer to the batch, and remember the first offsets."""
        buffer, tracker = self._fetch_buffer.buffer, self._fetch_buffer.tracker
        assert tracker is not None
        firsts.setdefault(tracker.partition_id, buffer[0].offset)
        wanted = self._max_messages - len(batch)
        if len(buffer) <= wanted:
            taken = list(buffer)
            buffer.clear()
        else:
            taken = [buffer.popleft() for _ in range(wanted)]
        batch.extend(taken)
        already = counts[tracker][1] if tracker in counts else 0
        counts[tracker] = taken[-1].offset, already + len(taken)

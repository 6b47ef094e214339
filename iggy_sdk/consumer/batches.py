"""Batches of messages: ``async for batch in consumer.batches(max_messages=500, max_wait=0.2)``.

The request for the next batch acknowledges the one before. A batch that is incomplete when its
reader is cancelled is polled again; none of it counts as delivered.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Generic

import anyio

from iggy_sdk.consumer.handout import T
from iggy_sdk.message import ReceivedMessage

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from iggy_sdk.consumer.commits import Commits
    from iggy_sdk.consumer.handout import Handout
    from iggy_sdk.consumer.idle import EndWatch
    from iggy_sdk.consumer.intake import Intake
    from iggy_sdk.consumer.ledger import Ledger
    from iggy_sdk.hooks import Hooks

__all__ = ["BatchIterator", "MessageList"]


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

    async def commit(self) -> None:
        """Store that all of it is done, without waiting for the next batch to be asked for."""
        last = {message.partition_id: message for message in self}
        for message in last.values():
            await message.commit()


class BatchIterator(Generic[T]):
    """Gathers batches; made by ``consumer.batches()``."""

    def __init__(
        self,
        *,
        intake: Intake[T],
        handout: Handout[T],
        commits: Commits,
        guard: anyio.ResourceGuard,
        check: Callable[[], None],
        hooks: Hooks,
        counts_handed_out: bool,
        max_messages: int,
        max_wait: float,
        end: EndWatch | None,
    ) -> None:
        self._intake = intake
        self._handout = handout
        self._commits = commits
        self._guard = guard
        self._check = check
        self._hooks = hooks
        self._counts_handed_out = counts_handed_out
        self._max_messages = max_messages
        self._max_wait = max_wait
        self._end = end
        # Delivered and not acknowledged, by partition: the last offset and the count.
        self._handed_out: dict[Ledger, tuple[int, int]] = {}
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
            self._handout.settle()
            self._acknowledge()
            await self._commits.flush_if_time(drained=not self._intake.buffer)
            batch = await self._gather()
            if batch and self._counts_handed_out:
                self._acknowledge()
                await self._commits.flush_if_time(drained=True)
        if not batch:
            raise StopAsyncIteration
        for message in batch if self._hooks else ():
            self._hooks.on_message(message)
        return batch

    async def aclose(self) -> None:
        """End the iteration; the last batch stays unacknowledged."""
        self._is_closed = True

    def _acknowledge(self) -> None:
        handed_out, self._handed_out = self._handed_out, {}
        for ledger, (offset, count) in handed_out.items():
            ledger.advance(offset, count)

    async def _gather(self) -> MessageList[T]:
        batch: MessageList[T] = MessageList()
        firsts: dict[int, int] = {}
        counts: dict[Ledger, tuple[int, int]] = {}
        deadline = math.inf
        try:
            while len(batch) < self._max_messages and await self._has_more(batch, deadline):
                if not batch:
                    deadline = anyio.current_time() + self._max_wait
                self._move(batch, firsts, counts)
        except BaseException:
            for partition_id, offset in firsts.items():
                self._intake.return_to(partition_id, offset)
            raise
        for ledger, (offset, _) in counts.items():
            ledger.hand_out(offset)
        self._handed_out = counts
        return batch

    async def _has_more(self, batch: MessageList[T], deadline: float) -> bool:
        if self._intake.buffer:
            return True
        if batch and (self._max_wait <= 0 or anyio.current_time() >= deadline):
            return False
        return await self._intake.refill(end=self._end, deadline=deadline)

    def _move(
        self,
        batch: MessageList[T],
        firsts: dict[int, int],
        counts: dict[Ledger, tuple[int, int]],
    ) -> None:
        """Move messages from the buffer to the batch, and remember the first offsets."""
        buffer, ledger = self._intake.buffer, self._intake.ledger
        assert ledger is not None
        firsts.setdefault(ledger.partition_id, buffer[0].offset)
        wanted = self._max_messages - len(batch)
        if len(buffer) <= wanted:
            taken = list(buffer)
            buffer.clear()
        else:
            taken = [buffer.popleft() for _ in range(wanted)]
        batch.extend(taken)
        already = counts[ledger][1] if ledger in counts else 0
        counts[ledger] = taken[-1].offset, already + len(taken)

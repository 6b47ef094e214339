"""The iterators over messages and batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from iggy_sdk.blocking.messages import MessageList, T

if TYPE_CHECKING:
    from iggy_sdk import consumer
    from iggy_sdk.blocking.bridge import Bridge
    from iggy_sdk.blocking.messages import ReceivedMessage
    from iggy_sdk.blocking.reading import Reading

__all__ = ["BatchIterator", "MessageIterator"]


class MessageIterator(Generic[T]):
    """Messages one by one; made by ``consumer.iter_messages()``."""

    def __init__(self, reading: Reading[T], *, until_end: bool) -> None:
        self._reading = reading
        self._is_until_end = until_end

    def __iter__(self) -> MessageIterator[T]:
        return self

    def __next__(self) -> ReceivedMessage[T]:
        """Return the next message, and acknowledge the one before."""
        message = self._reading.next(until_end=self._is_until_end)
        if message is None:
            raise StopIteration
        return message


class BatchIterator(Generic[T]):
    """Messages in batches; made by ``consumer.batches()``."""

    def __init__(self, bridge: Bridge, inner: consumer.BatchIterator[T]) -> None:
        self._bridge = bridge
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
            self._bridge.run(self._take())
        if not self._taken:
            raise StopIteration
        return self._taken.pop()

    def close(self) -> None:
        """End the iteration; the last batch stays unacknowledged."""
        self._bridge.run(self._inner.aclose())

    async def _take(self) -> None:
        # In the loop, so that an interrupt of the caller cannot lose a batch that was taken.
        try:
            batch = await anext(self._inner)
        except StopAsyncIteration:
            return
        self._taken.append(MessageList.of(batch, self._bridge))

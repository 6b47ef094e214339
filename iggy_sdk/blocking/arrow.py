"""Record batches that block: ``for`` and ``with`` instead of ``async for`` and ``async with``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from iggy_sdk.errors import ClientClosedError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType
    from typing import Self

    from iggy_sdk import arrow
    from iggy_sdk.blocking.loop_thread import EventLoopThread, HostedContext
    from iggy_sdk.consumer import arrow_batches


T = TypeVar("T")


async def _take(batches: AsyncIterator[Any], taken: list[Any]) -> None:
    """Take the next batch, if there is one, where an interrupt of the caller cannot lose it."""
    try:
        batch = await anext(batches)
    except StopAsyncIteration:
        return
    taken.append(batch)


class ArrowTopicReader:
    """Reads a part of a topic as record batches; made by ``client.arrow_batches()``.

    The next poll is on its way while a batch is used; at most three polls of ``batch_bytes`` are in
    memory.
    """

    def __init__(self, loop_thread: EventLoopThread, inner: arrow.ArrowTopicReader) -> None:
        self._loop_thread = loop_thread
        self._inner = inner
        self._hosted: HostedContext[arrow.ArrowTopicReader] | None = None
        self._taken: list[Any] = []

    @property
    def schema(self) -> Any:
        """The columns of all record batches, a ``pyarrow.Schema``."""
        return self._inner.schema

    def __enter__(self) -> Self:
        """Find the offsets to read, and begin to poll.

        Raises:
            StreamNotFoundError, TopicNotFoundError, PartitionNotFoundError: there is none.
            IggyError: the server refuses.
        """
        self._hosted, _ = self._loop_thread.host(self._inner)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop polling."""
        hosted, self._hosted = self._hosted, None
        if hosted is not None:
            self._loop_thread.release(hosted)
            hosted.leave()

    def __iter__(self) -> Self:
        """Iterate over record batches."""
        return self

    def __next__(self) -> Any:
        """Return the next record batch.

        Raises:
            PayloadDecodeError: a payload is not what the schema says.
            DecryptionError: a payload was not sealed with the key of the client.
            IggyError: polling failed for good.
        """
        if self._hosted is None:
            raise ClientClosedError(
                "the reader is not open",
                advice="Use `with client.arrow_batches(...) as batches:`.",
            )
        if not self._taken:
            self._loop_thread.run(_take(self._inner, self._taken))
        if not self._taken:
            raise StopIteration
        return self._taken.pop()


class ArrowBatchIterator(Generic[T]):
    """Reads record batches; made by ``consumer.arrow_batches()``."""

    def __init__(
        self, loop_thread: EventLoopThread, inner: arrow_batches.ArrowBatchIterator[T]
    ) -> None:
        self._loop_thread = loop_thread
        self._inner = inner
        self._taken: list[Any] = []

    @property
    def schema(self) -> Any:
        """The columns of all record batches, a ``pyarrow.Schema``."""
        return self._inner.schema

    def __iter__(self) -> Self:
        """Iterate over record batches."""
        return self

    def __next__(self) -> Any:
        """Acknowledge the batch before, and return the next one.

        Raises:
            PayloadDecodeError: a payload is not what the schema says; it is polled again.
            IggyError: polling or storing failed for good.
        """
        if not self._taken:
            self._loop_thread.run(_take(self._inner, self._taken))
        if not self._taken:
            raise StopIteration
        return self._taken.pop()

    def close(self) -> None:
        """End the iteration; the last batch stays unacknowledged."""
        self._loop_thread.run(self._inner.aclose())

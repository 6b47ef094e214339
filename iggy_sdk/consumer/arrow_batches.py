"""What a consumer reads as Arrow record batches: ``consumer.arrow_batches()``.

The request for the next batch acknowledges the one before. A batch is what one poll brought; no
Python object is made for a message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio
import anyio.to_thread

from iggy_sdk.arrow import ArrowRowBuilder
from iggy_sdk.arrow.memory import keep_freed_memory
from iggy_sdk.consumer.idle import EndDetector

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from iggy_sdk.arrow.settings import ArrowReadOptions
    from iggy_sdk.consumer.core import ConsumerCore
    from iggy_sdk.consumer.poller import FetchedMessages
    from iggy_sdk.consumer.tracker import OffsetTracker
    from iggy_sdk.message import ReceivedBatch


T = TypeVar("T")


class ArrowBatchIterator(Generic[T]):
    """Reads record batches; made by ``consumer.arrow_batches()``."""

    def __init__(
        self,
        core: ConsumerCore[T],
        options: ArrowReadOptions,
        *,
        guard: anyio.ResourceGuard,
        check: Callable[[], None],
        until_end: bool,
    ) -> None:
        """Take the parts of a consumer; its buffer is polled again."""
        keep_freed_memory(options.batch_bytes)
        self._core = core
        self._fetch_buffer = core.fetch_buffer
        self._options = options
        self._guard = guard
        self._check = check
        self._end = EndDetector() if until_end else None
        self._counts_handed_out = core.options.commit.counts_handed_out
        self._builders: dict[int, ArrowRowBuilder] = {}
        # Delivered and not acknowledged: the partition's tracker, the last offset and the count.
        self._delivered: tuple[OffsetTracker, int, int] | None = None
        self._is_closed = False

    @property
    def schema(self) -> Any:
        """The columns of all record batches, a ``pyarrow.Schema``."""
        return self._options.arrow_schema

    def __aiter__(self) -> Self:
        """Iterate over record batches."""
        return self

    async def __anext__(self) -> Any:
        """Acknowledge the batch before, and return the next one.

        Raises:
            PayloadDecodeError: a payload is not what the schema says; it is polled again.
            IggyError: polling or storing failed for good.
        """
        if self._is_closed:
            raise StopAsyncIteration
        self._check()
        with self._guard:
            core = self._core
            core.delivery.acknowledge_delivered()
            if self._fetch_buffer.buffer:
                # Single messages of a batch were taken before; the rest of it is polled again.
                self._fetch_buffer.rewind_buffer()
            self._acknowledge()
            await core.commits.flush_if_due(drained=True)
            rows = await self._next_rows()
            if rows is not None and self._counts_handed_out:
                self._acknowledge()
                await core.commits.flush_if_due(drained=True)
        if rows is None:
            raise StopAsyncIteration
        return rows

    async def aclose(self) -> None:
        """End the iteration; the last batch stays unacknowledged."""
        self._is_closed = True

    def _acknowledge(self) -> None:
        delivered, self._delivered = self._delivered, None
        if delivered is not None:
            tracker, offset, count = delivered
            tracker.advance(offset, count)

    async def _next_rows(self) -> Any:
        fetched = await self._fetch()
        if fetched is None or fetched.batch is None:
            return None
        batch = fetched.batch
        try:
            rows = await self._rows(batch, fetched.skip_before)
        except BaseException:
            # Nothing of it was delivered, so the end is still to come.
            self._end = None if self._end is None else EndDetector()
            first = max(batch.first_offset or 0, fetched.skip_before)
            self._fetch_buffer.rewind_to(fetched.partition_id, first)
            raise
        tracker, last = self._fetch_buffer.tracker, batch.last_offset
        assert tracker is not None
        assert last is not None
        tracker.deliver(last)
        self._delivered = tracker, last, rows.num_rows
        for message in batch if self._core.hooks else ():
            if message.offset >= fetched.skip_before:
                self._core.hooks.on_message(message)
        return rows

    async def _fetch(self) -> FetchedMessages | None:
        """Fetch what the next poll brings; None at the end."""
        buffer = self._fetch_buffer
        buffer.keeps_whole = True
        try:
            await buffer.refill(end=self._end)
        finally:
            buffer.keeps_whole = False
        fetched, buffer.whole = buffer.whole, None
        return fetched

    async def _rows(self, batch: ReceivedBatch[Any], begin: int) -> Any:
        builder = self._builders.get(batch.partition_id)
        if builder is None:
            subscription = self._core.subscription
            builder = self._builders[batch.partition_id] = ArrowRowBuilder(
                self.schema,
                {
                    "stream": str(subscription.stream),
                    "topic": str(subscription.topic),
                    "partition": batch.partition_id,
                },
                on_error=self._options.on_error,
            )
        if self._options.schema is None:
            return builder.rows(batch, begin=begin)
        # Reading JSON takes long enough that the event loop should not wait for it.
        return await anyio.to_thread.run_sync(lambda: builder.rows(batch, begin=begin))

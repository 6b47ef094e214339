"""Reading a part of a topic as record batches, with one request under way while Arrow works.

A task polls the ranges one after the other and is always one poll ahead of what is converted. A
poll tells how many messages make ``batch_bytes``, and the next one asks for so many.
"""

from __future__ import annotations

import logging
import math
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread
import pyarrow as pa  # type: ignore[import-untyped]  # it comes without types
from anyio.lowlevel import checkpoint

from iggy_protocol import PollingStrategy, PollMessages
from iggy_sdk.arrow.columns import ArrowRowBuilder, rows_between
from iggy_sdk.arrow.memory import keep_freed_memory
from iggy_sdk.arrow.planning import READER, PartitionRange, ReadPlan, plan_read
from iggy_sdk.durations import to_seconds
from iggy_sdk.errors import ClientClosedError, RequestTimeoutError
from iggy_sdk.pipeline import Pipeline

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from iggy_sdk.arrow.settings import ArrowReadOptions
    from iggy_sdk.client_interface import ClientInterface
    from iggy_sdk.durations import Seconds
    from iggy_sdk.message import ReceivedBatch


logger: logging.Logger = logging.getLogger("iggy_sdk.arrow")

POLL_COUNT_MAX: Final = 100_000
FIRST_POLL_COUNT: Final = 1000
"""Messages of the first poll, where their mean size is not known."""
POLLS_AHEAD: Final = 1
"""Replies that wait while one is converted and another request is under way."""


class _Polled:
    """A reply to a poll, and how much of it is wanted; or the error that ended polling."""

    __slots__ = ("batch", "begin", "end", "error")

    def __init__(
        self,
        batch: ReceivedBatch[bytes] | None = None,
        begin: int = 0,
        end: int = 0,
        error: Exception | None = None,
    ) -> None:
        self.batch = batch
        self.begin = begin
        self.end = end
        self.error = error


_END: Final = _Polled()


class ArrowTopicReader:
    """Reads a part of a topic as record batches; made by ``client.arrow_batches()``.

    At most three polls of ``batch_bytes`` are in memory: the one that is converted, the one that
    was read ahead, and the one that is on its way. Partitions come one after the other, in the
    order of their numbers, and their messages in the order of their offsets.
    """

    def __init__(self, client: ClientInterface, options: ArrowReadOptions) -> None:
        """Take a client and checked settings; nothing is asked for before it is entered."""
        self._client = client
        self._options = options
        inherited = client.options
        self._pipeline: Pipeline[bytes] = Pipeline(encryptor=inherited.encryptor)
        self._builders: dict[int, ArrowRowBuilder] = {}
        self._left = math.inf if options.limit is None else options.limit
        self._plan: ReadPlan | None = None
        # A reply that is not handed out yet, the end, or the error that ended polling.
        self._pending: _Polled | None = None
        self._guard = anyio.ResourceGuard("reading from")
        self._polls: MemoryObjectReceiveStream[_Polled] | None = None
        self._open = AsyncExitStack()

    @property
    def schema(self) -> Any:
        """The columns of all record batches, a ``pyarrow.Schema``."""
        return self._options.arrow_schema

    async def __aenter__(self) -> Self:
        """Find the offsets to read, and begin to poll.

        Raises:
            StreamNotFoundError, TopicNotFoundError, PartitionNotFoundError: there is none.
            ClientClosedError: it was entered before.
            IggyError: the server refuses.
        """
        if self._plan is not None:
            raise ClientClosedError(
                "a reader reads once", advice="Make another one with client.arrow_batches()."
            )
        plan = await plan_read(self._client, self._options)
        keep_freed_memory(self._options.batch_bytes)
        sending, polls = anyio.create_memory_object_stream[_Polled](POLLS_AHEAD)
        async with AsyncExitStack() as opening:
            opening.callback(polls.close)
            opening.callback(sending.close)
            tasks = await opening.enter_async_context(anyio.create_task_group())
            opening.callback(tasks.cancel_scope.cancel)
            tasks.start_soon(self._poll_all, plan.ranges, sending)
            self._open = opening.pop_all()
        self._plan, self._polls = plan, polls
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop polling."""
        self._polls = None
        # The error of the block is the block's; in the group it would come out wrapped.
        await self._open.__aexit__(None, None, None)

    def __aiter__(self) -> Self:
        """Iterate over record batches."""
        return self

    async def __anext__(self) -> Any:
        """Return the next record batch; after an error, the same one is tried again.

        Raises:
            DecryptionError: a payload was not sealed with the key of the client.
            PayloadDecodeError: a payload is not what the schema says.
            IggyError: polling failed for good.
        """
        if self._polls is None:
            raise ClientClosedError(
                "the reader is not open",
                advice="Use `async with client.arrow_batches(...) as batches:`.",
            )
        with self._guard:
            while True:
                polled = await self._next_polled(self._polls)
                if polled is _END:
                    raise StopAsyncIteration
                if polled.error is not None:
                    raise polled.error
                rows = await self._rows(polled)
                self._pending = None
                if rows.num_rows:
                    return rows

    async def _next_polled(self, polls: MemoryObjectReceiveStream[_Polled]) -> _Polled:
        if self._pending is None:
            try:
                self._pending = await polls.receive()
            except anyio.EndOfStream:
                # The task was cancelled, and so is this one.
                await checkpoint()
                raise
        return self._pending

    async def _rows(self, polled: _Polled) -> Any:
        batch = polled.batch
        assert batch is not None
        builder = self._builders.get(batch.partition_id)
        if builder is None:
            builder = self._builders[batch.partition_id] = self._builder(batch.partition_id)
        if self._options.schema is None:
            return builder.rows(batch, polled.end, begin=polled.begin)
        # Reading JSON takes long enough that the event loop should not wait for it.
        return await anyio.to_thread.run_sync(
            lambda: builder.rows(batch, polled.end, begin=polled.begin)
        )

    def _builder(self, partition_id: int) -> ArrowRowBuilder:
        assert self._plan is not None
        names: dict[str, str | int] = {"stream": self._plan.stream, "topic": self._plan.topic}
        return ArrowRowBuilder(
            self._options.arrow_schema,
            {**names, "partition": partition_id},
            on_error=self._options.on_error,
        )

    # Polling

    async def _poll_all(
        self, ranges: list[PartitionRange], sending: MemoryObjectSendStream[_Polled]
    ) -> None:
        with sending:
            try:
                for one in ranges:
                    await self._poll_range(one, sending)
                await sending.send(_END)
            except Exception as error:
                await sending.send(_Polled(error=error))

    async def _poll_range(
        self, wanted: PartitionRange, sending: MemoryObjectSendStream[_Polled]
    ) -> None:
        """Poll from the start of a range to its end."""
        at, message_bytes = wanted.start, wanted.message_bytes
        while at < wanted.end and self._left > 0:
            count = min(self._count(message_bytes), wanted.end - at, self._left)
            batch = await self._poll(wanted.partition_id, at, int(count))
            if batch.first_offset != at:
                self._report_gap(wanted, at, batch.first_offset)
            first, last = batch.first_offset, batch.last_offset
            if first is None or last is None or first >= wanted.end:
                return
            await sending.send(_Polled(batch, at, wanted.end))
            self._left -= len(batch) if last < wanted.end else _count_before(batch, wanted.end)
            at, message_bytes = max(at, last + 1), batch.nbytes // len(batch)
            # Its memory is free for the next reply as soon as it is converted.
            del batch

    async def _poll(self, partition_id: int, at: int, count: int) -> ReceivedBatch[bytes]:
        options = self._options
        command = PollMessages(
            READER,
            options.stream,
            options.topic,
            PollingStrategy.offset(at),
            count,
            partition_id,
            False,
        )
        polled = await self._client.request(command)
        return self._pipeline.batch(polled, stream=options.stream, topic=options.topic)

    def _count(self, message_bytes: int) -> int:
        """Return how many messages make a poll of the wanted size."""
        if not message_bytes:
            return FIRST_POLL_COUNT
        return max(1, min(POLL_COUNT_MAX, self._options.batch_bytes // message_bytes))

    def _report_gap(self, wanted: PartitionRange, at: int, found: int | None) -> None:
        after = wanted.end if found is None else min(found, wanted.end)
        logger.info(
            "%s/%s: partition %d has no messages of the offsets %d to %d any more",
            *(self._options.stream, self._options.topic, wanted.partition_id, at, after - 1),
        )


def _count_before(batch: ReceivedBatch[bytes], end: int) -> int:
    """Count the messages before an offset; after retention a poll may return later ones."""
    return len(rows_between(batch.columns(payloads=False, user_headers=False), 0, end))


async def read_table(
    client: ClientInterface, options: ArrowReadOptions, *, timeout: Seconds | None = None
) -> Any:
    """Read a part of a topic into a table.

    Args:
        client: a client that is open.
        options: checked settings.
        timeout: how long all of it may take; None leaves each request its own limit.

    Raises:
        RequestTimeoutError: it took longer.
        IggyError: the server refuses, or a payload cannot be read.
    """
    seconds = math.inf if timeout is None else to_seconds(timeout, name="timeout")
    with anyio.move_on_after(seconds):
        async with ArrowTopicReader(client, options) as batches:
            collected = [batch async for batch in batches]
        return pa.Table.from_batches(collected, schema=options.arrow_schema)
    raise RequestTimeoutError(
        f"reading {options.stream!r}/{options.topic!r} took longer than {seconds} s",
        advice="Read a smaller part, give it more time, or take client.arrow_batches().",
    )

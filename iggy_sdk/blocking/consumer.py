"""A consumer that blocks: ``for`` instead of ``async for``, and handlers that are plain functions.

One thread reads at a time; the other calls may come from any. Handlers run on worker threads and
may use blocking clients.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, Unpack

import anyio
import anyio.to_thread

from iggy_sdk.blocking.consumer_operations import ConsumerOperations
from iggy_sdk.blocking.reader import BatchIterator, BlockingReader, MessageIterator, ReceivedMessage
from iggy_sdk.blocking.wrapper import BlockingBase, T
from iggy_sdk.old_names import warn_of_old_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from iggy_protocol import PollingStrategy
    from iggy_sdk import consumer
    from iggy_sdk.arrow import ArrowColumnSettings
    from iggy_sdk.blocking.arrow import ArrowBatchIterator
    from iggy_sdk.blocking.loop_thread import EventLoopThread
    from iggy_sdk.blocking.producer import Producer, ProducerBuilderBase
    from iggy_sdk.consumer.handover import PartitionsCallback
    from iggy_sdk.consumer.runner import OrderBy
    from iggy_sdk.consumer.start import ReplayPlace
    from iggy_sdk.durations import Seconds
    from iggy_sdk.message import ReceivedMessage as AsyncReceivedMessage
    from iggy_sdk.options import Retry


Handler: TypeAlias = "Callable[[ReceivedMessage[T]], object]"
"""Called with each message, on a worker thread; what it returns is not looked at."""


class IggyConsumer(ConsumerOperations[T]):
    """Reads messages; made by ``client.consumer()`` and ``client.consumer_group()``.

    Asking for the next message acknowledges the one before, and what is acknowledged is stored:
    at least once. A few hundred messages are fetched ahead; after a crash those may come again that
    were delivered within the last moment (0.2 s by default).
    """

    def __init__(self, loop_thread: EventLoopThread, builder: consumer.ConsumerBuilder[T]) -> None:
        """Enter an async consumer in the loop."""
        self._loop_thread = loop_thread
        options = builder.options
        builder = builder.on_assigned(_on_thread(options.on_assigned))
        builder = builder.on_revoked(_on_thread(options.on_revoked))
        self._hosted, self._inner = loop_thread.host(builder)
        self._reader = BlockingReader(loop_thread, self._inner, builder.options.commit)
        self._is_until_end = builder.options.until_end

    # Reading

    def __iter__(self) -> IggyConsumer[T]:
        return self

    def __next__(self) -> ReceivedMessage[T]:
        """Return the next message, and acknowledge the one before.

        Raises:
            IggyError: polling or storing failed for good; one may go on asking.
        """
        message = self._reader.next(until_end=self._is_until_end)
        if message is None:
            raise StopIteration
        return message

    def iter_messages(self, *, until_end: bool = False) -> MessageIterator[T]:
        """Iterate over messages, to the end of the data if so wished."""
        return MessageIterator(self._reader, until_end=until_end or self._is_until_end)

    def batches(
        self, max_messages: int | None = None, max_wait: Seconds = 0.0, *, until_end: bool = False
    ) -> BatchIterator[T]:
        """Iterate over batches; asking for the next one acknowledges the one before.

        Args:
            max_messages: how many make a full batch; None takes ``batch_length``.
            max_wait: how long a batch waits to become full after its first message; 0 takes
                what one poll brings.
            until_end: whether to stop once every partition was read to its end.

        Raises:
            ConfigurationError: ``max_messages`` is below 1.
        """
        self._reader.rewind_buffer()
        inner = self._inner.batches(max_messages, max_wait, until_end=until_end)
        return BatchIterator(self._loop_thread, inner)

    def arrow_batches(
        self, *, until_end: bool = False, **settings: Unpack[ArrowColumnSettings]
    ) -> ArrowBatchIterator[T]:
        """Iterate over Arrow record batches; asking for the next one acknowledges the one before.

        A batch is what one poll brings, at most ``batch_length`` messages of one partition. The
        serde of the consumer is not used: payloads are bytes, or what ``schema`` makes of them.

        Args:
            until_end: whether to stop once every partition was read to its end.
            settings: which columns there are: ``columns``, ``headers``, ``schema``, ``on_error``.

        Raises:
            ConfigurationError: a setting has a value that cannot be used, or pyarrow is missing.
            TypeError: there is no such setting.
        """
        from iggy_sdk.blocking.arrow import ArrowBatchIterator

        self._reader.rewind_buffer()
        inner = self._inner.arrow_batches(until_end=until_end, **settings)
        return ArrowBatchIterator(self._loop_thread, inner)

    def run(
        self,
        handler: Handler[T],
        *,
        concurrency: int = 1,
        order_by: OrderBy | None = None,
        retry: Retry | None = None,
        dead_letter: Producer[Any] | ProducerBuilderBase[Any] | None = None,
        until_end: bool = False,
    ) -> None:
        """Give every message to a handler on a worker thread, until ``stop()`` or an interrupt.

        Args:
            handler: called with each message; the message is done when it returns.
            concurrency: how many messages are handled at a time.
            order_by: which messages must not overtake each other: those of one ``"partition"``,
                those with one ``"key"``, or those for which a function returns the same.
            retry: how a handler that raised is called again; None does not.
            dead_letter: a producer for messages that could not be handled, or a builder of one.
            until_end: whether to return once every partition was read to its end.

        Raises:
            Exception: what the handler raised for a message, without a ``dead_letter``.
            IggyError: polling, storing or sending failed for good.
        """
        self._reader.rewind_buffer()
        self._run(
            self._inner.run(
                self._threaded(handler, concurrency),
                concurrency=concurrency,
                order_by=order_by,
                retry=retry,
                dead_letter=None if dead_letter is None else dead_letter._inner,
                until_end=until_end,
            )
        )

    def consume_messages(self, callback: Handler[T], shutdown_event: Any = None) -> None:
        """Handle messages one by one until an event is set; the official name of ``run``."""
        self._reader.rewind_buffer()
        self._run(self._inner.consume_messages(self._threaded(callback, 1), shutdown_event))

    def _threaded(self, handler: Handler[T], concurrency: int) -> Callable[..., Any]:
        limiters: list[anyio.CapacityLimiter] = []

        async def handle(message: AsyncReceivedMessage[T]) -> None:
            if not limiters:
                limiters.append(anyio.CapacityLimiter(concurrency))
            blocking = ReceivedMessage(message, self._loop_thread)
            await anyio.to_thread.run_sync(handler, blocking, limiter=limiters[0])

        return handle

    # Offsets and positions

    @property
    def last_partition_id(self) -> int | None:
        """The partition of the message that was delivered last; None before the first."""
        last = next(reversed(self._reader.delivered), None)
        return self._inner.last_partition_id if last is None else last

    def partition_id(self) -> int | None:
        """Return ``last_partition_id``, whose old name this is."""
        warn_of_old_name("IggyConsumer.partition_id()", "last_partition_id")
        return self.last_partition_id

    def get_last_consumed_offset(self, partition_id: int) -> int | None:
        """Tell the offset of the last message of a partition that was delivered."""
        found = self._reader.delivered.get(partition_id)
        return self._inner.get_last_consumed_offset(partition_id) if found is None else found

    def store_offset(
        self, offset: int, partition_id: int | None = None, *, timeout: Seconds | None = None
    ) -> None:
        """Store an offset; without a partition, for that of the last message."""
        named = self.last_partition_id if partition_id is None else partition_id
        self._run(self._inner.store_offset(offset, named, timeout=timeout))

    def delete_offset(
        self, partition_id: int | None = None, *, timeout: Seconds | None = None
    ) -> None:
        """Delete the stored offset; without a partition, that of the last message's."""
        named = self.last_partition_id if partition_id is None else partition_id
        self._run(self._inner.delete_offset(named, timeout=timeout))

    def seek(
        self,
        place: ReplayPlace | PollingStrategy,
        partition_id: int | None = None,
        *,
        commit_backwards: bool = False,
        timeout: Seconds | None = None,
    ) -> None:
        """Go on elsewhere; without a partition, in all of them.

        What is acknowledged is stored first. Going back does not move back what is stored: commits
        of lower offsets are held back until the consumer is where it was.

        Args:
            place: ``"earliest"``, an offset, a time, or any ``PollingStrategy``.
            partition_id: the partition to move.
            commit_backwards: whether lower offsets are stored all the same.
            timeout: how long storing may take; None takes the ``request_timeout``. If it takes
                longer, the position stays.

        Raises:
            ConfigurationError: there is no such place.
            IggyError: what is acknowledged could not be stored.
        """
        self._reader.reset_position()
        self._run(
            self._inner.seek(
                place, partition_id, commit_backwards=commit_backwards, timeout=timeout
            )
        )

    def position(self, partition_id: int) -> int | None:
        """Tell the offset that is delivered next, if it is known."""
        return self.positions().get(partition_id)

    def positions(self) -> dict[int, int]:
        """Tell the offset that is delivered next, for all partitions where it is known."""
        return {**self._inner.positions(), **self._reader.firsts()}

    def lag(self, *, timeout: Seconds | None = None) -> dict[int, int]:
        """Ask how many messages each partition is behind; for a group, all of the topic's.

        Args:
            timeout: how long it may take; None takes the ``request_timeout``.

        Raises:
            IggyError: the server refuses.
        """
        lag = self._run(self._inner.lag(timeout=timeout))
        for partition_id, count in self._reader.counts().items():
            lag[partition_id] = lag.get(partition_id, 0) + count
        return lag

    # Lifetime

    def close(self, *, timeout: Seconds | None = None) -> None:
        """Store what is due, leave the group, close an own connection. May be called again.

        Args:
            timeout: how long that may take; None takes ``close_timeout``.
        """
        try:
            if timeout is not None and self._loop_thread.is_open and not self.is_closed:
                self._reader.commit_acknowledged()
                self._run(self._inner.aclose(timeout=timeout))
        finally:
            self.__exit__(None, None, None)

    def shutdown(self, *, timeout: Seconds | None = None) -> None:
        """Close; the official name of ``close``."""
        self.close(timeout=timeout)

    def __enter__(self) -> IggyConsumer[T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop_thread.release(self._hosted)
        try:
            if not self.is_closed:
                self._reader.commit_acknowledged()
        finally:
            self._hosted.leave(kind, error, trace)

    def __repr__(self) -> str:
        return f"<blocking {self._inner!r}>"


def _on_thread(callback: PartitionsCallback | None) -> PartitionsCallback | None:
    """Have a callback run on a worker thread, where it may use the blocking consumer."""
    if callback is None:
        return None

    async def call(partitions: frozenset[int]) -> None:
        await anyio.to_thread.run_sync(callback, partitions)

    return call


class ConsumerBuilderBase(BlockingBase, Generic[T]):
    """Enters a consumer with collected options."""

    def __init__(self, loop_thread: EventLoopThread, inner: consumer.ConsumerBuilder[T]) -> None:
        """Take the options as the async client collected them."""
        self._loop_thread = loop_thread
        self._inner = inner
        # A builder may be entered several times, by several threads; each leaves its own consumer.
        self._entered: defaultdict[int, list[IggyConsumer[T]]] = defaultdict(list)

    def open(self) -> IggyConsumer[T]:
        """Enter a consumer without a block; ``close()`` it in the end.

        Raises:
            StreamNotFoundError, TopicNotFoundError, ConsumerGroupNotFoundError: there is none.
            IggyError: the server refuses, or cannot be reached.
        """
        return IggyConsumer(self._loop_thread, self._inner)

    def __enter__(self) -> IggyConsumer[T]:
        consumer = self.open()
        self._entered[threading.get_ident()].append(consumer)
        return consumer

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        stack = self._entered[threading.get_ident()]
        consumer = stack.pop()
        if not stack:
            del self._entered[threading.get_ident()]
        consumer.__exit__(kind, error, trace)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConsumerBuilderBase) and self._inner == other._inner

    def __hash__(self) -> int:
        return hash(self._inner)

    def __repr__(self) -> str:
        return f"<blocking {self._inner!r}>"

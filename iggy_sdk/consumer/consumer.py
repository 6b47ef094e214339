"""The public consumer: reading, committing, seeking, closing.

async with client.consumer_group("billing", "shop", "orders") as consumer:
    async for message in consumer:
        ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

import anyio

from iggy_sdk.consumer.delivery import BatchIterator, MessageIterator
from iggy_sdk.consumer.handler_retry import DeadLetterSink, HandlerLog, HandlerRetry
from iggy_sdk.consumer.idle import EndDetector
from iggy_sdk.consumer.latency import LatencyHistogram
from iggy_sdk.consumer.runner import Runner, order_key_function, wait_for_event
from iggy_sdk.consumer.start import strategy_of
from iggy_sdk.consumer.subscription import measure_lag
from iggy_sdk.deadline import within
from iggy_sdk.durations import to_seconds
from iggy_sdk.errors import ConfigurationError, IggyError
from iggy_sdk.old_names import warn_of_old_name
from iggy_sdk.statistics import ConsumerStatistics

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from typing import Self

    from iggy_protocol import Identifier, PollingStrategy
    from iggy_sdk.arrow import ArrowColumnSettings
    from iggy_sdk.consumer.arrow_batches import ArrowBatchIterator
    from iggy_sdk.consumer.core import ConsumerCore
    from iggy_sdk.consumer.handler_retry import DeadLetterProducer, Handler
    from iggy_sdk.consumer.runner import OrderBy
    from iggy_sdk.consumer.start import ReplayPlace
    from iggy_sdk.durations import Seconds
    from iggy_sdk.message import ReceivedMessage
    from iggy_sdk.options import Retry


T = TypeVar("T")


class IggyConsumer(Generic[T]):
    """Reads messages; made by ``client.consumer()`` and ``client.consumer_group()``.

    **At least once.** With the default mode a message is committed after it was acknowledged:
    when the next one is asked for, or when its handler has returned. A message may come again
    when a connection breaks, a server is killed or a partition changes hands: those that were
    delivered and not yet committed (at most 0.2 seconds or 1000 messages of acknowledged ones,
    and as many again while the server stores them, the one in hand, and what ``run`` has in
    progress). What was fetched ahead is not delivered. What is committed does not come again.

    **Order.** Messages of a partition, and so of a key, come in their order. When some come
    again, they do so in their order from the first that is not committed.
    """

    def __init__(self, core: ConsumerCore[T]) -> None:
        """Take the parts that the builder has assembled."""
        core.committer = self
        self._core = core
        self._delivery = core.delivery
        self._buffer = core.fetch_buffer.buffer
        self._guard = anyio.ResourceGuard("reading from")
        self._end = EndDetector() if core.options.until_end else None
        self._runner: Runner | None = None
        self._handler_runs: list[HandlerRetry] = []
        self._handler_latency = LatencyHistogram()

    def __repr__(self) -> str:
        return f"<IggyConsumer {self._core.subscription}>"

    # Identity

    @property
    def name(self) -> Identifier:
        """The name of the consumer or of its group."""
        return self._core.subscription.consumer.id

    @property
    def stream(self) -> Identifier:
        """The stream that is read."""
        return self._core.subscription.stream

    @property
    def topic(self) -> Identifier:
        """The topic that is read."""
        return self._core.subscription.topic

    @property
    def last_partition_id(self) -> int | None:
        """The partition of the message that was delivered last; None before the first."""
        return self._core.last_partition()

    def partition_id(self) -> int | None:
        """Return ``last_partition_id``, whose old name this is."""
        warn_of_old_name("IggyConsumer.partition_id()", "last_partition_id")
        return self.last_partition_id

    def assignment(self) -> frozenset[int]:
        """Tell which partitions this consumer reads at the moment.

        A member of a group is told by the server from 0.9 on, at the first poll and every second
        from then on. A server of 0.8 tells nothing: there it is what the last round of polls has
        shown, without a partition 0 that is empty. It is empty before the first poll.
        """
        return self._core.poller.assignment

    def statistics(self) -> ConsumerStatistics:
        """Return what the consumer has done so far."""
        core, retries = self._core, self._handler_runs
        return ConsumerStatistics(
            messages=core.fetch_buffer.messages_count,
            polls=core.poller.polls_count,
            empty_polls=core.fetch_buffer.empty_polls_count,
            buffered=len(self._buffer),
            in_progress=self._runner.in_progress if self._runner else 0,
            commits=core.commits.stores_count,
            commits_dropped=core.commits.dropped_count,
            commit_failures=core.commits.failures_count,
            joins=core.membership.joins_count,
            handler_failures=sum(handler_retry.failures_count for handler_retry in retries),
            handler_retries=sum(handler_retry.retries_count for handler_retry in retries),
            dead_letters=sum(handler_retry.dead_letters_count for handler_retry in retries),
            prefetched=core.fetch_buffer.prefetched_count,
            commits_held=core.commits.held_count,
            fetch_latency=core.poller.latency.summary(),
            handler_latency=self._handler_latency.summary(),
        )

    # Reading

    def __aiter__(self) -> Self:
        """Iterate over messages; asking for the next one acknowledges the one before."""
        return self

    async def __anext__(self) -> ReceivedMessage[T]:
        """Return the next message.

        Raises:
            IggyError: polling or storing failed for good; one may go on asking.
        """
        delivery = self._delivery
        if delivery.credit > 0:
            delivery.credit -= 1
            message = delivery.current = self._buffer.popleft()
            return message
        return await self._next(self._end)

    def iter_messages(self, *, until_end: bool = False) -> MessageIterator[T]:
        """Iterate over messages, to the end of the data if so wished."""
        return MessageIterator(self._next, EndDetector() if until_end else self._end)

    def batches(
        self,
        max_messages: int | None = None,
        max_wait: Seconds = 0.0,
        *,
        until_end: bool = False,
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
        options = self._core.options
        count = options.batch_length if max_messages is None else max_messages
        if count < 1:
            raise ConfigurationError(f"max_messages is {count}", advice="Use 1 or more.")
        return BatchIterator(
            fetch_buffer=self._core.fetch_buffer,
            delivery=self._delivery,
            commits=self._core.commits,
            guard=self._guard,
            check=self._core.check,
            hooks=self._core.hooks,
            counts_handed_out=options.commit.counts_handed_out,
            max_messages=count,
            max_wait=to_seconds(max_wait, name="max_wait"),
            end=EndDetector() if until_end else self._end,
        )

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
        from iggy_sdk.arrow.settings import read_options
        from iggy_sdk.consumer.arrow_batches import ArrowBatchIterator

        return ArrowBatchIterator(
            self._core,
            read_options(self.stream, self.topic, **settings),
            guard=self._guard,
            check=self._core.check,
            until_end=until_end or self._end is not None,
        )

    async def run(
        self,
        handler: Handler[T],
        *,
        concurrency: int = 1,
        order_by: OrderBy | None = None,
        retry: Retry | None = None,
        dead_letter: DeadLetterProducer
        | AbstractAsyncContextManager[DeadLetterProducer]
        | None = None,
        until_end: bool = False,
    ) -> None:
        """Give every message to a handler, until ``stop()`` or cancellation.

        Offsets are stored only up to the oldest message that is not done; a handler that is
        cancelled has not done it.

        Args:
            handler: called with each message.
            concurrency: how many messages are handled at a time.
            order_by: which messages must not overtake each other: those of one ``"partition"``,
                those with one ``"key"``, or those for which a function returns the same. None
                keeps no order when several are handled at a time.
            retry: how a handler that raised is called again; None does not.
            dead_letter: a producer for messages that could not be handled, or a builder of one.
                They count as done when they are delivered there.
            until_end: whether to return once every partition was read to its end.

        Raises:
            Exception: what the handler raised for a message, without a ``dead_letter``.
            IggyError: polling, storing or sending failed for good.
        """
        if concurrency < 1:
            raise ConfigurationError(f"concurrency is {concurrency}", advice="Use 1 or more.")
        self._core.check()
        with self._guard:
            self._delivery.acknowledge_delivered()
            self._delivery.revoke_credit()
            log = HandlerLog(self._core.subscription)
            if dead_letter is None:
                handler_retry = HandlerRetry(handler, retry=retry, log=log)
                await self._run(handler_retry, concurrency, order_by, until_end)
                return
            async with DeadLetterSink(dead_letter) as sink:
                handler_retry = HandlerRetry(handler, retry=retry, dead_letters=sink, log=log)
                await self._run(handler_retry, concurrency, order_by, until_end)

    async def consume_messages(self, callback: Handler[T], shutdown_event: Any = None) -> None:
        """Handle messages one after the other until an event is set; the official name of ``run``.

        Args:
            callback: called with each message; the message is committed when it returns.
            shutdown_event: anything with ``wait()``, such as ``asyncio.Event``, ``anyio.Event``
                or ``threading.Event``.
        """
        if shutdown_event is None:
            await self.run(callback)
            return
        async with anyio.create_task_group() as watching:
            watching.start_soon(self._stop_after, shutdown_event)
            try:
                await self.run(callback)
            finally:
                watching.cancel_scope.cancel()

    def stop(self) -> None:
        """Stop: ``run`` returns when its handlers have, iteration ends."""
        self._core.stop()

    # Offsets

    async def commit(
        self, partition_id: int, offset: int, *, timeout: Seconds | None = None
    ) -> None:
        """Store that everything up to this offset is done, as ``message.commit()`` does.

        Args:
            partition_id: the partition.
            offset: the last offset that is done.
            timeout: how long it may take, joining the group again included; None takes the
                ``request_timeout``.

        Raises:
            PartitionNotOwnedError: the group gave the partition to another member.
            RequestTimeoutError: the offset may have been stored.
            IggyError: the server refuses.
        """
        self._core.check()
        store = self._core.commits.store
        await within(
            *(timeout, "commit", lambda rest: store(partition_id, offset, timeout=rest)),
            default=self._core.request_timeout,
        )

    async def store_offset(
        self, offset: int, partition_id: int | None = None, *, timeout: Seconds | None = None
    ) -> None:
        """Store an offset; without a partition, for that of the last message.

        Args:
            offset: the last offset that is done.
            partition_id: the partition.
            timeout: how long it may take, as in ``commit``.

        Raises:
            InvalidRequestError: there is no last message, and no partition was named.
            IggyError: the server refuses.
        """
        await self.commit(self._core.named_or_last(partition_id), offset, timeout=timeout)

    async def delete_offset(
        self, partition_id: int | None = None, *, timeout: Seconds | None = None
    ) -> None:
        """Delete the stored offset; without a partition, that of the last message's.

        Args:
            partition_id: the partition.
            timeout: how long it may take, as in ``commit``.

        Raises:
            InvalidRequestError: there is no last message, and no partition was named.
            IggyError: the server refuses, or there is none.
        """
        self._core.check()
        named, delete = self._core.named_or_last(partition_id), self._core.delete_offset
        await within(
            *(timeout, "delete_offset", lambda rest: delete(named, timeout=rest)),
            default=self._core.request_timeout,
        )

    def get_last_consumed_offset(self, partition_id: int) -> int | None:
        """Tell the offset of the last message of a partition that was delivered."""
        return self._core.last_delivered(partition_id)

    def get_last_stored_offset(self, partition_id: int) -> int | None:
        """Tell the offset of a partition that this consumer stored last."""
        tracker = self._core.trackers.find(partition_id)
        return None if tracker is None else tracker.stored

    # Position

    async def seek(
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
        strategy = strategy_of(place)
        self._core.check()
        if self._end is not None:
            # What was read to its end is not any more.
            self._end = EndDetector()
        guards = not commit_backwards
        await within(
            *(timeout, "seek", lambda _: self._core.seek(strategy, partition_id, guards=guards)),
            default=self._core.request_timeout,
        )

    def position(self, partition_id: int) -> int | None:
        """Tell the offset that is delivered next, if it is known."""
        return self.positions().get(partition_id)

    def positions(self) -> dict[int, int]:
        """Tell the offset that is delivered next, for all partitions where it is known."""
        return self._core.positions()

    def pause(self, *partition_ids: int) -> None:
        """Poll some partitions no more; without any, none at all. Membership is kept."""
        self._core.pause(partition_ids)

    def resume(self, *partition_ids: int) -> None:
        """Poll partitions again; without any, all of them."""
        self._core.resume(partition_ids)

    async def lag(self, *, timeout: Seconds | None = None) -> dict[int, int]:
        """Ask how many messages each partition is behind; for a group, all of the topic's.

        Args:
            timeout: how long it may take; None takes the ``request_timeout``.

        Raises:
            IggyError: the server refuses.
        """
        self._core.check()
        core, positions = self._core, self.positions()
        return await within(
            *(timeout, "lag"),
            lambda _: measure_lag(
                core.membership, core.subscription, positions, core.options.partitions
            ),
            default=core.request_timeout,
        )

    # Closing

    async def aclose(self, *, timeout: Seconds | None = None) -> None:
        """Stop reading, store what is due, leave the group, and close an own connection.

        Shielded from cancellation, but bounded; a second call does nothing.

        Args:
            timeout: how long that may take; None takes ``close_timeout``.
        """
        await self._core.aclose(None if timeout is None else to_seconds(timeout, name="timeout"))

    async def shutdown(self, *, timeout: Seconds | None = None) -> None:
        """Close; the official name of ``aclose``."""
        await self.aclose(timeout=timeout)

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._core.is_closed

    # Private

    async def _next(self, end: EndDetector | None) -> ReceivedMessage[T]:
        self._core.check()
        with self._guard:
            try:
                message = await self._delivery.next(end)
            except IggyError:
                if not self._core.is_closed:
                    raise
                message = None
        if message is None:
            raise StopAsyncIteration
        return message

    async def _run(
        self,
        handler_retry: HandlerRetry,
        concurrency: int,
        order_by: OrderBy | None,
        until_end: bool,
    ) -> None:
        core = self._core
        self._handler_runs.append(handler_retry)
        handler_retry.latency = self._handler_latency
        runner = self._runner = Runner(
            fetch_buffer=core.fetch_buffer,
            poller=core.poller,
            commits=core.commits,
            handler_retry=handler_retry,
            hooks=core.hooks,
            counts_handed_out=core.options.commit.counts_handed_out,
            concurrency=concurrency,
            order_key_of=order_key_function(order_by),
            batch_length=core.options.batch_length,
            close_timeout=core.close_timeout,
            end=EndDetector() if until_end else self._end,
        )
        try:
            await runner.run()
        finally:
            self._runner = None

    async def _stop_after(self, event: Any) -> None:
        await wait_for_event(event)
        if self._runner is not None:
            self._runner.stop()

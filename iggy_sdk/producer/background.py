"""A producer whose calls return at once: messages are collected, and tasks deliver them.

An accepted message is delivered or its failure is reported: to ``on_error`` if it is set, to the
task that awaits the receipt, and otherwise by the next call, ``flush`` or the end of the block.
Messages of one destination keep their order, because one batch per destination is in flight.

Only the receipt is allocated for a message, and one of many calls is a checkpoint.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
import anyio.lowlevel

from iggy_protocol import PAYLOAD_BYTES_MAX, Identifier, MessageRows, Partitioning
from iggy_sdk.deadline import Deadline
from iggy_sdk.durations import Seconds, spell_seconds
from iggy_sdk.errors import BufferFullError, IggyError, RequestTimeoutError, SendFailedError
from iggy_sdk.producer.accumulator import ByteBudget
from iggy_sdk.producer.encoder import OVERHEAD_BYTES, split_batches, with_overrides
from iggy_sdk.producer.options import (
    REQUEST_BYTES_MAX,
    BackgroundMode,
    ProducerOptions,
    delivery_seconds_max,
)
from iggy_sdk.producer.producer import (
    Producer,
    explicit_partitioning,
    is_list_of_messages,
    overridden,
)
from iggy_sdk.producer.receipts import DELIVERED, BatchOutcome, Receipt
from iggy_sdk.producer.routing import PARTITIONS_MAX_AGE_S, Destination, TopicRoute
from iggy_sdk.producer.sender import BackgroundSender, ErrorReporter
from iggy_sdk.statistics import ProducerStatistics

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    from anyio.abc import TaskGroup

    from iggy_protocol import SendConfirmation
    from iggy_sdk.client_interface import ClientInterface
    from iggy_sdk.message import Headers, Message


T = TypeVar("T")

_LOGGER: Final = logging.getLogger("iggy_sdk.producer")

MESSAGES_PER_YIELD: Final = 64
"""Messages that are accepted before other tasks run. A checkpoint costs as much as accepting a few
messages, and the tasks that deliver must not wait long."""


class BackgroundProducer(Producer[T]):
    """Collects and delivers."""

    def __init__(
        self,
        client: ClientInterface,
        stream: Identifier,
        topic: Identifier,
        options: ProducerOptions,
    ) -> None:
        """Take what the builder collected; nothing runs yet."""
        super().__init__(client, stream, topic, options)
        mode = options.mode
        assert isinstance(mode, BackgroundMode)
        self._mode = mode
        self._delivery_seconds_max = delivery_seconds_max(
            mode, options.retry, attempt_seconds=self._seconds_max
        )
        self._budget = ByteBudget(mode.max_buffer_size, mode.backpressure)
        self._error_reporter = (
            None if mode.on_error is None else ErrorReporter(mode.on_error, self._budget)
        )
        self._sender = BackgroundSender(
            mode,
            transmit=self._deliver_batch,
            unsent=self._encoder.unsent,
            budget=self._budget,
            error_reporter=self._error_reporter,
        )
        self._tasks: TaskGroup | None = None
        self._since_yield_count = 0
        self._refreshes = False

    async def _deliver_batch(
        self,
        destination: Destination,
        wires: Sequence[Any],
        originals: Sequence[Any],
        oldest_at: float,
    ) -> SendConfirmation | None:
        """Send a batch by the time that its oldest message may take."""
        return await self._transmit(destination, wires, originals, self._deadline_from(oldest_at))

    def _deadline_from(self, begun_at: float) -> Deadline:
        deadline = Deadline(self._delivery_seconds_max, clock=self._clock)
        deadline.at = begun_at + self._delivery_seconds_max
        return deadline

    def statistics(self) -> ProducerStatistics:
        """Return the counters of the producer."""
        return ProducerStatistics(
            accepted_count=self._sender.accepted_count,
            delivered_count=self._retrying_sender.messages_count,
            failed_count=self._sender.failed_count,
            batches_count=self._retrying_sender.batches_count,
            retries_count=self._retrying_sender.retries_count,
            buffered_bytes=self._budget.taken_bytes,
            in_flight_count=self._sender.in_flight_count,
            blocked_count=self._budget.waiters_count,
            callback_errors_count=0
            if self._error_reporter is None
            else self._error_reporter.errors_count,
        )

    # Sending

    async def send(
        self,
        value: T | Message[T],
        *,
        key: str | bytes | None = None,
        partition_id: int | None = None,
        partitioning: Partitioning | int | None = None,
        headers: Headers | None = None,
        timeout: Seconds | None = None,
    ) -> Receipt:
        """Accept one message; see ``Producer.send``."""
        self._check()
        if (
            type(value) is bytes
            and self._passes_bytes
            and key is None
            and partition_id is None
            and partitioning is None
            and headers is None
            and len(value) <= PAYLOAD_BYTES_MAX
        ):
            original: Any = value
            wire: Any = value
            size_bytes = len(value) + OVERHEAD_BYTES
            destination = self._usual_destination
        else:
            explicit = explicit_partitioning(partition_id, partitioning)
            if is_list_of_messages(value):
                messages: Any = value
                return await self._send_all(
                    self._route, list(messages), key, explicit, headers, timeout
                )
            original = with_overrides(value, key=key, headers=headers)
            deadline = None if timeout is None else self._deadline(timeout)
            wire, size_bytes, destination = await self._prepared(original, explicit, deadline)
            timeout = None if deadline is None else deadline.rest()
        self._since_yield_count += 1
        if self._since_yield_count >= MESSAGES_PER_YIELD:
            await self._yield_to_tasks()
        if not self._budget.try_acquire(size_bytes):
            deadline = None if timeout is None else self._deadline(timeout)
            await self._reserve_bytes(size_bytes, deadline)
        assert destination is not None
        return self._sender.accept(destination, wire, original=original, size_bytes=size_bytes)

    async def _prepared(
        self, original: Any, explicit: Partitioning | None, deadline: Deadline | None
    ) -> tuple[Any, int, Destination]:
        """Encode one message, and choose its destination."""
        route = self._route
        wire, size_bytes = self._encoder.encode_one(
            original, stream=route.stream, topic=route.topic
        )
        destination = self._common_destination(route, (original,), explicit)
        if destination is None:
            await self._learn_partitions(route, deadline)
            destination = self._keyed_destination(route, original)
        return wire, size_bytes, destination

    async def _send_all(
        self,
        route: TopicRoute,
        values: list[Any],
        key: str | bytes | None,
        explicit: Partitioning | None,
        headers: Headers | None,
        timeout: Seconds | None,
    ) -> Receipt:
        self._check()
        if not values:
            return DELIVERED
        deadline = None if timeout is None else self._deadline(timeout)
        originals = overridden(values, key, headers)
        wires, sizes = self._encoder.encode_many(originals, stream=route.stream, topic=route.topic)
        destination = self._common_destination(route, originals, explicit)
        if destination is None:
            await self._learn_partitions(route, deadline)
        self._since_yield_count += len(originals)
        if self._since_yield_count >= MESSAGES_PER_YIELD:
            await self._yield_to_tasks()
        parts: list[tuple[BatchOutcome, int, int]] = []
        for start, stop in self._pieces(sizes):
            try:
                await self._reserve_bytes(sum(sizes[start:stop]), deadline)
            except BufferFullError as error:
                if not start:
                    raise
                # Earlier pieces were accepted, so the error names the messages that were not.
                raise SendFailedError(error, originals[start:]) from error
            if destination is not None:
                parts += self._sender.accept_many(
                    destination,
                    wires[start:stop],
                    originals=originals[start:stop],
                    sizes=sizes[start:stop],
                )
            else:
                parts += self._accept_by_key(
                    route, wires[start:stop], originals[start:stop], sizes[start:stop]
                )
        return self._sender.receipt_of(parts)

    async def _send_rows(
        self, destination: Destination, rows: MessageRows, timeout: Seconds | None
    ) -> Receipt:
        self._check()
        deadline = None if timeout is None else self._deadline(timeout)
        pieces = self._pieces_of_rows(rows, self._mode.batch_length, self._rows_bytes_max)
        parts: list[tuple[BatchOutcome, int, int]] = []
        accepted = 0
        for piece, size_bytes in pieces:
            try:
                await self._reserve_bytes(size_bytes, deadline)
            except BufferFullError as error:
                if not accepted:
                    raise
                # Earlier pieces were accepted, so the error names the messages that were not.
                raise SendFailedError(error, list(rows[accepted:])) from error
            parts.append(self._sender.accept_rows(destination, piece, size_bytes=size_bytes))
            accepted += len(piece)
        return self._sender.receipt_of(parts) if parts else DELIVERED

    @property
    def _rows_bytes_max(self) -> int:
        """The bytes of one request that fit into the buffer as well."""
        bounds = (self._mode.batch_size, self._mode.max_buffer_size, REQUEST_BYTES_MAX)
        return min(one for one in bounds if one is not None)

    def _pieces(self, sizes: Sequence[int]) -> list[tuple[int, int]]:
        """Split the messages of a call into pieces that fit into the buffer."""
        limit = self._mode.max_buffer_size
        if limit is None or sum(sizes) <= limit:
            return [(0, len(sizes))]
        size_bytes = self._mode.batch_size
        return list(
            split_batches(
                sizes,
                length=self._mode.batch_length,
                size_bytes=size_bytes if size_bytes is None else min(size_bytes, limit),
                bytes_max=min(limit, REQUEST_BYTES_MAX),
            )
        )

    def _accept_by_key(
        self,
        route: TopicRoute,
        wires: Sequence[Any],
        originals: Sequence[Any],
        sizes: Sequence[int],
    ) -> list[tuple[BatchOutcome, int, int]]:
        """Accept messages that go by their own keys, in the order of the list."""
        groups: dict[Destination, list[int]] = {}
        for at, original in enumerate(originals):
            groups.setdefault(self._keyed_destination(route, original), []).append(at)
        parts: list[tuple[BatchOutcome, int, int]] = []
        for destination, places in groups.items():
            parts += self._sender.accept_many(
                destination,
                [wires[at] for at in places],
                originals=[originals[at] for at in places],
                sizes=[sizes[at] for at in places],
            )
        return parts

    async def _reserve_bytes(self, size_bytes: int, deadline: Deadline | None) -> None:
        """Reserve bytes of the buffer, then check for failures that occurred meanwhile."""
        await self._budget.take(size_bytes, None if deadline is None else deadline.rest())
        try:
            self._check()
        except BaseException:
            self._budget.release(size_bytes)
            raise

    async def _yield_to_tasks(self) -> None:
        """Let other tasks run, before anything of this call is accepted."""
        self._since_yield_count = 0
        await anyio.lowlevel.checkpoint()
        self._check()

    def _check(self) -> None:
        """Raise if the producer is closed or has an unreported failure."""
        if self._is_closed or not self._sender.is_started:
            raise self._closed_error()
        if self._sender.has_unreported:
            self._raise_unreported()

    def _raise_unreported(self) -> None:
        unreported = self._sender.take_unreported()
        if unreported is not None:
            raise unreported
        if self._sender.fatal is not None:
            raise self._sender.fatal

    # Keys

    async def _learn_partitions(self, route: TopicRoute, deadline: Deadline | None) -> None:
        """Request the number of partitions before the first key, then at an interval."""
        if route.partitions_count is None:
            now = anyio.current_time()
            if route.is_stale(now):
                seconds = None if deadline is None else deadline.rest()
                await route.refresh_partitions(now=now, seconds=seconds)
                self._check()
        if not self._refreshes:
            self._refreshes = True
            self._sender.spawn(self._refresh)

    async def _refresh(self) -> None:
        while True:
            await anyio.sleep(PARTITIONS_MAX_AGE_S)
            for route in [self._route, *self._routes.values()]:
                if route.has_keys and route.is_stale(anyio.current_time()):
                    await route.refresh_partitions(now=anyio.current_time())

    # Lifetime

    async def flush(self, *, timeout: Seconds | None = None) -> None:
        """Wait until all messages accepted so far were delivered or have failed."""
        if self._sender.is_started:
            seconds = None if timeout is None else self._deadline(timeout).seconds
            with anyio.move_on_after(seconds) as scope:
                await self._sender.flush()
            if scope.cancelled_caught:
                raise self._still_waiting_error(
                    f"flush: not all was delivered within {spell_seconds(seconds or 0.0)}"
                )
        self._raise_unreported()

    def _still_waiting_error(self, text: str) -> RequestTimeoutError:
        in_flight_count = self._sender.in_flight_count
        return RequestTimeoutError(
            f"{text}; {self._budget.taken_bytes} bytes are in the buffer",
            advice="Wait for flush() again: the producer goes on delivering.",
            sent=in_flight_count > 0,
        )

    async def __aenter__(self) -> Self:
        """Find or create the topic, and start the tasks."""
        assert self._tasks is None, "a producer is entered once"
        await super().__aenter__()
        tasks = anyio.create_task_group()
        await tasks.__aenter__()
        self._tasks = tasks
        self._sender.start(tasks)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Deliver what is in the buffer, close the producer, and wait for its tasks."""
        tasks, self._tasks = self._tasks, None
        assert tasks is not None
        try:
            try:
                await self._close(self._close_timeout)
            finally:
                tasks.cancel_scope.cancel()
                # The error of the block is not passed on: the task group would wrap it in a group.
                await tasks.__aexit__(None, None, None)
        except BaseException:
            self._log_unreported()
            raise
        if kind is None:
            self._raise_unreported()
        else:
            self._log_unreported()

    async def aclose(self, *, timeout: Seconds | None = None) -> None:
        """Deliver what is in the buffer, and accept no further messages."""
        await self._close(timeout)
        self._raise_unreported()

    async def _close(self, timeout: Seconds | None) -> None:
        """Deliver, report, stop; if cancelled, deliver within ``close_timeout`` first."""
        seconds = None if timeout is None else self._deadline(timeout).seconds
        self._is_closed = True
        closed: IggyError = self._closed_error()
        self._budget.close(closed)
        if not self._sender.is_started:
            return
        seconds_max = self._client.options.close_timeout
        try:
            with anyio.move_on_after(seconds) as scope:
                await self._sender.finish()
            if scope.cancelled_caught:
                spent = spell_seconds(seconds or 0.0)
                text = f"the producer was closed, and had not delivered all within {spent}"
                closed = RequestTimeoutError(text, sent=False)
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(seconds_max, shield=True):
                await self._sender.finish()
            raise
        finally:
            with anyio.CancelScope(shield=True):
                await self._sender.abandon(closed, seconds_max=seconds_max)

    def _log_unreported(self) -> None:
        """Log failures that cannot be raised, because another error is."""
        unreported = self._sender.take_unreported()
        if unreported is not None:
            _LOGGER.error(
                "messages were not sent, and another error ended the block: %s", unreported
            )

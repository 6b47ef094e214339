"""The tasks of a background producer: workers that deliver batches, a linger timer, error reports.

Workers are started when a batch is ready and end when none is, so an idle producer has none. All
tasks are shielded: accepted messages are delivered or reported as failed, also when the block
around the producer is cancelled. Only ``abandon`` ends the tasks early.
"""

from __future__ import annotations

import inspect
import logging
from collections import deque
from sys import maxsize
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio

from iggy_sdk.durations import to_seconds
from iggy_sdk.errors import IggyError, ProducerError, SendFailedError
from iggy_sdk.producer.accumulator import Accumulator, ByteBudget, ProducerBatch
from iggy_sdk.producer.options import REQUEST_BYTES_MAX, BackgroundMode, ErrorCallback
from iggy_sdk.producer.receipts import BatchOutcome, JoinedReceipt, Receipt
from iggy_sdk.producer.retrying_sender import log_given_up
from iggy_sdk.producer.routing import Destination

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from anyio.abc import TaskGroup

    from iggy_protocol import MessageRows, SendConfirmation


# Calling ``on_error`` for messages that were not sent.
#
# The callback runs in its own task, so that a slow one delays no delivery. A failure in the queue
# keeps its bytes of the buffer until the call, which bounds the queue. Exceptions of the callback
# are logged and counted.


_REPORT_LOGGER: Final = logging.getLogger("iggy_sdk.producer")


class ErrorReporter:
    """A queue of failures, reported one after another.

    Args:
        callback: called with each failure.
        budget: gets the bytes of a failure back before the call.
    """

    def __init__(self, callback: ErrorCallback, budget: ByteBudget) -> None:
        self._callback = callback
        self._budget = budget
        self._queue: deque[tuple[SendFailedError, int]] = deque()
        self._is_reporting = False
        self._wake: anyio.Event | None = None
        self._empty: anyio.Event | None = None
        self.errors_count: int = 0

    def add(self, error: SendFailedError, size_bytes: int) -> None:
        """Queue a failure for the callback."""
        self._queue.append((error, size_bytes))
        if self._wake is not None:
            self._wake.set()

    async def run(self) -> None:
        """Call the callback for queued failures until this is cancelled."""
        while True:
            while self._queue:
                await self._report_next()
            if self._empty is not None:
                self._empty.set()
                self._empty = None
            self._wake = anyio.Event()
            await self._wake.wait()

    async def wait_until_empty(self) -> None:
        """Wait until all failures were reported."""
        while self._queue or self._is_reporting:
            if self._empty is None:
                self._empty = anyio.Event()
            await self._empty.wait()

    def log_rest(self) -> None:
        """Log failures that were not reported before the producer closed."""
        while self._queue:
            error, size_bytes = self._queue.popleft()
            self._budget.release(size_bytes)
            _REPORT_LOGGER.error("on_error was not called before the producer closed: %s", error)

    async def _report_next(self) -> None:
        error, size_bytes = self._queue.popleft()
        self._is_reporting = True
        # Before the call, because the callback may send the messages again.
        self._budget.release(size_bytes)
        try:
            answer = self._callback(error)
            if inspect.isawaitable(answer):
                await answer
        except Exception:
            self.errors_count += 1
            _REPORT_LOGGER.exception("on_error raised an exception; the producer continues")
        finally:
            self._is_reporting = False


_LOGGER: Final = logging.getLogger("iggy_sdk.producer")

PendingBatch: TypeAlias = ProducerBatch[Destination, BatchOutcome]


class BackgroundSender:
    """Delivers accepted messages.

    Args:
        mode: limits and times.
        transmit: sends one batch, with retries; told when its oldest message was accepted.
        unsent: makes the messages of the error for a batch that failed.
        budget: the bytes of the buffer.
        error_reporter: reports failures; without it the next call raises them.
    """

    def __init__(
        self,
        mode: BackgroundMode,
        *,
        transmit: Callable[
            [Destination, Sequence[Any], Sequence[Any], float], Awaitable[SendConfirmation | None]
        ],
        unsent: Callable[[Sequence[Any], Sequence[Any]], list[Any]],
        budget: ByteBudget,
        error_reporter: ErrorReporter | None,
    ) -> None:
        self._transmit = transmit
        self._unsent = unsent
        self._budget = budget
        self._error_reporter = error_reporter
        self._accumulator: Accumulator[Destination, BatchOutcome] = Accumulator(
            batch_length=mode.batch_length,
            batch_size=mode.batch_size,
            linger=to_seconds(mode.linger_time),
            bytes_max=REQUEST_BYTES_MAX,
            make_outcome=BatchOutcome,
        )
        self._workers_max = maxsize if mode.max_in_flight is None else mode.max_in_flight
        self._workers_count = 0
        self._starting_count = 0
        self._tasks: TaskGroup | None = None
        self._worker_scopes: set[anyio.CancelScope] = set()
        self._other_scopes: set[anyio.CancelScope] = set()
        self._in_flight: dict[PendingBatch, None] = {}
        self._timer_wakeup: anyio.Event | None = None
        self._is_stopped = False
        self._unreported: list[BatchOutcome] = []
        self._given_up_because: IggyError | None = None
        self.fatal: IggyError | None = None
        self.accepted_count: int = 0
        self.failed_count: int = 0

    @property
    def in_flight_count(self) -> int:
        """How many requests wait for their answers."""
        return len(self._in_flight)

    @property
    def is_started(self) -> bool:
        """Whether there is a task group for the tasks."""
        return self._tasks is not None

    @property
    def has_unreported(self) -> bool:
        """Whether the next call has to raise something."""
        return self.fatal is not None or bool(self._unreported)

    def start(self, tasks: TaskGroup) -> None:
        """Start the tasks in a task group."""
        self._tasks = tasks
        self.spawn(self._run_linger_timer)
        if self._error_reporter is not None:
            self.spawn(self._error_reporter.run)

    def spawn(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run a task until it ends or everything is stopped."""
        assert self._tasks is not None, "the producer was not entered"
        self._tasks.start_soon(self._run_shielded, work, self._other_scopes)

    # Accepting

    def accept(
        self, destination: Destination, wire: Any, *, original: Any, size_bytes: int
    ) -> Receipt:
        """Accept one message; its bytes of the buffer are acquired already."""
        self.accepted_count += 1
        batch = self._accumulator.append(
            destination, wire, original=original, size_bytes=size_bytes
        )
        if batch is None:
            now = anyio.current_time()
            batch = self._accumulator.add(
                destination, wire, original=original, size_bytes=size_bytes, now=now
            )
            self._on_change()
        stop = len(batch.messages)
        return Receipt(batch.outcome, stop - 1, stop)

    def accept_many(
        self,
        destination: Destination,
        wires: Sequence[Any],
        *,
        originals: Sequence[Any],
        sizes: Sequence[int],
    ) -> list[tuple[BatchOutcome, int, int]]:
        """Accept messages of one destination; return the parts of their receipt."""
        places = self._accumulator.extend(
            destination, wires, originals=originals, sizes=sizes, now=anyio.current_time()
        )
        self.accepted_count += len(wires)
        self._on_change()
        return [(batch.outcome, start, stop) for batch, start, stop in places]

    def accept_rows(
        self, destination: Destination, rows: MessageRows, *, size_bytes: int
    ) -> tuple[BatchOutcome, int, int]:
        """Accept rows as one request; return the part of their receipt."""
        batch = self._accumulator.add_batch(
            destination, rows, size_bytes=size_bytes, now=anyio.current_time()
        )
        self.accepted_count += len(rows)
        self._on_change()
        return batch.outcome, 0, len(rows)

    @staticmethod
    def receipt_of(parts: Sequence[tuple[BatchOutcome, int, int]]) -> Receipt:
        """Make one receipt of its parts."""
        return Receipt(*parts[0]) if len(parts) == 1 else JoinedReceipt(parts)

    def _on_change(self) -> None:
        """Start workers for batches that are ready, and wake the linger timer."""
        accumulator = self._accumulator
        if accumulator.ready_count > self._starting_count:
            self._start_workers()
        elif self._timer_wakeup is not None and accumulator.deadline is not None:
            self._timer_wakeup.set()
            self._timer_wakeup = None

    def _start_workers(self) -> None:
        assert self._tasks is not None, "the producer was not entered"
        while (
            self._starting_count < self._accumulator.ready_count
            and self._workers_count < self._workers_max
        ):
            self._workers_count += 1
            self._starting_count += 1
            self._tasks.start_soon(self._run_shielded, self._work, self._worker_scopes)

    # Tasks

    async def _run_shielded(
        self, work: Callable[[], Awaitable[None]], scopes: set[anyio.CancelScope]
    ) -> None:
        """Run a task shielded from cancellation; its exception fails the producer."""
        if self._is_stopped:
            return
        with anyio.CancelScope(shield=True) as scope:
            scopes.add(scope)
            try:
                await work()
            except Exception as error:
                _LOGGER.exception("a task of the producer failed")
                self._fail_all(error)
            finally:
                scopes.discard(scope)

    def _fail_all(self, error: Exception) -> None:
        """Fail everything after an internal error; the next call raises it."""
        fatal = ProducerError(
            f"an internal error stopped the producer: {error!r}", advice="Report this as a bug."
        )
        fatal.__cause__ = error
        self.fatal = fatal
        self._give_up_all(fatal)
        self._budget.close(fatal)

    async def _run_linger_timer(self) -> None:
        """Make batches ready whose linger time is over."""
        accumulator = self._accumulator
        while True:
            deadline = accumulator.deadline
            if deadline is None:
                self._timer_wakeup = anyio.Event()
                await self._timer_wakeup.wait()
            else:
                await anyio.sleep_until(deadline)
                accumulator.tick(anyio.current_time())
                self._start_workers()

    async def _work(self) -> None:
        """Deliver batches while there are any."""
        self._starting_count -= 1
        try:
            while (batch := self._accumulator.take()) is not None:
                await self._deliver(batch)
        finally:
            self._workers_count -= 1

    async def _deliver(self, batch: PendingBatch) -> None:
        self._in_flight[batch] = None
        cause: BaseException | None = None
        confirmation = None
        try:
            confirmation = await self._transmit(
                batch.destination, batch.messages, batch.originals, batch.oldest_at
            )
        except anyio.get_cancelled_exc_class():
            assert self._given_up_because is not None, "a worker was cancelled from outside"
            self._finish_batch(batch, self._given_up_because.after_sending())
            raise
        except Exception as error:
            cause = error
        self._finish_batch(batch, cause, confirmation)

    def _finish_batch(
        self,
        batch: PendingBatch,
        cause: BaseException | None,
        confirmation: SendConfirmation | None = None,
    ) -> None:
        """Finish a batch that was in flight."""
        del self._in_flight[batch]
        if cause is None:
            batch.outcome.deliver(confirmation)
            self._budget.release(batch.size_bytes)
        else:
            self._give_up(batch, cause)
        self._accumulator.done(batch, now=anyio.current_time())
        self._on_change()

    def _give_up(self, batch: PendingBatch, cause: BaseException) -> None:
        messages = self._unsent(batch.originals, batch.messages)
        self.failed_count += len(messages)
        batch.outcome.fail(cause, messages)
        failure = SendFailedError(cause, messages)
        log_given_up(batch.destination, failure)
        if self._error_reporter is not None:
            self._error_reporter.add(failure, batch.size_bytes)
            return
        self._unreported.append(batch.outcome)
        self._budget.release(batch.size_bytes)

    # Ending

    async def flush(self) -> None:
        """Wait until all accepted messages were delivered or have failed."""
        self._accumulator.flush()
        self._start_workers()
        for batch in [*self._accumulator.waiting(), *self._in_flight]:
            await batch.outcome.wait()

    async def finish(self) -> None:
        """Deliver all accepted messages, then report all failures."""
        await self.flush()
        if self._error_reporter is not None:
            await self._error_reporter.wait_until_empty()

    async def abandon(self, cause: IggyError, *, seconds_max: float) -> None:
        """Fail what is left, report it within a time limit, and stop all tasks."""
        self._give_up_all(cause)
        for batch in list(self._in_flight):
            await batch.outcome.wait()
        if self._error_reporter is not None:
            with anyio.move_on_after(seconds_max):
                await self._error_reporter.wait_until_empty()
        # A task that was started but has not run yet has no scope; it checks this flag.
        self._is_stopped = True
        for scope in self._other_scopes:
            scope.cancel()
        if self._error_reporter is not None:
            self._error_reporter.log_rest()

    def _give_up_all(self, cause: IggyError) -> None:
        """Fail waiting batches at once, and cancel the workers of those in flight."""
        self._given_up_because = cause
        for batch in self._accumulator.clear():
            self._give_up(batch, cause)
        for scope in self._worker_scopes:
            scope.cancel()

    def take_unreported(self) -> SendFailedError | None:
        """Return the unreported failures as one error; they count as reported from now on."""
        unreported = [(outcome, outcome.unclaimed()) for outcome in self._unreported]
        self._unreported.clear()
        causes = [outcome.cause for outcome, messages in unreported if messages]
        if not causes:
            return None
        assert causes[0] is not None
        error = SendFailedError(causes[0], [one for _, messages in unreported for one in messages])
        error.__cause__ = causes[0]
        return error

"""``consumer.run()``: concurrent handlers, in the order of ``order_by``.

    fetch buffer ──> ordered queue ──> workers ──> offset tracker ──> commits

Offsets are stored up to the oldest message that is not done. When ``run`` ends, unfinished
messages are polled again later.
"""

from __future__ import annotations

import inspect
import itertools
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

from iggy_sdk.consumer.delivery import CHECKPOINT_MESSAGES
from iggy_sdk.consumer.tracker import OffsetTracker
from iggy_sdk.message import ReceivedMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from iggy_sdk.consumer.commit_scheduler import CommitScheduler
    from iggy_sdk.consumer.fetch_buffer import FetchBuffer
    from iggy_sdk.consumer.handler_retry import HandlerRetry
    from iggy_sdk.consumer.idle import EndDetector
    from iggy_sdk.consumer.poller import Poller
    from iggy_sdk.hooks import Hooks


# Jobs in order: of jobs with the same order key one runs at a time, in the order of arrival.


J = TypeVar("J")


class OrderedQueue(Generic[J]):
    """Jobs that wait or run, by order key."""

    def __init__(self) -> None:
        # A key is present as long as it has a job that waits or runs.
        self._waiting: dict[Hashable, deque[J]] = {}
        # Keys whose next job may run, in the order in which they became ready.
        self._ready: deque[Hashable] = deque()
        self._jobs_count = 0

    def __len__(self) -> int:
        """Count the jobs that wait or run."""
        return self._jobs_count

    def add(self, order_key: Hashable, job: J) -> None:
        """Add a job behind the others of its key."""
        self._jobs_count += 1
        jobs = self._waiting.get(order_key)
        if jobs is None:
            self._waiting[order_key] = deque((job,))
            self._ready.append(order_key)
        else:
            jobs.append(job)

    @property
    def count(self) -> int:
        """How many keys have jobs that wait or run."""
        return len(self._waiting)

    def take(self) -> tuple[Hashable, J] | None:
        """Take the next job that may run; its key is blocked until ``finish``."""
        if not self._ready:
            return None
        order_key = self._ready.popleft()
        return order_key, self._waiting[order_key].popleft()

    def finish(self, order_key: Hashable) -> None:
        """Let the next job of a key run."""
        self._jobs_count -= 1
        if self._waiting[order_key]:
            self._ready.append(order_key)
        else:
            del self._waiting[order_key]

    def drop_waiting(self) -> None:
        """Forget all jobs that do not run yet."""
        ready = set(self._ready)
        self._ready.clear()
        for order_key, jobs in tuple(self._waiting.items()):
            self._jobs_count -= len(jobs)
            jobs.clear()
            if order_key in ready:
                del self._waiting[order_key]


if TYPE_CHECKING:
    OrderBy: TypeAlias = Literal["partition", "key"] | Callable[[ReceivedMessage[Any]], Hashable]

PREFETCH_PER_WORKER: Final = 2
"""How many messages are queued for each worker, so that none waits for a poll."""


class Job(NamedTuple):
    """A message that waits for a handler or is handled."""

    message: ReceivedMessage[Any]
    tracker: OffsetTracker


def order_key_function(order_by: OrderBy | None) -> Callable[[ReceivedMessage[Any]], Hashable]:
    """Make the function that returns the order key of a message.

    Messages without a key keep the order of their partition.
    """
    if order_by is None:
        return lambda message: object()
    if order_by == "partition":
        return lambda message: message.partition_id
    if order_by == "key":
        return lambda message: (None, message.partition_id) if message.key is None else message.key
    return order_by


class Runner:
    """One call of ``consumer.run()``.

    Args:
        counts_handed_out: whether a message counts as done when its handler begins.
        order_key_of: returns the order key of a message.
        batch_length: how many messages of a partition may wait before it is not polled.
        close_timeout: how long handlers may take to end.
        end: detects the end of the data, or None to go on.
    """

    def __init__(
        self,
        *,
        fetch_buffer: FetchBuffer[Any],
        poller: Poller,
        commits: CommitScheduler,
        handler_retry: HandlerRetry,
        hooks: Hooks,
        counts_handed_out: bool,
        concurrency: int,
        order_key_of: Callable[[ReceivedMessage[Any]], Hashable],
        batch_length: int,
        close_timeout: float,
        end: EndDetector | None,
    ) -> None:
        self._fetch_buffer = fetch_buffer
        self._poller = poller
        self._commits = commits
        self._handler_retry = handler_retry
        self._hooks = hooks
        self._counts_handed_out = counts_handed_out
        self._concurrency = concurrency
        self._order_key_of = order_key_of
        self._batch_length = batch_length
        self._close_timeout = close_timeout
        self._end = end
        self._queue: OrderedQueue[Job] = OrderedQueue()
        self._waiting: Counter[int] = Counter()
        self._used_trackers: set[OffsetTracker] = set()
        # Set when there are jobs for idle workers, and when a job is finished.
        self._jobs = anyio.Event()
        self._finished = anyio.Event()
        self._feeding = anyio.CancelScope()
        self._failure: Exception | None = None

    @property
    def in_progress(self) -> int:
        """How many messages are handled, or wait for a handler."""
        return len(self._queue)

    def stop(self) -> None:
        """Take no further messages; running handlers may finish."""
        self._feeding.cancel()

    async def run(self) -> None:
        """Handle messages until it is stopped, the data ends, or a message cannot be handled.

        Raises:
            Exception: what a handler raised.
            IggyError: polling or storing failed for good.
        """
        try:
            async with anyio.create_task_group() as workers:
                for _ in range(self._concurrency):
                    workers.start_soon(self._work)
                with self._feeding:
                    await self._feed()
                await self._drain()
                workers.cancel_scope.cancel()
        finally:
            await self._commit_and_rewind()
        if self._failure is not None:
            raise self._failure

    # Feeding

    async def _feed(self) -> None:
        try:
            while not self._fetch_buffer.is_stopped:
                if not self._needs_more():
                    await self._wait_for_finished()
                    continue
                self._update_held()
                if not self._fetch_buffer.buffer and not await self._fetch_buffer.refill(
                    end=self._end
                ):
                    return
                self._enqueue_buffered()
        except Exception as error:
            self._fail(error)

    def _needs_more(self) -> bool:
        queue, bound = self._queue, self._concurrency * self._batch_length
        return queue.count < PREFETCH_PER_WORKER * self._concurrency and len(queue) < max(
            bound, PREFETCH_PER_WORKER
        )

    def _update_held(self) -> None:
        """Skip partitions with a whole batch waiting; polls of others may feed idle workers."""
        enough = self._batch_length
        self._poller.held = frozenset(key for key, count in self._waiting.items() if count > enough)

    def _enqueue_buffered(self) -> None:
        """Move the buffer into the queue."""
        buffer, tracker = self._fetch_buffer.buffer, self._fetch_buffer.tracker
        assert tracker is not None
        # order_by is the user's code and may raise; the buffer must be unchanged then.
        order_keys = [self._order_key_of(message) for message in buffer]
        self._used_trackers.add(tracker)
        self._waiting[tracker.partition_id] += len(buffer)
        for message, order_key in zip(buffer, order_keys, strict=True):
            tracker.open(message.offset)
            self._queue.add(order_key, Job(message, tracker))
        buffer.clear()
        self._jobs.set()

    # Workers

    async def _work(self) -> None:
        for number in itertools.count(1):
            if number % CHECKPOINT_MESSAGES == 0:
                # Handlers that never await would starve other tasks.
                await anyio.lowlevel.checkpoint()
            taken = self._queue.take()
            if taken is None:
                await self._wait_for_jobs()
                continue
            order_key, job = taken
            try:
                await self._handle_job(job)
            except Exception as error:
                self._fail(error)
            self._finish(order_key, job)

    async def _handle_job(self, job: Job) -> None:
        message, tracker = job
        if not self._fetch_buffer.owns(tracker):
            # The partition has another owner, which starts after the stored offset.
            return
        if self._hooks:
            self._hooks.on_message(message)
        if self._counts_handed_out:
            await self._acknowledge(job)
        await self._handler_retry.handle(message)
        if not self._counts_handed_out:
            await self._acknowledge(job)

    async def _acknowledge(self, job: Job) -> None:
        job.tracker.acknowledge(job.message.offset)
        drained = len(self._queue) == 1 and self._fetch_buffer.is_drained
        if drained or not self._commits.can_defer(job.tracker):
            await self._commits.flush_if_due(drained=drained)

    def _finish(self, order_key: Hashable, job: Job) -> None:
        # This worker takes the next job itself, so no other has to be woken.
        self._queue.finish(order_key)
        partition_id = job.tracker.partition_id
        self._waiting[partition_id] -= 1
        if partition_id in self._poller.held:
            self._update_held()
            if partition_id not in self._poller.held:
                self._fetch_buffer.notify_change()
        self._finished.set()

    def _fail(self, error: Exception) -> None:
        """Record the first failure, and take no further messages."""
        if self._failure is None:
            self._failure = error
        self._queue.drop_waiting()
        self.stop()

    # Ending

    async def _drain(self) -> None:
        """Wait for running handlers; at the end of the data also for queued messages."""
        over = self._end is not None and self._end.is_over and not self._feeding.cancel_called
        if not over:
            self._queue.drop_waiting()
        with anyio.move_on_after(None if over else self._close_timeout):
            while self._queue:
                await self._wait_for_finished()

    async def _commit_and_rewind(self) -> None:
        """Store what is done, and rewind to what is not."""
        self._poller.held = frozenset()
        try:
            with anyio.move_on_after(self._close_timeout, shield=True):
                await self._commits.flush()
        except Exception as error:
            if self._failure is None:
                self._failure = error
        finally:
            for tracker in self._used_trackers:
                self._fetch_buffer.rewind_to_oldest_open(tracker)

    async def _wait_for_jobs(self) -> None:
        if self._jobs.is_set():
            self._jobs = anyio.Event()
        await self._jobs.wait()

    async def _wait_for_finished(self) -> None:
        if self._finished.is_set():
            self._finished = anyio.Event()
        await self._finished.wait()


THREAD_WAIT_SECONDS: Final = 0.05
"""How long a thread waits for a ``threading.Event`` before it checks for cancellation."""


async def wait_for_event(event: Any) -> None:
    """Wait for an event of asyncio, trio, anyio or ``threading``."""
    if inspect.iscoroutinefunction(event.wait):
        await event.wait()
        return
    # A thread cannot be cancelled, so it never waits for long.
    while not await anyio.to_thread.run_sync(event.wait, THREAD_WAIT_SECONDS):
        pass

"""``consumer.run()``: concurrent handlers, in the order of ``order_by``.

    fetch buffer ──> ordered queue ──> workers ──> offset tracker ──> commits

Offsets are stored up to the oldest message that is not done. When ``run`` ends, unfinished
messages are polled again later.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import anyio
import anyio.lowlevel

from iggy_sdk.consumer.handout import CHECKPOINT_MESSAGES
from iggy_sdk.consumer.lanes import Lanes
from iggy_sdk.consumer.ledger import Ledger
from iggy_sdk.message import ReceivedMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from iggy_sdk.consumer.commits import Commits
    from iggy_sdk.consumer.handling import Handling
    from iggy_sdk.consumer.idle import EndWatch
    from iggy_sdk.consumer.intake import Intake
    from iggy_sdk.consumer.poller import Poller
    from iggy_sdk.hooks import Hooks

    OrderBy: TypeAlias = Literal["partition", "key"] | Callable[[ReceivedMessage[Any]], Hashable]

__all__ = ["Job", "Runner", "lane_chooser"]

AHEAD: Final = 2
"""How many messages are queued for each worker, so that none waits for a poll."""


class Job(NamedTuple):
    """A message that waits for a handler or is handled."""

    message: ReceivedMessage[Any]
    ledger: Ledger


def lane_chooser(order_by: OrderBy | None) -> Callable[[ReceivedMessage[Any]], Hashable]:
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
        lane_of: returns the order key of a message.
        batch_length: how many messages of a partition may wait before it is not polled.
        close_timeout: how long handlers may take to end.
        end: detects the end of the data, or None to go on.
    """

    def __init__(
        self,
        *,
        intake: Intake[Any],
        poller: Poller,
        commits: Commits,
        handling: Handling,
        hooks: Hooks,
        counts_handed_out: bool,
        concurrency: int,
        lane_of: Callable[[ReceivedMessage[Any]], Hashable],
        batch_length: int,
        close_timeout: float,
        end: EndWatch | None,
    ) -> None:
        self._intake = intake
        self._poller = poller
        self._commits = commits
        self._handling = handling
        self._hooks = hooks
        self._counts_handed_out = counts_handed_out
        self._concurrency = concurrency
        self._lane_of = lane_of
        self._batch_length = batch_length
        self._close_timeout = close_timeout
        self._end = end
        self._lanes: Lanes[Job] = Lanes()
        self._waiting: Counter[int] = Counter()
        self._used: set[Ledger] = set()
        # Set when there are jobs for idle workers, and when a job is finished.
        self._jobs = anyio.Event()
        self._finished = anyio.Event()
        self._feeding = anyio.CancelScope()
        self._failure: Exception | None = None

    @property
    def in_progress(self) -> int:
        """How many messages are handled, or wait for a handler."""
        return len(self._lanes)

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
            async with anyio.create_task_group() as hands:
                for _ in range(self._concurrency):
                    hands.start_soon(self._work)
                with self._feeding:
                    await self._feed()
                await self._wind_down()
                hands.cancel_scope.cancel()
        finally:
            await self._put_away()
        if self._failure is not None:
            raise self._failure

    # Feeding

    async def _feed(self) -> None:
        try:
            while not self._intake.is_stopped:
                if not self._needs_more():
                    await self._wait_for_finished()
                    continue
                self._hold_back()
                if not self._intake.buffer and not await self._intake.refill(end=self._end):
                    return
                self._hand_on()
        except Exception as error:
            self._fail(error)

    def _needs_more(self) -> bool:
        queue, bound = self._lanes, self._concurrency * self._batch_length
        return queue.count < AHEAD * self._concurrency and len(queue) < max(bound, AHEAD)

    def _hold_back(self) -> None:
        """Skip partitions with a whole batch waiting; polls of others may feed idle workers."""
        enough = self._batch_length
        self._poller.held = frozenset(key for key, count in self._waiting.items() if count > enough)

    def _hand_on(self) -> None:
        """Move the buffer into the queue."""
        buffer, ledger = self._intake.buffer, self._intake.ledger
        assert ledger is not None
        # order_by is the user's code and may raise; the buffer must be unchanged then.
        order_keys = [self._lane_of(message) for message in buffer]
        self._used.add(ledger)
        self._waiting[ledger.partition_id] += len(buffer)
        for message, lane in zip(buffer, order_keys, strict=True):
            ledger.open(message.offset)
            self._lanes.add(lane, Job(message, ledger))
        buffer.clear()
        self._jobs.set()

    # Workers

    async def _work(self) -> None:
        for number in itertools.count(1):
            if number % CHECKPOINT_MESSAGES == 0:
                # Handlers that never await would starve other tasks.
                await anyio.lowlevel.checkpoint()
            taken = self._lanes.take()
            if taken is None:
                await self._wait_for_jobs()
                continue
            lane, job = taken
            try:
                await self._do(job)
            except Exception as error:
                self._fail(error)
            self._finish(lane, job)

    async def _do(self, job: Job) -> None:
        message, ledger = job
        if not self._intake.owns(ledger):
            # The partition has another owner, which starts after the stored offset.
            return
        if self._hooks:
            self._hooks.on_message(message)
        if self._counts_handed_out:
            await self._acknowledge(job)
        await self._handling.handle(message)
        if not self._counts_handed_out:
            await self._acknowledge(job)

    async def _acknowledge(self, job: Job) -> None:
        job.ledger.acknowledge(job.message.offset)
        drained = len(self._lanes) == 1 and not self._intake.buffer
        if drained or not self._commits.may_wait(job.ledger):
            await self._commits.flush_if_time(drained=drained)

    def _finish(self, lane: Hashable, job: Job) -> None:
        # This worker takes the next job itself, so no other has to be woken.
        self._lanes.finish(lane)
        partition_id = job.ledger.partition_id
        self._waiting[partition_id] -= 1
        if partition_id in self._poller.held:
            self._hold_back()
            if partition_id not in self._poller.held:
                self._intake.announce()
        self._finished.set()

    def _fail(self, error: Exception) -> None:
        """Record the first failure, and take no further messages."""
        if self._failure is None:
            self._failure = error
        self._lanes.drop_waiting()
        self.stop()

    # Ending

    async def _wind_down(self) -> None:
        """Wait for running handlers; at the end of the data also for queued messages."""
        over = self._end is not None and self._end.is_over and not self._feeding.cancel_called
        if not over:
            self._lanes.drop_waiting()
        with anyio.move_on_after(None if over else self._close_timeout):
            while self._lanes:
                await self._wait_for_finished()

    async def _put_away(self) -> None:
        """Store what is done, and rewind to what is not."""
        self._poller.held = frozenset()
        try:
            with anyio.move_on_after(self._close_timeout, shield=True):
                await self._commits.flush()
        except Exception as error:
            if self._failure is None:
                self._failure = error
        finally:
            for ledger in self._used:
                self._intake.abandon(ledger)

    async def _wait_for_jobs(self) -> None:
        if self._jobs.is_set():
            self._jobs = anyio.Event()
        await self._jobs.wait()

    async def _wait_for_finished(self) -> None:
        if self._finished.is_set():
            self._finished = anyio.Event()
        await self._finished.wait()

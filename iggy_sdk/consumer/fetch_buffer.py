"""The buffer of fetched messages: filled by polls, rewound on a seek, a pause or a lost partition.

The buffer holds the new messages of one poll, and is filled again when it is empty and the next
message is requested. While there is nothing, a server from 0.10 on is asked to answer when there
is; others are polled now and then. There is no await between a reply and the buffer, so a message
is either in the buffer or will be polled again.
"""

from __future__ import annotations

import math
from collections import deque
from itertools import dropwhile
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import anyio

from iggy_protocol import PollingStrategy
from iggy_sdk.consumer.assignment import NO_PARTITION
from iggy_sdk.consumer.poller import FetchedMessages
from iggy_sdk.consumer.server_wait import WAIT_SECONDS_MAX, WAIT_SECONDS_MIN
from iggy_sdk.errors import IggyError, PartitionNotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from iggy_sdk.consumer.cursor import PartitionCursors
    from iggy_sdk.consumer.membership import RetryPolicy
    from iggy_sdk.consumer.options import ConsumerOptions
    from iggy_sdk.consumer.poller import Poller
    from iggy_sdk.consumer.server_wait import ServerWait
    from iggy_sdk.consumer.tracker import OffsetTracker, OffsetTrackers
    from iggy_sdk.message import ReceivedBatch, ReceivedMessage


T = TypeVar("T")


def _do_nothing() -> None:
    """Do nothing before the buffer is rewound."""


class FetchBuffer(Generic[T]):
    """The fetched messages of a consumer."""

    def __init__(
        self,
        *,
        poller: Poller,
        cursors: PartitionCursors,
        trackers: OffsetTrackers,
        options: ConsumerOptions,
        retry_policy: RetryPolicy,
        server_wait: ServerWait,
    ) -> None:
        self.buffer: deque[ReceivedMessage[T]] = deque()
        self.tracker: OffsetTracker | None = None
        """The tracker of the partition whose messages are in the buffer or were taken last."""
        self.before_rewind: Callable[[], None] = _do_nothing
        self.messages_count = 0
        self.empty_polls_count = 0
        self.is_stopped = False
        self.is_paused = False
        self.keeps_whole = False
        """Whether what is fetched next stays as it is, in ``whole``, and not in the buffer."""
        self.whole: FetchedMessages | None = None
        self._poller = poller
        self._cursors = cursors
        self._trackers = trackers
        self._by_server = options.commit.by_server
        self._interval = options.poll_interval
        self._retry_policy = retry_policy
        self._rounds = PartitionRound()
        self._idle = IdleBackoff()
        self._changed = anyio.Event()
        self._polled_at = -math.inf
        self._server_wait = server_wait
        # Whether the last round of polls was empty, and the request that waits on the server since.
        self._is_idle = False
        self._waiting: anyio.CancelScope | None = None

    async def refill(self, *, end: EndDetector | None = None, deadline: float = math.inf) -> bool:
        """Poll until there are messages in the buffer.

        Args:
            end: sees every poll; no further poll follows once it is over.
            deadline: when to stop waiting for messages, on the clock of the event loop.

        Returns:
            Whether there are any; if not, it was stopped, it is over, or it took too long.

        Raises:
            IggyError: polling failed and will go on failing. It may be called again.
        """
        assert not self.buffer
        while not self.is_stopped and not (end is not None and end.is_over):
            fetched = None
            if not self.is_paused:
                await self._keep_interval()
                # Whoever reads to the end wants to know that there is nothing.
                fetched = await self._fetch(deadline if end is None else None)
            if fetched is None:
                await self._wait(deadline - anyio.current_time())
            else:
                if end is not None:
                    # What is held back for busy handlers has to be read as well.
                    expected = self._poller.round_of(self._poller.paused)
                    end.observe(fetched.partition_id, fetched.at_end, expected=expected)
                if self._fill(fetched):
                    return True
                await self._wait_if_idle(fetched, deadline, on_server=end is None)
            if anyio.current_time() >= deadline:
                return False
        return False

    def rewind_buffer(self, partition_id: int | None = None) -> None:
        """Empty the buffer, to be polled again; with a partition, only its messages."""
        if not self.buffer or partition_id not in (None, self.buffer[0].partition_id):
            return
        self.before_rewind()
        first = self.buffer[0]
        self.buffer.clear()
        self._rewind(first.partition_id, first.offset)
        tracker = self._trackers.find(first.partition_id)
        if tracker is not None:
            tracker.forget_undelivered()

    def rewind_to(self, partition_id: int, offset: int) -> None:
        """Go back to an offset that was taken and not delivered; it will be polled again."""
        self.rewind_buffer(partition_id)
        self._rewind(partition_id, offset)
        tracker = self._trackers.find(partition_id)
        if tracker is not None:
            tracker.forget_undelivered()

    def rewind_to_oldest_open(self, tracker: OffsetTracker) -> None:
        """Go back to the oldest message that handlers have not finished, if there is one."""
        offset = tracker.oldest_open
        if offset is not None and self.owns(tracker):
            self.rewind_buffer(tracker.partition_id)
            self._rewind(tracker.partition_id, offset)
            self._trackers.forget(tracker.partition_id)

    def owns(self, tracker: OffsetTracker) -> bool:
        """Tell whether a tracker is current; not so once its partition was lost or moved."""
        return self._trackers.find(tracker.partition_id) is tracker

    def reset_to_stored(self, partition_id: int) -> None:
        """Forget a partition with another owner; if it returns, the stored offset counts."""
        if self.buffer and self.buffer[0].partition_id == partition_id:
            self.before_rewind()
            self.buffer.clear()
        self._cursors.reset_to_stored(partition_id)
        self._trackers.forget(partition_id)
        self._stop_waiting()

    def _rewind(self, partition_id: int, offset: int) -> None:
        self._stop_waiting()
        if self._by_server:
            # The server has stored a later offset already, so the poll must name the offset.
            self._cursors.seek(PollingStrategy.offset(offset), partition_id)
        else:
            self._cursors.rewind(partition_id, offset)

    def notify_change(self) -> None:
        """Wake the waiting task after a stop, pause, resume or seek."""
        self._idle.reset()
        self._rounds.clear()
        self._stop_waiting()
        self._changed.set()

    def _stop_waiting(self) -> None:
        """Poll from where the partitions go on now; a request that waits on the server is old."""
        self._is_idle = False
        if self._waiting is not None:
            self._waiting.cancel()

    async def _fetch(self, wait_until: float | None) -> FetchedMessages | None:
        """Poll, or wait on the server; until no later than a time, or not at all."""
        while True:
            try:
                fetched = await self._poll_once(wait_until)
            except IggyError as error:
                self._is_idle = False
                if self.is_stopped:
                    return None
                if isinstance(error, PartitionNotFound) and self._poller.reads_all:
                    # The partition was deleted; the list is refreshed within a second.
                    error.retriable = True
                await self._retry_policy.retry_or_raise(error)
            else:
                self._retry_policy.reset()
                return fetched

    async def _poll_once(self, wait_until: float | None) -> FetchedMessages | None:
        if await self._poller.upkeep():
            self._is_idle = False
        if self._is_idle and wait_until is not None and self._server_wait.is_possible:
            seconds = min(wait_until, self._poller.upkeep_at) - anyio.current_time()
            if seconds >= WAIT_SECONDS_MIN:
                return await self._wait_on_server(seconds)
            self._is_idle = False
        # The server has committed the reply, so cancelling here would skip messages.
        with anyio.CancelScope(shield=self._by_server):
            return await self._poller.poll()
        raise AssertionError("this scope is never cancelled")

    async def _wait_on_server(self, seconds: float) -> FetchedMessages:
        """Wait for messages so long, or until a stop, pause, resume or seek."""
        begun_at = anyio.current_time()
        fetched = FetchedMessages(NO_PARTITION, at_end=False)
        with anyio.CancelScope() as scope:
            self._waiting = scope
            try:
                fetched = await self._server_wait.wait(seconds)
            finally:
                self._waiting = None
        waited = anyio.current_time() - begun_at
        if fetched.batch is not None or not fetched.at_end:
            self._is_idle = False
        elif waited < min(seconds, WAIT_SECONDS_MAX) / 2:
            # The server answers at once that there is nothing: poll, with pauses in between.
            self._is_idle = False
        return fetched

    def _fill(self, fetched: FetchedMessages) -> bool:
        if fetched.batch is None:
            self.empty_polls_count += 1
            return False
        if self.keeps_whole:
            return self._keep(fetched, fetched.batch)
        if fetched.skip_before:
            first_new = fetched.skip_before
            self.buffer.extend(dropwhile(lambda old: old.offset < first_new, fetched.batch))
        else:
            self.buffer.extend(fetched.batch)
        self.tracker = self._trackers.get(fetched.partition_id)
        self.messages_count += len(self.buffer)
        self._idle.reset()
        self._rounds.clear()
        return bool(self.buffer)

    def _keep(self, fetched: FetchedMessages, batch: ReceivedBatch[Any]) -> bool:
        """Keep what was fetched as it is, if any of it is new."""
        self.tracker = self._trackers.get(fetched.partition_id)
        self._idle.reset()
        self._rounds.clear()
        last = batch.last_offset
        if last is None or last < fetched.skip_before:
            return False
        self.whole = fetched
        self.messages_count += len(batch)
        return True

    async def _wait_if_idle(
        self, fetched: FetchedMessages, deadline: float, *, on_server: bool
    ) -> None:
        """Back off when a whole round of polls was empty; later waits may be on the server."""
        expected = self._poller.round_of(self._poller.excluded)
        if not self._rounds.observe(fetched.partition_id, True, expected=expected):
            return
        self._rounds.clear()
        if on_server and self._server_wait.is_possible:
            if self._is_idle:
                return
            self._is_idle = True
        await self._wait(min(self._idle.take(), deadline - anyio.current_time()))

    async def _keep_interval(self) -> None:
        if self._interval is not None:
            assert isinstance(self._interval, float)
            await self._wait(self._polled_at + self._interval - anyio.current_time())
            self._polled_at = anyio.current_time()

    async def _wait(self, seconds: float) -> None:
        """Wait for a change, but not longer than this."""
        if seconds > 0:
            with anyio.move_on_after(seconds):
                await self._changed.wait()
        if self._changed.is_set():
            self._changed = anyio.Event()


# Detecting that there is nothing to read, and the backoff of polls meanwhile.
#
# A poll sees one partition, so an empty reply says nothing about the others; only a whole round
# over all partitions does. No I/O here: the fetch buffer sleeps.

IDLE_SECONDS_MIN: Final = 0.001
"""The first wait: about what a request costs on a busy machine."""

IDLE_SECONDS_MAX: Final = 0.1
"""The longest wait; ten empty polls a second do not hurt a server."""


class PartitionRound:
    """Detects a round in which every partition met a condition.

    Where the partitions are not known, they are polled in turn: the round is complete when one
    comes a second time and none in between failed the condition.
    """

    __slots__ = ("_streak",)

    def __init__(self) -> None:
        self._streak: set[int] = set()

    def observe(
        self, partition_id: int, agrees: bool, *, expected: frozenset[int] | None = None
    ) -> bool:
        """Record a poll of a partition, and tell whether the round is complete.

        Args:
            partition_id: the partition that was polled.
            agrees: whether it met the condition.
            expected: the partitions that make a round, if they are known.
        """
        if not agrees:
            self._streak.clear()
            return False
        is_second = partition_id in self._streak
        self._streak.add(partition_id)
        if expected is None:
            return is_second
        return len(self._streak) >= len(expected) and expected <= self._streak

    def clear(self) -> None:
        """Begin a new round."""
        self._streak.clear()


class EndDetector:
    """Detects that every partition was read to its end at some moment.

    A producer that keeps sending does not delay it: a partition counts once it was caught up.
    """

    __slots__ = ("_reached", "_rounds", "is_over")

    def __init__(self) -> None:
        self.is_over = False
        self._reached: set[int] = set()
        self._rounds = PartitionRound()

    def observe(
        self, partition_id: int, at_end: bool, *, expected: frozenset[int] | None = None
    ) -> None:
        """Record a poll of a partition, and whether it reached the end."""
        if at_end:
            self._reached.add(partition_id)
        agrees = partition_id in self._reached
        self.is_over = self._rounds.observe(partition_id, agrees, expected=expected)


class IdleBackoff:
    """The wait after a round of empty polls."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = IDLE_SECONDS_MIN

    def reset(self) -> None:
        """Start with short waits again, because there were messages."""
        self._next = IDLE_SECONDS_MIN

    def take(self) -> float:
        """Return the next wait, which is twice the one before until it is long enough."""
        delay = self._next
        self._next = min(delay * 2, IDLE_SECONDS_MAX)
        return delay

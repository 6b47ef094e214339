"""The buffer of fetched messages: filled by polls, rewound on a seek, a pause or a lost partition.

The buffer holds the new messages of one poll, and is filled again when it is empty and the next
message is requested. While there is nothing, a server from 0.10 on is asked to answer when there
is; others are polled now and then. There is no await between a reply and the buffer, so a message
is either in the buffer or will be polled again.

A consumer with tasks of its own polls ahead: when the buffer was filled, the next polls are made
while the application works, until enough is held or there is nothing more. Their replies wait in
order until the buffer is empty. One poll is made at a time, whoever makes it.
"""

from __future__ import annotations

import math
from collections import deque
from itertools import dropwhile
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import anyio
import anyio.lowlevel

from iggy_protocol import PollingStrategy
from iggy_sdk.consumer.assignment import NO_PARTITION
from iggy_sdk.consumer.idle import IdleBackoff, PartitionRound
from iggy_sdk.consumer.poller import FetchedMessages
from iggy_sdk.consumer.prefetch import PrefetchedPolls
from iggy_sdk.consumer.server_wait import WAIT_SECONDS_MAX, WAIT_SECONDS_MIN
from iggy_sdk.errors import IggyError, PartitionNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable

    from iggy_sdk.consumer.cursor import PartitionCursors
    from iggy_sdk.consumer.idle import EndDetector
    from iggy_sdk.consumer.membership import RetryPolicy
    from iggy_sdk.consumer.options import ConsumerOptions
    from iggy_sdk.consumer.poller import Poller
    from iggy_sdk.consumer.server_wait import ServerWait
    from iggy_sdk.consumer.tracker import OffsetTracker, OffsetTrackers
    from iggy_sdk.message import ReceivedBatch, ReceivedMessage


T = TypeVar("T")

PREFETCH_TURNS: Final = 2
"""How many turns of the event loop a task needs to wake up and send a request."""


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
        self.messages_count: int = 0
        self.empty_polls_count: int = 0
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
        self._prefetched = PrefetchedPolls(options)
        self._prefetches = False
        self._prefetch_wanted = anyio.Event()
        self._prefetch_rounds = PartitionRound()
        self._prefetching = anyio.CancelScope()
        # What a poll ahead has raised, for whoever reads next.
        self._prefetch_error: Exception | None = None
        self._polling = anyio.Lock(fast_acquire=True)

    @property
    def prefetched_count(self) -> int:
        """How many messages were fetched ahead."""
        return self._prefetched.messages_count

    @property
    def is_drained(self) -> bool:
        """Whether there is nothing to deliver without another poll."""
        return not self.buffer and not self._prefetched.messages_count

    def firsts(self) -> dict[int, int]:
        """Tell the offset of each partition's first message that was fetched."""
        firsts = self._prefetched.firsts()
        if self.buffer:
            firsts[self.buffer[0].partition_id] = self.buffer[0].offset
        return firsts

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
                fetched = await self._next_fetched(end, deadline)
            if fetched is None:
                await self._wait(deadline - anyio.current_time())
            else:
                if end is not None:
                    # What is held back for busy handlers has to be read as well.
                    expected = self._poller.round_of(self._poller.paused)
                    end.observe(fetched.partition_id, fetched.at_end, expected=expected)
                if self._fill(fetched):
                    await self._let_prefetch_begin()
                    return True
                await self._wait_if_idle(fetched, deadline, on_server=end is None)
            if anyio.current_time() >= deadline:
                return False
        return False

    def rewind_buffer(self, partition_id: int | None = None) -> None:
        """Drop what was fetched, to be polled again; with a partition, only its messages."""
        self._drop_prefetched()
        # A reply that is under way is from before this.
        self._cursors.disregard_reply(partition_id)
        if not self.buffer or partition_id not in (None, self.buffer[0].partition_id):
            return
        self.before_rewind()
        first = self.buffer[0]
        self.buffer.clear()
        self._rewind(first.partition_id, first.offset)
        tracker = self._trackers.find(first.partition_id)
        if tracker is not None:
            tracker.forget_undelivered()

    def _drop_prefetched(self) -> None:
        """Go back to what was fetched ahead; it will be polled again."""
        for partition_id, offset in self._prefetched.drop().items():
            self._rewind(partition_id, offset)
            tracker = self._trackers.find(partition_id)
            if tracker is not None:
                is_buffered = self.buffer and self.buffer[0].partition_id == partition_id
                tracker.forget_undelivered(self.buffer[-1].offset if is_buffered else None)

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
        self._drop_prefetched()
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

    # Polling ahead

    @property
    def can_prefetch(self) -> bool:
        """Whether polls may be made ahead."""
        # The server commits what it hands out; an interval would be kept twice.
        is_free = not self._by_server and self._interval is None
        return self._prefetched.is_possible and is_free

    async def run_prefetch(self) -> None:
        """Poll ahead while there is room and something to fetch, until this is cancelled."""
        self._prefetches = True
        with self._prefetching:
            while True:
                await self._prefetch_wanted.wait()
                self._prefetch_wanted = anyio.Event()
                async with self._polling:
                    while self._may_prefetch() and await self._prefetch():
                        if self._polling.statistics().tasks_waiting:
                            # The reader has used up everything, and polls by itself.
                            break
        self._prefetches = False

    def end_prefetch(self) -> None:
        """Poll ahead no more; a poll of a member that has left would join the group again."""
        self._prefetching.cancel()

    async def _let_prefetch_begin(self) -> None:
        """Let the next poll be sent before the application works on what has come."""
        if self._prefetch_wanted.is_set():
            for _ in range(PREFETCH_TURNS):
                await anyio.lowlevel.checkpoint()

    def _may_prefetch(self) -> bool:
        is_open = not self.is_stopped and not self.is_paused and self._prefetch_error is None
        return is_open and self._prefetched.room() > 0

    async def _prefetch(self) -> bool:
        """Make one poll ahead, and tell whether another one may bring something."""
        try:
            fetched = await self._poll_once(None, self._prefetched.room())
        except Exception as error:
            self._prefetch_error = error
            return False
        if fetched is None:
            return False
        self._prefetched.add(fetched)
        return not self._is_caught_up(fetched)

    def _is_caught_up(self, fetched: FetchedMessages) -> bool:
        """Tell whether the last poll of every partition reached its end, or brought nothing."""
        expected = self._poller.round_of(self._poller.excluded)
        is_quiet = fetched.at_end or fetched.batch is None
        return self._prefetch_rounds.observe(fetched.partition_id, is_quiet, expected=expected)

    async def _next_fetched(
        self, end: EndDetector | None, deadline: float
    ) -> FetchedMessages | None:
        """Take what was polled ahead, or poll."""
        # Where the partitions are not known, only their order tells which make a round.
        needs_order = end is not None and self._poller.rotation is None
        held = frozenset[int]() if needs_order else self._poller.held
        while (fetched := self._prefetched.take(held)) is not None:
            # That there was nothing some time ago says nothing about now.
            if fetched.batch is not None or end is not None:
                return fetched
        async with self._polling:
            fetched = self._prefetched.take(held)
            if fetched is not None:
                return fetched
            # Whoever reads to the end wants to know that there is nothing.
            return await self._fetch(deadline if end is None else None)

    async def _fetch(self, wait_until: float | None) -> FetchedMessages | None:
        """Poll, or wait on the server; until no later than a time, or not at all."""
        while True:
            try:
                fetched = await self._poll_once(wait_until)
            except IggyError as error:
                self._is_idle = False
                if self.is_stopped:
                    return None
                if isinstance(error, PartitionNotFoundError) and self._poller.reads_all:
                    # The partition was deleted; the list is refreshed within a second.
                    error.retriable = True
                await self._retry_policy.retry_or_raise(error)
            else:
                self._retry_policy.reset()
                return fetched

    async def _poll_once(
        self, wait_until: float | None, count: int | None = None
    ) -> FetchedMessages | None:
        failed, self._prefetch_error = self._prefetch_error, None
        if failed is not None:
            raise failed
        if await self._poller.upkeep():
            self._is_idle = False
        if self._is_idle and wait_until is not None and self._server_wait.is_possible:
            seconds = min(wait_until, self._poller.upkeep_at) - anyio.current_time()
            if seconds >= WAIT_SECONDS_MIN:
                return await self._wait_on_server(seconds)
            self._is_idle = False
        # The server has committed the reply, so cancelling here would skip messages.
        with anyio.CancelScope(shield=self._by_server):
            return await self._poller.poll(count)
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
        self._prefetched.note_size(fetched)
        if self._prefetches and (self._prefetched or not self._is_caught_up(fetched)):
            self._prefetch_wanted.set()
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

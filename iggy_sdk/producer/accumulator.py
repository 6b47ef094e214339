"""Batching without I/O: messages go in one by one, batches come out when they are ready to send.

    accumulator.add("here", b"payload", size_bytes=87, now=12.5)
    accumulator.tick(13.5)                 # the linger time of the oldest message is over
    batch = accumulator.take()             # send it, and nothing else to "here" meanwhile
    accumulator.done(batch, now=13.6)      # acknowledged; the next one for "here" may be sent

Every destination has its own queue, which is ready when it holds a full batch (by count or by
bytes), when the linger time of its oldest message is over, or after a flush. A destination has one
batch in flight at a time: that keeps its order through any number of retries, and lets the next
batch grow meanwhile. Sizes and times are arguments.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from enum import Enum
from heapq import heapify, heappop, heappush
from itertools import accumulate
from sys import maxsize
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio

from iggy_protocol import StatusCode
from iggy_sdk.durations import spell_seconds
from iggy_sdk.errors import BufferFullError, IggyError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from iggy_sdk.producer.options import Backpressure


D = TypeVar("D", bound="Hashable")
T = TypeVar("T")

STALE_TIMERS_MAX = 64
"""How many obsolete timers may stay in the heap before they are removed."""


class ProducerBatch(Generic[D, T]):
    """Messages of one request.

    Attributes:
        destination: where they go.
        messages: what goes on the wire, in the order of adding.
        originals: what the caller handed over, one for each message.
        size_bytes: the sizes of all messages.
        oldest_at: when the first one was added.
        outcome: the object that the owner has made for the batch.
    """

    __slots__ = ("destination", "messages", "oldest_at", "originals", "outcome", "size_bytes")

    def __init__(self, destination: D, outcome: T, oldest_at: float) -> None:
        self.destination: D = destination
        self.messages: list[Any] = []
        self.originals: list[Any] = []
        self.size_bytes: int = 0
        self.oldest_at: float = oldest_at
        self.outcome: T = outcome

    def __len__(self) -> int:
        return len(self.messages)


class _QueueState(Enum):
    """The state of a destination."""

    LINGERING = 1
    READY = 2
    IN_FLIGHT = 3


class _DestinationQueue(Generic[D, T]):
    """The messages of one destination: full batches in order, then the one that still grows."""

    __slots__ = ("destination", "flush_requested", "full", "growing", "state", "timer")

    def __init__(self, destination: D) -> None:
        self.destination = destination
        self.full: deque[ProducerBatch[D, T]] = deque()
        self.growing: ProducerBatch[D, T] | None = None
        self.flush_requested = False
        self.state = _QueueState.LINGERING
        self.timer = 0


class Accumulator(Generic[D, T]):
    """Collects messages into batches, by destination.

    Args:
        batch_length: messages that make a batch full; None for no such bound.
        batch_size: bytes that make a batch full; None for no such bound.
        linger: how long the oldest message of a batch waits for further ones, in seconds.
        bytes_max: what one request can carry; a batch exceeds it only if a single message does.
        make_outcome: called once for every batch.
    """

    def __init__(
        self,
        *,
        batch_length: int | None,
        batch_size: int | None,
        linger: float,
        bytes_max: int,
        make_outcome: Callable[[], T],
    ) -> None:
        assert batch_length is None or batch_length >= 1
        assert batch_size is None or batch_size >= 1
        assert linger >= 0
        self._length = maxsize if batch_length is None else batch_length
        self._size = maxsize if batch_size is None else batch_size
        self._linger = linger
        self._bytes_max = bytes_max
        self._open_batch_bytes_max = min(self._size, bytes_max)
        self._make_outcome = make_outcome
        self._queues: dict[D, _DestinationQueue[D, T]] = {}
        self._ready: deque[_DestinationQueue[D, T]] = deque()
        # (deadline, serial, destination queue): valid while the queue lingers with this serial.
        self._timers: list[tuple[float, int, _DestinationQueue[D, T]]] = []
        self._serial = 0

    @property
    def ready_count(self) -> int:
        """How many destinations have a batch that is ready."""
        return len(self._ready)

    @property
    def is_empty(self) -> bool:
        """Whether no message waits and no batch is in flight."""
        return not self._queues

    @property
    def deadline(self) -> float | None:
        """When ``tick`` is due next; None without a linger timer."""
        timers = self._timers
        while timers and not self._is_valid(timers[0]):
            heappop(timers)
        return timers[0][0] if timers else None

    def add(
        self, destination: D, message: Any, *, original: Any, size_bytes: int, now: float
    ) -> ProducerBatch[D, T]:
        """Append a message to its destination.

        Args:
            destination: where it goes.
            message: what goes on the wire.
            original: what the caller handed over.
            size_bytes: what it occupies of a request.
            now: the time.

        Returns:
            The batch that holds it.
        """
        queue = self._queues.get(destination)
        if queue is None:
            queue = self._queues[destination] = _DestinationQueue(destination)
        batch = queue.growing
        if batch is None or batch.size_bytes + size_bytes > self._bytes_max:
            batch = self._start_batch(queue, now)
        batch.messages.append(message)
        batch.originals.append(original)
        batch.size_bytes += size_bytes
        if len(batch.messages) >= self._length or batch.size_bytes >= self._size:
            self._close_batch(queue, batch)
        return batch

    def append(
        self, destination: D, message: Any, *, original: Any, size_bytes: int
    ) -> ProducerBatch[D, T] | None:
        """Append a message to the open batch, if that changes nothing else.

        Returns:
            The batch; None if there is no open one or the message would fill it: then ``add`` has
            to be called. The caller need not check for ready batches or timers after a batch.
        """
        queue = self._queues.get(destination)
        batch = None if queue is None else queue.growing
        if (
            batch is None
            or len(batch.messages) + 1 >= self._length
            or batch.size_bytes + size_bytes >= self._open_batch_bytes_max
        ):
            return None
        batch.messages.append(message)
        batch.originals.append(original)
        batch.size_bytes += size_bytes
        return batch

    def extend(
        self,
        destination: D,
        messages: Sequence[Any],
        *,
        originals: Sequence[Any],
        sizes: Sequence[int],
        now: float,
    ) -> list[tuple[ProducerBatch[D, T], int, int]]:
        """Append many messages to one destination, as ``add`` would, at less cost for each.

        Returns:
            The batches that hold them, in order, and the range of their indexes in each.
        """
        used: list[tuple[ProducerBatch[D, T], int, int]] = []
        ends = [0, *accumulate(sizes)]
        at = 0
        while at < len(messages):
            batch = self.add(
                destination, messages[at], original=originals[at], size_bytes=sizes[at], now=now
            )
            start = len(batch.messages) - 1
            at += 1
            # Messages that do not fill the batch are appended with one slice.
            free_bytes = self._open_batch_bytes_max - batch.size_bytes
            by_count = at + self._length - len(batch.messages) - 1
            end = min(by_count, bisect_left(ends, ends[at] + free_bytes) - 1, len(messages))
            if end > at and batch is self._queues[destination].growing:
                batch.messages += messages[at:end]
                batch.originals += originals[at:end]
                batch.size_bytes += ends[end] - ends[at]
                at = end
            if used and used[-1][0] is batch:
                start = used.pop()[1]
            used.append((batch, start, len(batch.messages)))
        return used

    def add_batch(
        self, destination: D, messages: Any, *, size_bytes: int, now: float
    ) -> ProducerBatch[D, T]:
        """Add messages that are a whole batch already, behind those of their destination.

        Returns:
            The batch, to which nothing is added.
        """
        queue = self._queues.get(destination)
        if queue is None:
            queue = self._queues[destination] = _DestinationQueue(destination)
        batch = self._start_batch(queue, now)
        batch.messages = batch.originals = messages
        batch.size_bytes = size_bytes
        self._close_batch(queue, batch)
        return batch

    def tick(self, now: float) -> None:
        """Make destinations ready whose linger time is over."""
        while (deadline := self.deadline) is not None and deadline <= now:
            self._make_ready(heappop(self._timers)[2])

    def flush(self) -> None:
        """Make everything ready without lingering."""
        for queue in self._queues.values():
            if queue.growing is not None:
                queue.flush_requested = True
                if queue.state is _QueueState.LINGERING:
                    self._make_ready(queue)

    def take(self) -> ProducerBatch[D, T] | None:
        """Return the next batch of the destination that has been ready for longest, or None.

        No other batch of this destination is returned until ``done``.
        """
        if not self._ready:
            return None
        queue = self._ready.popleft()
        queue.state = _QueueState.IN_FLIGHT
        if queue.full:
            return queue.full.popleft()
        batch, queue.growing, queue.flush_requested = queue.growing, None, False
        assert batch is not None, "a destination without messages was ready"
        return batch

    def done(self, batch: ProducerBatch[D, T], *, now: float) -> None:
        """Allow the next batch of a destination, whose batch was acknowledged or dropped."""
        queue = self._queues[batch.destination]
        assert queue.state is _QueueState.IN_FLIGHT, "no batch of this destination is in flight"
        if queue.full or self._is_due(queue, now):
            self._make_ready(queue)
        elif queue.growing is not None:
            self._start_linger_timer(queue, queue.growing.oldest_at + self._linger)
        else:
            del self._queues[batch.destination]

    def clear(self) -> list[ProducerBatch[D, T]]:
        """Drop and return all batches that wait; those in flight stay so."""
        dropped: list[ProducerBatch[D, T]] = []
        for queue in list(self._queues.values()):
            dropped += queue.full
            if queue.growing is not None:
                dropped.append(queue.growing)
            queue.full.clear()
            queue.growing, queue.flush_requested = None, False
            if queue.state is not _QueueState.IN_FLIGHT:
                del self._queues[queue.destination]
        self._ready.clear()
        self._timers.clear()
        return dropped

    def waiting(self) -> Iterator[ProducerBatch[D, T]]:
        """Iterate over all batches that were not taken yet."""
        for queue in self._queues.values():
            yield from queue.full
            if queue.growing is not None:
                yield queue.growing

    def _start_batch(self, queue: _DestinationQueue[D, T], now: float) -> ProducerBatch[D, T]:
        """Start a new batch of a destination."""
        if queue.growing is not None:
            self._close_batch(queue, queue.growing)
        batch = queue.growing = ProducerBatch(queue.destination, self._make_outcome(), now)
        if queue.state is _QueueState.LINGERING:
            if self._linger:
                self._start_linger_timer(queue, now + self._linger)
            else:
                self._make_ready(queue)
        return batch

    def _close_batch(self, queue: _DestinationQueue[D, T], batch: ProducerBatch[D, T]) -> None:
        """Close the open batch of a destination."""
        queue.full.append(batch)
        queue.growing, queue.flush_requested = None, False
        if queue.state is _QueueState.LINGERING:
            self._make_ready(queue)

    def _is_due(self, queue: _DestinationQueue[D, T], now: float) -> bool:
        if queue.growing is None:
            return False
        return queue.flush_requested or queue.growing.oldest_at + self._linger <= now

    def _make_ready(self, queue: _DestinationQueue[D, T]) -> None:
        queue.state = _QueueState.READY
        self._ready.append(queue)

    def _start_linger_timer(self, queue: _DestinationQueue[D, T], deadline: float) -> None:
        """Set the linger timer of a destination; rebuild the heap when most timers are obsolete."""
        queue.state = _QueueState.LINGERING
        self._serial += 1
        queue.timer = self._serial
        heappush(self._timers, (deadline, self._serial, queue))
        if len(self._timers) > 2 * len(self._queues) + STALE_TIMERS_MAX:
            self._timers = [timer for timer in self._timers if self._is_valid(timer)]
            heapify(self._timers)

    def _is_valid(self, timer: tuple[float, int, _DestinationQueue[D, T]]) -> bool:
        _, serial, queue = timer
        return (
            queue.state is _QueueState.LINGERING
            and queue.timer == serial
            and queue.growing is not None
        )


# The byte limit of a buffer: acquired for an accepted message, released when it is finished.
#
# Callers that find no space wait in order of arrival. Bytes stay acquired until the server has
# acknowledged the message, so the limit is one of memory and not of a queue alone.


class _SpaceWaiter:
    """One caller that waits for space."""

    __slots__ = ("error", "event", "is_granted", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.event = anyio.Event()
        self.is_granted = False
        self.error: IggyError | None = None


class ByteBudget:
    """Bytes that may be acquired at the same time.

    Args:
        limit_bytes: how many; None for no limit.
        backpressure: what a caller does when there is no space.
    """

    def __init__(self, limit_bytes: int | None, backpressure: Backpressure) -> None:
        self._limit = limit_bytes
        self._backpressure = backpressure
        self._waiters: deque[_SpaceWaiter] = deque()
        self.taken_bytes: int = 0

    @property
    def waiters_count(self) -> int:
        """How many callers wait for space."""
        return len(self._waiters)

    def try_acquire(self, size_bytes: int) -> bool:
        """Acquire bytes if there is space and no caller waits for it."""
        if self._waiters or not self._has_space(size_bytes):
            return False
        self.taken_bytes += size_bytes
        return True

    async def take(self, size_bytes: int, seconds_max: float | None = None) -> None:
        """Acquire bytes, and wait for space as the backpressure says.

        Args:
            size_bytes: how many.
            seconds_max: how long the caller waits at most; None leaves it to the backpressure.

        Raises:
            BufferFullError: there was no space, or never will be.
            IggyError: the budget was closed meanwhile.
        """
        if self._limit is not None and size_bytes > self._limit:
            raise BufferFullError(
                f"{size_bytes} bytes do not fit into a buffer of {self._limit} bytes",
                advice="Send fewer or smaller messages at once, or raise max_buffer_size.",
            )
        if self.try_acquire(size_bytes):
            return
        if not self._backpressure.waits:
            raise BufferFullError(
                f"{self.taken_bytes} of {self._limit} bytes are in use, {size_bytes} are needed",
                advice="Send slower, raise max_buffer_size, or wait with Backpressure.block().",
            )
        own = self._backpressure.timeout
        given = [seconds for seconds in (own, seconds_max) if seconds is not None]
        await self._wait_for_space(size_bytes, min(given, default=None))

    def release(self, size_bytes: int) -> None:
        """Release bytes, and admit waiting callers that fit now."""
        assert 0 <= size_bytes <= self.taken_bytes, "more bytes are released than were acquired"
        self.taken_bytes -= size_bytes
        while self._waiters and self._has_space(self._waiters[0].size_bytes):
            waiter = self._waiters.popleft()
            waiter.is_granted = True
            self.taken_bytes += waiter.size_bytes
            waiter.event.set()

    def close(self, error: IggyError) -> None:
        """Fail every caller that waits for space."""
        while self._waiters:
            waiter = self._waiters.popleft()
            waiter.error = error
            waiter.event.set()

    def _has_space(self, size_bytes: int) -> bool:
        return self._limit is None or self.taken_bytes + size_bytes <= self._limit

    async def _wait_for_space(self, size_bytes: int, seconds_max: float | None) -> None:
        waiter = _SpaceWaiter(size_bytes)
        self._waiters.append(waiter)
        try:
            with anyio.move_on_after(seconds_max):
                await waiter.event.wait()
        except BaseException:
            self._cancel_wait(waiter)
            raise
        if waiter.error is not None:
            raise waiter.error
        if not waiter.is_granted:
            self._cancel_wait(waiter)
            raise BufferFullError(
                f"{size_bytes} bytes found no space within {spell_seconds(seconds_max or 0.0)};"
                " nothing was accepted",
                code=StatusCode.BACKGROUND_SEND_TIMEOUT,
                advice="Send slower, raise max_buffer_size, or wait longer.",
            )

    def _cancel_wait(self, waiter: _SpaceWaiter) -> None:
        """Undo the grant or the place in line of a caller that was cancelled."""
        if waiter.is_granted:
            self.release(waiter.size_bytes)
        elif waiter in self._waiters:
            self._waiters.remove(waiter)
            # The next caller may fit where this one did not.
            self.release(0)

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

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

__all__ = ["Accumulator", "Batch"]

D = TypeVar("D", bound="Hashable")
T = TypeVar("T")

STALE_TIMERS_MAX = 64
"""How many obsolete timers may stay in the heap before they are removed."""


class Batch(Generic[D, T]):
    """Messages of one request.

    Attributes:
        destination: where they go.
        messages: what goes on the wire, in the order of adding.
        originals: what the caller handed over, one for each message.
        size_bytes: the sizes of all messages.
        oldest_at: when the first one was added.
        ticket: the object that the owner has made for the batch.
    """

    __slots__ = ("destination", "messages", "oldest_at", "originals", "size_bytes", "ticket")

    def __init__(self, destination: D, ticket: T, oldest_at: float) -> None:
        self.destination = destination
        self.messages: list[Any] = []
        self.originals: list[Any] = []
        self.size_bytes = 0
        self.oldest_at = oldest_at
        self.ticket = ticket

    def __len__(self) -> int:
        return len(self.messages)


class _State(Enum):
    """The state of a destination."""

    LINGERING = 1
    READY = 2
    OUT = 3


class _Lane(Generic[D, T]):
    """The messages of one destination: full batches in order, then the one that still grows."""

    __slots__ = ("destination", "full", "growing", "is_urgent", "state", "timer")

    def __init__(self, destination: D) -> None:
        self.destination = destination
        self.full: deque[Batch[D, T]] = deque()
        self.growing: Batch[D, T] | None = None
        self.is_urgent = False
        self.state = _State.LINGERING
        self.timer = 0


class Accumulator(Generic[D, T]):
    """Collects messages into batches, by destination.

    Args:
        batch_length: messages that make a batch full; None for no such bound.
        batch_size: bytes that make a batch full; None for no such bound.
        linger: how long the oldest message of a batch waits for further ones, in seconds.
        bytes_max: what one request can carry; a batch exceeds it only if a single message does.
        make_ticket: called once for every batch.
    """

    def __init__(
        self,
        *,
        batch_length: int | None,
        batch_size: int | None,
        linger: float,
        bytes_max: int,
        make_ticket: Callable[[], T],
    ) -> None:
        assert batch_length is None or batch_length >= 1
        assert batch_size is None or batch_size >= 1
        assert linger >= 0
        self._length = maxsize if batch_length is None else batch_length
        self._size = maxsize if batch_size is None else batch_size
        self._linger = linger
        self._bytes_max = bytes_max
        self._room_bytes = min(self._size, bytes_max)
        self._make_ticket = make_ticket
        self._lanes: dict[D, _Lane[D, T]] = {}
        self._ready: deque[_Lane[D, T]] = deque()
        # (deadline, serial, destination queue): valid while the queue lingers with this serial.
        self._timers: list[tuple[float, int, _Lane[D, T]]] = []
        self._serial = 0

    @property
    def ready_count(self) -> int:
        """How many destinations have a batch that is ready."""
        return len(self._ready)

    @property
    def is_empty(self) -> bool:
        """Whether no message waits and no batch is in flight."""
        return not self._lanes

    @property
    def deadline(self) -> float | None:
        """When ``tick`` is due next; None without a linger timer."""
        timers = self._timers
        while timers and not self._is_valid(timers[0]):
            heappop(timers)
        return timers[0][0] if timers else None

    def add(
        self, destination: D, message: Any, *, original: Any, size_bytes: int, now: float
    ) -> Batch[D, T]:
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
        lane = self._lanes.get(destination)
        if lane is None:
            lane = self._lanes[destination] = _Lane(destination)
        batch = lane.growing
        if batch is None or batch.size_bytes + size_bytes > self._bytes_max:
            batch = self._grow_new(lane, now)
        batch.messages.append(message)
        batch.originals.append(original)
        batch.size_bytes += size_bytes
        if len(batch.messages) >= self._length or batch.size_bytes >= self._size:
            self._fill(lane, batch)
        return batch

    def append(
        self, destination: D, message: Any, *, original: Any, size_bytes: int
    ) -> Batch[D, T] | None:
        """Append a message to the open batch, if that changes nothing else.

        Returns:
            The batch; None if there is no open one or the message would fill it: then ``add`` has
            to be called. The caller need not check for ready batches or timers after a batch.
        """
        lane = self._lanes.get(destination)
        batch = None if lane is None else lane.growing
        if (
            batch is None
            or len(batch.messages) + 1 >= self._length
            or batch.size_bytes + size_bytes >= self._room_bytes
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
    ) -> list[tuple[Batch[D, T], int, int]]:
        """Append many messages to one destination, as ``add`` would, at less cost for each.

        Returns:
            The batches that hold them, in order, and the range of their indexes in each.
        """
        used: list[tuple[Batch[D, T], int, int]] = []
        ends = [0, *accumulate(sizes)]
        at = 0
        while at < len(messages):
            batch = self.add(
                destination, messages[at], original=originals[at], size_bytes=sizes[at], now=now
            )
            start = len(batch.messages) - 1
            at += 1
            # Messages that do not fill the batch are appended with one slice.
            room = self._room_bytes - batch.size_bytes
            by_count = at + self._length - len(batch.messages) - 1
            end = min(by_count, bisect_left(ends, ends[at] + room) - 1, len(messages))
            if end > at and batch is self._lanes[destination].growing:
                batch.messages += messages[at:end]
                batch.originals += originals[at:end]
                batch.size_bytes += ends[end] - ends[at]
                at = end
            if used and used[-1][0] is batch:
                start = used.pop()[1]
            used.append((batch, start, len(batch.messages)))
        return used

    def tick(self, now: float) -> None:
        """Make destinations ready whose linger time is over."""
        while (deadline := self.deadline) is not None and deadline <= now:
            self._make_ready(heappop(self._timers)[2])

    def flush(self) -> None:
        """Make everything ready without lingering."""
        for lane in self._lanes.values():
            if lane.growing is not None:
                lane.is_urgent = True
                if lane.state is _State.LINGERING:
                    self._make_ready(lane)

    def take(self) -> Batch[D, T] | None:
        """Return the next batch of the destination that has been ready for longest, or None.

        No other batch of this destination is returned until ``done``.
        """
        if not self._ready:
            return None
        lane = self._ready.popleft()
        lane.state = _State.OUT
        if lane.full:
            return lane.full.popleft()
        batch, lane.growing, lane.is_urgent = lane.growing, None, False
        assert batch is not None, "a destination without messages was ready"
        return batch

    def done(self, batch: Batch[D, T], *, now: float) -> None:
        """Allow the next batch of a destination, whose batch was acknowledged or dropped."""
        lane = self._lanes[batch.destination]
        assert lane.state is _State.OUT, "no batch of this destination is in flight"
        if lane.full or self._is_due(lane, now):
            self._make_ready(lane)
        elif lane.growing is not None:
            self._let_linger(lane, lane.growing.oldest_at + self._linger)
        else:
            del self._lanes[batch.destination]

    def clear(self) -> list[Batch[D, T]]:
        """Drop and return all batches that wait; those in flight stay so."""
        given_up: list[Batch[D, T]] = []
        for lane in list(self._lanes.values()):
            given_up += lane.full
            if lane.growing is not None:
                given_up.append(lane.growing)
            lane.full.clear()
            lane.growing, lane.is_urgent = None, False
            if lane.state is not _State.OUT:
                del self._lanes[lane.destination]
        self._ready.clear()
        self._timers.clear()
        return given_up

    def waiting(self) -> Iterator[Batch[D, T]]:
        """Iterate over all batches that were not taken yet."""
        for lane in self._lanes.values():
            yield from lane.full
            if lane.growing is not None:
                yield lane.growing

    def _grow_new(self, lane: _Lane[D, T], now: float) -> Batch[D, T]:
        """Start a new batch of a destination."""
        if lane.growing is not None:
            self._fill(lane, lane.growing)
        batch = lane.growing = Batch(lane.destination, self._make_ticket(), now)
        if lane.state is _State.LINGERING:
            if self._linger:
                self._let_linger(lane, now + self._linger)
            else:
                self._make_ready(lane)
        return batch

    def _fill(self, lane: _Lane[D, T], batch: Batch[D, T]) -> None:
        """Close the open batch of a destination."""
        lane.full.append(batch)
        lane.growing, lane.is_urgent = None, False
        if lane.state is _State.LINGERING:
            self._make_ready(lane)

    def _is_due(self, lane: _Lane[D, T], now: float) -> bool:
        if lane.growing is None:
            return False
        return lane.is_urgent or lane.growing.oldest_at + self._linger <= now

    def _make_ready(self, lane: _Lane[D, T]) -> None:
        lane.state = _State.READY
        self._ready.append(lane)

    def _let_linger(self, lane: _Lane[D, T], deadline: float) -> None:
        """Set the linger timer of a destination; rebuild the heap when most timers are obsolete."""
        lane.state = _State.LINGERING
        self._serial += 1
        lane.timer = self._serial
        heappush(self._timers, (deadline, self._serial, lane))
        if len(self._timers) > 2 * len(self._lanes) + STALE_TIMERS_MAX:
            self._timers = [timer for timer in self._timers if self._is_valid(timer)]
            heapify(self._timers)

    def _is_valid(self, timer: tuple[float, int, _Lane[D, T]]) -> bool:
        _, serial, lane = timer
        return lane.state is _State.LINGERING and lane.timer == serial and lane.growing is not None

"""The pending requests of one connection, in the order in which they were sent.

Replies match requests by their order alone. A request whose task was cancelled or timed out stays
in the order as abandoned, and its reply is dropped.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import anyio

from iggy_sdk.session_waiter import Waiter, verdict

if TYPE_CHECKING:
    from iggy_protocol import ErrorReceived, ResponseReceived
    from iggy_sdk.errors import IggyError

__all__ = ["WaitingLine"]


class WaitingLine:
    """Requests of one connection that have no reply yet.

    Attributes:
        waiters: the oldest request comes first.
        told_count: how many requests have got their reply.
        abandoned_count: how many requests were cancelled or timed out before that.
    """

    __slots__ = ("_capacity", "_drained", "_room", "abandoned_count", "told_count", "waiters")

    def __init__(self, capacity: int) -> None:
        """Take how many requests may be pending at a time."""
        self.waiters: deque[Waiter] = deque()
        self.told_count = 0
        self.abandoned_count = 0
        self._capacity = capacity
        self._room: anyio.Event | None = None
        self._drained: anyio.Event | None = None

    @property
    def is_full(self) -> bool:
        """Whether no further request may be sent."""
        return len(self.waiters) >= self._capacity

    @property
    def waiting_count(self) -> int:
        """How many requests are pending and not abandoned."""
        return sum(not waiter.is_abandoned for waiter in self.waiters)

    async def await_change(self) -> None:
        """Wait until another request may be sent, or this task has to read."""
        self._room = anyio.Event()
        await self._room.wait()

    async def await_drained(self) -> None:
        """Wait until all requests may be finished or abandoned."""
        self._drained = anyio.Event()
        await self._drained.wait()

    def tell(self, outcome: ResponseReceived[Any] | ErrorReceived) -> None:
        """Give the oldest request its reply."""
        waiter = self.waiters.popleft()
        waiter.outcome = outcome
        self.told_count += 1
        if waiter.wake is not None:
            waiter.wake.set()

    def notify(self) -> None:
        """Wake the tasks that wait for space or for the last reply, if there is reason to."""
        if self._room is not None and not self.is_full:
            self._room.set()
        if self._drained is not None and not self.waiting_count:
            self._drained.set()

    def leave(self, waiter: Waiter) -> None:
        """Mark a request as abandoned; its reply will be dropped."""
        waiter.is_abandoned = True
        self.abandoned_count += 1
        self.notify()

    def wake_next(self) -> bool:
        """Wake the oldest sleeping task so that it reads; False when no task sleeps."""
        for waiter in self.waiters:
            if waiter.wake is not None:
                waiter.wake.set()
                return True
        if self._room is not None:
            self._room.set()
        return False

    def wake_all(self) -> None:
        """Wake every task that waits in here."""
        for event in (*(waiter.wake for waiter in self.waiters), self._room, self._drained):
            if event is not None:
                event.set()

    def release_expired(self, now: float) -> list[Waiter]:
        """Wake and return the requests whose deadline, tracked by ``run``, has passed."""
        late = [waiter for waiter in self.waiters if waiter.is_kept and waiter.deadline <= now]
        for waiter in late:
            waiter.is_kept = False
            if waiter.wake is not None:
                waiter.wake.set()
        return late

    def fail(self, error: IggyError) -> None:
        """Fail every pending request, because the connection has ended."""
        for waiter in self.waiters:
            if not waiter.is_abandoned:
                waiter.outcome = verdict(error, is_sent=waiter.is_sent)
        self.wake_all()
        self.waiters.clear()

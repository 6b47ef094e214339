"""The line of those who wait for replies, in the order of their requests.

Replies belong to requests by their order alone. A waiter who leaves, cancelled or out of time,
stays in the line as a name without a body, and the reply that comes for him is dropped.

Owns the order and who is woken. It must not know where replies come from, nor what time it is.
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
    """All who sent a request on one connection and have not been told yet.

    Attributes:
        waiters: the line, the oldest in front.
        told_count: how many were told what they asked for.
        abandoned_count: how many have left before that.
    """

    __slots__ = ("_capacity", "_drained", "_room", "abandoned_count", "told_count", "waiters")

    def __init__(self, capacity: int) -> None:
        """Take how many may stand in the line; whoever comes next has to wait for room."""
        self.waiters: deque[Waiter] = deque()
        self.told_count = 0
        self.abandoned_count = 0
        self._capacity = capacity
        self._room: anyio.Event | None = None
        self._drained: anyio.Event | None = None

    @property
    def is_full(self) -> bool:
        """Whether there is no room for one more."""
        return len(self.waiters) >= self._capacity

    @property
    def waiting_count(self) -> int:
        """How many of the line are still there."""
        return sum(not waiter.is_abandoned for waiter in self.waiters)

    async def await_change(self) -> None:
        """Wait until there may be room, or somebody has to read."""
        self._room = anyio.Event()
        await self._room.wait()

    async def await_drained(self) -> None:
        """Wait until nobody of the line may be there any more."""
        self._drained = anyio.Event()
        await self._drained.wait()

    def tell(self, outcome: ResponseReceived[Any] | ErrorReceived) -> None:
        """Give the oldest his reply."""
        waiter = self.waiters.popleft()
        waiter.outcome = outcome
        self.told_count += 1
        if waiter.wake is not None:
            waiter.wake.set()

    def notify(self) -> None:
        """Wake those who wait for room or for the end of the line, if it has come."""
        if self._room is not None and not self.is_full:
            self._room.set()
        if self._drained is not None and not self.waiting_count:
            self._drained.set()

    def leave(self, waiter: Waiter) -> None:
        """Let one go who stays in the line as a name alone."""
        waiter.is_abandoned = True
        self.abandoned_count += 1
        self.notify()

    def wake_next(self) -> bool:
        """Wake the oldest who sleeps, to do what somebody has to do; False when there is none."""
        for waiter in self.waiters:
            if waiter.wake is not None:
                waiter.wake.set()
                return True
        if self._room is not None:
            self._room.set()
        return False

    def wake_all(self) -> None:
        """Wake everybody who waits for anything."""
        for event in (*(waiter.wake for waiter in self.waiters), self._room, self._drained):
            if event is not None:
                event.set()

    def release_expired(self, now: float) -> list[Waiter]:
        """Keep the time no longer of those for whom it is over, wake and return them."""
        late = [waiter for waiter in self.waiters if waiter.is_kept and waiter.deadline <= now]
        for waiter in late:
            waiter.is_kept = False
            if waiter.wake is not None:
                waiter.wake.set()
        return late

    def fail(self, error: IggyError) -> None:
        """Tell everybody that the connection has ended, and why."""
        for waiter in self.waiters:
            if not waiter.is_abandoned:
                waiter.outcome = verdict(error, is_sent=waiter.is_sent)
        self.wake_all()
        self.waiters.clear()

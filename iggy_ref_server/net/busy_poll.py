"""Busy polling before the event loop sleeps, with back-off.

A client that waits for each reply sends its next request within microseconds. Sleeping and waking
for it costs more processor time than the request. So after a reply the server polls for a short
time. After misses it polls exponentially less often.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Callable


# What a client on the same machine needs to wake, read a reply and send again, even if it is slow.
# Other tasks of the loop wait no longer than this. Measured, it costs about as much processor time
# as one sleep and wake-up.
SPIN_S = 200e-6
# After so many misses in a row it polls once in 2**10 times.
MISSES_MAX = 10


class BusyPoll:
    """Polls for a short time while that finds work.

    Args:
        is_ready: returns whether there is work; must not block.
        spin_s: how long to poll.
        clock: returns the time in seconds.
    """

    __slots__ = ("_clock", "_is_ready", "_misses_count", "_skips_count", "_spin_s")

    def __init__(
        self,
        is_ready: Callable[[], bool],
        *,
        spin_s: float = SPIN_S,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._is_ready = is_ready
        self._spin_s = spin_s
        self._clock = clock
        self._misses_count = 0
        self._skips_count = 0

    def poll(self) -> bool:
        """Busy-poll, and return whether there is work."""
        if self._is_backing_off():
            return False
        until = self._clock() + self._spin_s
        while self._clock() < until:
            if self._is_ready():
                return self._hit()
        return self._miss()

    async def poll_with_checkpoints(self) -> bool:
        """Busy-poll with a checkpoint before each probe, so that other tasks run."""
        if self._is_backing_off():
            return False
        until = self._clock() + self._spin_s
        while self._clock() < until:
            await trio.lowlevel.checkpoint()
            if self._is_ready():
                return self._hit()
        return self._miss()

    def _is_backing_off(self) -> bool:
        self._skips_count -= 1
        return self._skips_count >= 0

    def _hit(self) -> bool:
        self._misses_count = self._skips_count = 0
        return True

    def _miss(self) -> bool:
        self._misses_count = min(self._misses_count + 1, MISSES_MAX)
        self._skips_count = (1 << self._misses_count) - 1
        return False

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

__all__ = ["Patience"]

# What a client on the same machine needs to wake, read a reply and send again, even if it is slow.
# Other tasks of the loop wait no longer than this. Measured, it costs about as much processor time
# as one sleep and wake-up.
MOMENT_S = 200e-6
# After so many misses in a row it polls once in 2**10 times.
MISSES_MAX = 10


class Patience:
    """Polls for a short time while that finds work.

    Args:
        look: returns whether there is work; must not block.
        moment_s: how long to poll.
        clock: returns the time in seconds.
    """

    __slots__ = ("_clock", "_look", "_misses_count", "_moment_s", "_skips_count")

    def __init__(
        self,
        look: Callable[[], bool],
        *,
        moment_s: float = MOMENT_S,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._look = look
        self._moment_s = moment_s
        self._clock = clock
        self._misses_count = 0
        self._skips_count = 0

    def pays(self) -> bool:
        """Busy-poll, and return whether there is work."""
        if self._is_tired():
            return False
        until = self._clock() + self._moment_s
        while self._clock() < until:
            if self._look():
                return self._hit()
        return self._miss()

    async def pays_in_turns(self) -> bool:
        """Busy-poll with a checkpoint before each probe, so that other tasks run."""
        if self._is_tired():
            return False
        until = self._clock() + self._moment_s
        while self._clock() < until:
            await trio.lowlevel.checkpoint()
            if self._look():
                return self._hit()
        return self._miss()

    def _is_tired(self) -> bool:
        self._skips_count -= 1
        return self._skips_count >= 0

    def _hit(self) -> bool:
        self._misses_count = self._skips_count = 0
        return True

    def _miss(self) -> bool:
        self._misses_count = min(self._misses_count + 1, MISSES_MAX)
        self._skips_count = (1 << self._misses_count) - 1
        return False

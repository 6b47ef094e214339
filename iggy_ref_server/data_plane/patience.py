"""Whether to look once more before going to sleep.

A client that waits for each answer asks again within microseconds. To fall asleep and be woken for
that costs a core more than the request itself. So after an answer one looks around for a moment;
but only as long as that pays, and where nothing comes it is hardly ever tried again.

Owns the decision. What there is to see, and how to look, is told by its user.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Patience"]

# What a client on the same machine needs to read an answer and ask again, being woken for that,
# even if both are slow. Nobody else on the loop waits longer than this; measured, it costs about as
# much processor time as to fall asleep and be woken.
MOMENT_S = 200e-6
# After so many misses in a row it is tried once in a thousand times.
MISSES_MAX = 10


class Patience:
    """Looks around for a moment, as long as that pays.

    Args:
        look: tells whether there is something to do; must not wait.
        moment_s: how long a moment is.
        clock: tells the time in seconds.
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
        """Look around, and tell whether there is something to do."""
        if self._is_tired():
            return False
        until = self._clock() + self._moment_s
        while self._clock() < until:
            if self._look():
                return self._hit()
        return self._miss()

    async def pays_in_turns(self) -> bool:
        """Do the same, but let everybody else on the loop have a turn before each look."""
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

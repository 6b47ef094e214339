"""The writeback limit: stops inline writes on the event loop while writeback is slow.

A write into the page cache is a memory copy, until the kernel throttles writers because too many
pages are dirty. Only the duration of the write shows that. After a slow write, inline writes pause;
then a few are tried, and a slow one among those doubles the next pause.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


# The event loop must not block longer than this.
SLOW_S = 0.005
# Writeback comes in bursts of about this length.
PAUSE_S = 0.1
PAUSE_MAX_S = 2.0
# One quick write may be luck.
PROBES_COUNT = 3
# Copying this much takes a millisecond or two on its own.
INLINE_BYTES_MAX = 8 << 20


class WritebackLimit:
    """Decides whether to write inline, from how long it took before.

    Args:
        clock: seconds from any start; a test passes its own.
        slow_s: an inline write that takes longer starts a pause.
        pause_s: how long the first pause is.
        pause_max_s: the longest pause.
        probes_count: quick writes in a row after which all is well again.
        inline_bytes_max: larger writes are never inline.

    Attributes:
        pauses_count: how often inline writes were paused.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        *,
        slow_s: float = SLOW_S,
        pause_s: float = PAUSE_S,
        pause_max_s: float = PAUSE_MAX_S,
        probes_count: int = PROBES_COUNT,
        inline_bytes_max: int = INLINE_BYTES_MAX,
    ) -> None:
        self.pauses_count = 0
        self._clock = clock
        self._slow_s = slow_s
        self._pause_first_s = pause_s
        self._pause_max_s = pause_max_s
        self._probes_count = probes_count
        self._inline_bytes_max = inline_bytes_max
        self._probes_left = 0
        self._pause_s = pause_s
        self._paused_until_s: float | None = None

    def allows(self, size_bytes: int) -> bool:
        """Tell whether a write of this size shall be inline."""
        if size_bytes > self._inline_bytes_max:
            return False
        if self._paused_until_s is None:
            return True
        if self._clock() < self._paused_until_s:
            return False
        self._paused_until_s = None
        return True

    def begin(self) -> float:
        """Return the time at which an inline write begins, for ``end``."""
        return self._clock()

    def end(self, began_s: float) -> None:
        """Learn that the inline write is over, however it went."""
        now_s = self._clock()
        if now_s - began_s > self._slow_s:
            self._pause(now_s)
        elif self._probes_left:
            self._probes_left -= 1

    def _pause(self, now_s: float) -> None:
        was_probing = self._probes_left > 0
        longer_s = min(self._pause_s * 2, self._pause_max_s)
        self._pause_s = longer_s if was_probing else self._pause_first_s
        self._paused_until_s = now_s + self._pause_s
        self._probes_left = self._probes_count
        self.pauses_count += 1

"""The time of day: the one place where the server reads a clock.

Every component that needs the time of day gets a ``Clock``, so that tests and simulations control
it. Durations and timeouts use trio's own clock.
"""

from __future__ import annotations

import time
from typing import Protocol

import trio

MICROSECONDS = 1_000_000


class Clock(Protocol):
    """A source of the time of day."""

    def now_us(self) -> int:
        """Return the microseconds since 1970 in UTC."""


class SystemClock:
    """The clock of the operating system."""

    def now_us(self) -> int:
        """Return the microseconds since 1970 in UTC."""
        return time.time_ns() // 1000


class SimulatedClock:
    """A clock that advances with trio's clock, which a test may replace by a virtual one.

    Args:
        start_us: the time of day at trio's time 0.
    """

    def __init__(self, start_us: int = 1_700_000_000_000_000) -> None:
        self._start_us = start_us

    def now_us(self) -> int:
        """Return the microseconds since 1970 in UTC."""
        return self._start_us + round(trio.current_time() * MICROSECONDS)

    def step(self, by_us: int) -> None:
        """Change the time of day, also backwards, as an administrator or NTP may."""
        self._start_us += by_us

"""What time it is: the one place where the server reads a clock.

A ``Clock`` is passed to every room that needs the time of day, so that tests and the simulator
decide it. Durations and timeouts are trio's affair.
"""

from __future__ import annotations

import time
from typing import Protocol

import trio

__all__ = ["Clock", "SimulatedClock", "SystemClock"]

MICROSECONDS = 1_000_000


class Clock(Protocol):
    """Something that knows the time of day."""

    def now_us(self) -> int:
        """Return the microseconds since 1970 in UTC."""


class SystemClock:
    """The machine's clock."""

    def now_us(self) -> int:
        """Return the microseconds since 1970 in UTC."""
        return time.time_ns() // 1000


class SimulatedClock:
    """A clock that goes with trio's, which a test may replace by a virtual one.

    Args:
        start_us: the time of day at trio's time 0.
    """

    def __init__(self, start_us: int = 1_700_000_000_000_000) -> None:
        self._start_us = start_us

    def now_us(self) -> int:
        """Return the microseconds since 1970 in UTC."""
        return self._start_us + round(trio.current_time() * MICROSECONDS)

    def step(self, by_us: int) -> None:
        """Move the time of day, also backwards, as an administrator might."""
        self._start_us += by_us

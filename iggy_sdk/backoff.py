"""Exponential backoff with jitter. The caller sleeps and supplies the random numbers."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from iggy_protocol import record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Backoff"]


@record(kw_only=True)
class Backoff:
    """A schedule of delays.

    Attributes:
        initial: the first delay, in seconds.
        maximum: no delay is longer than this one, its jitter left aside.
        factor: how much longer each delay is than the one before.
        jitter: the fraction by which a delay may be longer or shorter, so that clients that lost
            the same server do not all reconnect at once.
    """

    initial: float = 0.1
    maximum: float = 30.0
    factor: float = 2.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        assert self.initial >= 0
        assert self.maximum >= 0
        assert self.factor >= 1
        assert 0 <= self.jitter <= 1

    def delay(self, attempt: int, random: Callable[[], float]) -> float:
        """Tell how long to wait before attempt ``attempt``, where 0 is the first retry.

        Args:
            attempt: how many delays came before this one.
            random: a source of numbers from 0 to 1.
        """
        # The exponent is limited: a client may retry for years, and a float overflows at 2**1024.
        grown = self.initial * self.factor ** min(attempt, 64)
        return min(grown, self.maximum) * (1 + self.jitter * (2 * random() - 1))

    def delays(self, random: Callable[[], float]) -> Iterator[float]:
        """Yield one delay after the other, without end."""
        for attempt in count():
            yield self.delay(attempt, random)

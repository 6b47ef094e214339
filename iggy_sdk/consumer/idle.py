"""Detecting that there is nothing to read, and the backoff of polls meanwhile.

A poll sees one partition, so an empty reply says nothing about the others; only a whole round
over all partitions does. No I/O here: the fetch buffer sleeps.
"""

from __future__ import annotations

from typing import Final

IDLE_SECONDS_MIN: Final = 0.001
"""The first wait: about what a request costs on a busy machine."""

IDLE_SECONDS_MAX: Final = 0.1
"""The longest wait; ten empty polls a second do not hurt a server."""


class PartitionRound:
    """Detects a round in which every partition met a condition.

    Where the partitions are not known, they are polled in turn: the round is complete when one
    comes a second time and none in between failed the condition.
    """

    __slots__ = ("_streak",)

    def __init__(self) -> None:
        self._streak: set[int] = set()

    def observe(
        self, partition_id: int, agrees: bool, *, expected: frozenset[int] | None = None
    ) -> bool:
        """Record a poll of a partition, and tell whether the round is complete.

        Args:
            partition_id: the partition that was polled.
            agrees: whether it met the condition.
            expected: the partitions that make a round, if they are known.
        """
        if not agrees:
            self._streak.clear()
            return False
        is_second = partition_id in self._streak
        self._streak.add(partition_id)
        if expected is None:
            return is_second
        return len(self._streak) >= len(expected) and expected <= self._streak

    def clear(self) -> None:
        """Begin a new round."""
        self._streak.clear()


class EndDetector:
    """Detects that every partition was read to its end at some moment.

    A producer that keeps sending does not delay it: a partition counts once it was caught up.
    """

    __slots__ = ("_reached", "_rounds", "is_over")

    def __init__(self) -> None:
        self.is_over: bool = False
        self._reached: set[int] = set()
        self._rounds = PartitionRound()

    def observe(
        self, partition_id: int, at_end: bool, *, expected: frozenset[int] | None = None
    ) -> None:
        """Record a poll of a partition, and whether it reached the end."""
        if at_end:
            self._reached.add(partition_id)
        agrees = partition_id in self._reached
        self.is_over = self._rounds.observe(partition_id, agrees, expected=expected)


class IdleBackoff:
    """The wait after a round of empty polls."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = IDLE_SECONDS_MIN

    def reset(self) -> None:
        """Start with short waits again, because there were messages."""
        self._next = IDLE_SECONDS_MIN

    def take(self) -> float:
        """Return the next wait, which is twice the one before until it is long enough."""
        delay = self._next
        self._next = min(delay * 2, IDLE_SECONDS_MAX)
        return delay

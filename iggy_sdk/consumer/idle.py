"""When there is nothing to read: noticing it, and waiting longer and longer.

A poll sees one partition, so one empty reply says nothing about the others. Only a whole round of
them does. Pure: the poller sleeps.
"""

from __future__ import annotations

from typing import Final

__all__ = ["EndWatch", "IdleBackoff", "Rounds"]

IDLE_SECONDS_MIN: Final = 0.001
"""The first wait: about what a request costs on a busy machine."""

IDLE_SECONDS_MAX: Final = 0.1
"""The longest wait; ten empty polls a second do not hurt a server."""


class Rounds:
    """Notices when every partition in turn had the same thing to say.

    A member of a group does not know what it owns. But its partitions take turns, so the round is
    over when one comes up a second time and none in between said otherwise.
    """

    __slots__ = ("_streak",)

    def __init__(self) -> None:
        self._streak: set[int] = set()

    def note(self, partition_id: int, agrees: bool, *, expected: int | None = None) -> bool:
        """Note what a partition said, and tell whether the round is complete.

        Args:
            partition_id: who said it.
            agrees: whether it was the thing that is waited for.
            expected: how many partitions make a round, if that is known.
        """
        if not agrees:
            self._streak.clear()
            return False
        if partition_id in self._streak:
            return True
        self._streak.add(partition_id)
        return expected is not None and len(self._streak) >= expected

    def clear(self) -> None:
        """Begin a new round."""
        self._streak.clear()


class EndWatch:
    """Notices when every partition was read to the end that it had at some moment.

    A producer that goes on does not keep it waiting: a partition counts once it was caught up with.
    """

    __slots__ = ("_reached", "_rounds", "is_over")

    def __init__(self) -> None:
        self.is_over = False
        self._reached: set[int] = set()
        self._rounds = Rounds()

    def note(self, partition_id: int, at_end: bool, *, expected: int | None = None) -> None:
        """Note a poll of a partition, and whether it left nothing unread."""
        if at_end:
            self._reached.add(partition_id)
        agrees = partition_id in self._reached
        self.is_over = self._rounds.note(partition_id, agrees, expected=expected)


class IdleBackoff:
    """How long to wait after a round that brought nothing."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = IDLE_SECONDS_MIN

    def reset(self) -> None:
        """Start with short waits again, because there was something to read."""
        self._next = IDLE_SECONDS_MIN

    def take(self) -> float:
        """Return the next wait, which is twice the one before until it is long enough."""
        delay = self._next
        self._next = min(delay * 2, IDLE_SECONDS_MAX)
        return delay

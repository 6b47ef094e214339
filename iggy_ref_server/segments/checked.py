"""The verified byte ranges of a log: read and checked once, or written by this process.

A poll sends bytes from the file to the socket unread, so they are verified before, once.
"""

from __future__ import annotations

__all__ = ["RANGES_MAX", "CheckedRanges"]

# Consumers read at few places at a time; a forgotten range is verified again.
RANGES_MAX = 16


class CheckedRanges:
    """Byte ranges of one log, apart from each other and in order."""

    __slots__ = ("_ranges",)

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []

    def covers(self, start: int, end: int) -> bool:
        """Tell whether all bytes of a range are known."""
        return any(first <= start and end <= last for first, last in reversed(self._ranges))

    def add(self, start: int, end: int) -> None:
        """Note a range; those that touch become one, and of too many the shortest is forgotten."""
        ranges = self._ranges
        if ranges and ranges[-1][1] == start:  # what is appended follows what was
            ranges[-1] = (ranges[-1][0], end)
            return
        apart = [known for known in ranges if known[1] < start or end < known[0]]
        touching = [known for known in ranges if not (known[1] < start or end < known[0])]
        merged = (
            min([start, *(first for first, _ in touching)]),
            max([end, *(last for _, last in touching)]),
        )
        ranges[:] = sorted([*apart, merged])
        if len(ranges) > RANGES_MAX:
            ranges.remove(min(ranges, key=lambda known: known[1] - known[0]))

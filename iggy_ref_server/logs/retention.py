"""The log files of a server: rotation, and removal of old files.

``plan_sweep`` chooses the files to remove. The current file is not among them, but its maximum size
is part of the total.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol import record

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Archive", "LogLimits", "plan_sweep"]


@record
class Archive:
    """A rotated log file."""

    name: str
    size_bytes: int
    modified_at_s: float


@record(kw_only=True)
class LogLimits:
    """Limits of the log files.

    Attributes:
        file_size_bytes_max: of one file; 0 keeps a single file.
        total_size_bytes_max: of all files; 0 is unlimited.
        retention_s: the maximum age of a file.
    """

    file_size_bytes_max: int
    total_size_bytes_max: int
    retention_s: float


def plan_sweep(archives: Iterable[Archive], now_s: float, limits: LogLimits) -> list[str]:
    """Return the names of files to remove: too old, or the oldest of too many.

    Args:
        archives: all files but the current one.
        now_s: seconds since 1970.
    """
    oldest_first = sorted(archives, key=lambda archive: (archive.modified_at_s, archive.name))
    kept = [
        archive for archive in oldest_first if archive.modified_at_s + limits.retention_s > now_s
    ]
    if limits.total_size_bytes_max:
        size_max = limits.total_size_bytes_max - limits.file_size_bytes_max
        count_max = _count_max(limits)
        while kept and (sum(each.size_bytes for each in kept) > size_max or len(kept) > count_max):
            del kept[0]
    return [archive.name for archive in oldest_first if archive not in kept]


def _count_max(limits: LogLimits) -> float:
    """Return how many files may stay besides the current one; hourly files are small and many."""
    if not limits.file_size_bytes_max:
        return float("inf")
    return limits.total_size_bytes_max // limits.file_size_bytes_max - 1

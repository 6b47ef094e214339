"""Which old log files have to go.

Pure: a list of files, the time and the limits give a list of names. The file that is being written
is not among them, but room is left for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol import record

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Archive", "LogLimits", "plan_sweep"]


@record
class Archive:
    """A log file that is not written any more."""

    name: str
    size_bytes: int
    modified_at_s: float


@record(kw_only=True)
class LogLimits:
    """How much log there may be.

    Attributes:
        file_size_bytes_max: of one file; 0 keeps a single file for ever.
        total_size_bytes_max: of all files; 0 is without a bound.
        retention_s: how old a file may become.
    """

    file_size_bytes_max: int
    total_size_bytes_max: int
    retention_s: float


def plan_sweep(archives: Iterable[Archive], now_s: float, limits: LogLimits) -> list[str]:
    """Choose the files to remove: too old, or the oldest of too many.

    Args:
        archives: what there is besides the file being written.
        now_s: seconds since 1970.
        limits: what may stay.

    Returns:
        Names, the oldest first.
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
    """Tell how many files fit besides the one being written; hourly files are small and many."""
    if not limits.file_size_bytes_max:
        return float("inf")
    return limits.total_size_bytes_max // limits.file_size_bytes_max - 1

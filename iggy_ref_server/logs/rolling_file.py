"""The log files of a server: rotation, and removal of old files.

``plan_removal`` chooses the files to remove. The current file is not among them, but its maximum
size is part of the total.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from iggy_protocol import record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path


@record
class LogArchive:
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


def plan_removal(archives: Iterable[LogArchive], now_s: float, limits: LogLimits) -> list[str]:
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


# The current log file, ``iggy-server.log``, and rotated ones.
#
#     iggy-server.log                          the current file, written by all processes
#     iggy-server.log.20260102030405678901     rotated at that time, in UTC
#
# A file that would grow too large, or that was last written in an earlier hour, is rotated before
# the next line. All processes append to the same file under a lock on its directory, so any of them
# may rotate it, and the others reopen it. A line that cannot be written is counted, not raised: a
# full disk must not stop the server.


LOG_NAME: Final = "iggy-server.log"
_ARCHIVE: Final = re.compile(re.escape(LOG_NAME) + r"\.[0-9]+")
_HOUR_S: Final = 3600


class RollingFile:
    """The log file of a server.

    Args:
        directory: created if it does not exist.
        now_s: returns the seconds since 1970.

    Raises:
        OSError: the directory or the file cannot be opened.
    """

    def __init__(
        self, directory: Path, limits: LogLimits, *, now_s: Callable[[], float] = time.time
    ) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory
        self._path = directory / LOG_NAME
        self._limits = limits
        self._now_s = now_s
        self._lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        self._file = self._open()
        self._hour = int(os.fstat(self._file).st_mtime // _HOUR_S)
        self.lines_lost = 0

    def append(self, line: bytes) -> None:
        """Write a line, its end included."""
        try:
            with self._locked():
                self._reopen_if_rotated()
                if self._is_rotation_due(len(line)):
                    self._rotate()
                os.write(self._file, line)
        except OSError:
            self.lines_lost += 1

    def remove_old(self) -> list[str]:
        """Remove old files, and return their names."""
        with self._locked():
            return self._remove_old()

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
        os.close(self._lock)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        return os.open(self._path, flags, 0o600)

    def _reopen_if_rotated(self) -> None:
        """Reopen the file if another process, or logrotate, has renamed it."""
        try:
            is_same = os.path.samestat(os.stat(self._path), os.fstat(self._file))
        except FileNotFoundError:
            is_same = False
        if not is_same:
            self._reopen()

    def _reopen(self) -> None:
        descriptor = self._open()
        os.close(self._file)
        self._file = descriptor
        self._hour = int(self._now_s() // _HOUR_S)

    def _is_rotation_due(self, size: int) -> bool:
        hour, self._hour = self._hour, int(self._now_s() // _HOUR_S)
        written = os.fstat(self._file).st_size
        if not self._limits.file_size_bytes_max or not written:
            return False
        return hour != self._hour or written + size > self._limits.file_size_bytes_max

    def _rotate(self) -> None:
        moment = datetime.fromtimestamp(self._now_s(), tz=UTC)
        number = int(f"{moment:%Y%m%d%H%M%S%f}")
        while (archive := self._directory / f"{LOG_NAME}.{number}").exists():
            number += 1
        self._path.rename(archive)
        self._reopen()
        self._remove_old()

    def _remove_old(self) -> list[str]:
        removed = plan_removal(self._archives(), self._now_s(), self._limits)
        for name in removed:
            with suppress(FileNotFoundError):
                (self._directory / name).unlink()
        return removed

    def _archives(self) -> Iterator[LogArchive]:
        with os.scandir(self._directory) as entries:
            for entry in entries:
                if _ARCHIVE.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    yield LogArchive(entry.name, status.st_size, status.st_mtime)

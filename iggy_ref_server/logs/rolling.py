"""The current log file, ``iggy-server.log``, and rotated ones.

    iggy-server.log                          the current file, written by all processes
    iggy-server.log.20260102030405678901     rotated at that time, in UTC

A file that would grow too large, or that was last written in an earlier hour, is rotated before the
next line. All processes append to the same file under a lock on its directory, so any of them may
rotate it, and the others reopen it. A line that cannot be written is counted, not raised: a full
disk must not stop the server.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from iggy_ref_server.logs.retention import Archive, LogLimits, plan_sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["LOG_NAME", "RollingFile"]

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
                self._follow()
                if self._is_due(len(line)):
                    self._put_aside()
                os.write(self._file, line)
        except OSError:
            self.lines_lost += 1

    def sweep(self) -> list[str]:
        """Remove old files, and return their names."""
        with self._locked():
            return self._sweep()

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

    def _follow(self) -> None:
        """Reopen the file if another process, or logrotate, has renamed it."""
        try:
            is_same = os.path.samestat(os.stat(self._path), os.fstat(self._file))
        except FileNotFoundError:
            is_same = False
        if not is_same:
            self._reopen()

    def _reopen(self) -> None:
        fresh = self._open()
        os.close(self._file)
        self._file = fresh
        self._hour = int(self._now_s() // _HOUR_S)

    def _is_due(self, size: int) -> bool:
        hour, self._hour = self._hour, int(self._now_s() // _HOUR_S)
        written = os.fstat(self._file).st_size
        if not self._limits.file_size_bytes_max or not written:
            return False
        return hour != self._hour or written + size > self._limits.file_size_bytes_max

    def _put_aside(self) -> None:
        moment = datetime.fromtimestamp(self._now_s(), tz=UTC)
        number = int(f"{moment:%Y%m%d%H%M%S%f}")
        while (archive := self._directory / f"{LOG_NAME}.{number}").exists():
            number += 1
        self._path.rename(archive)
        self._reopen()
        self._sweep()

    def _sweep(self) -> list[str]:
        removed = plan_sweep(self._archives(), self._now_s(), self._limits)
        for name in removed:
            with suppress(FileNotFoundError):
                (self._directory / name).unlink()
        return removed

    def _archives(self) -> Iterator[Archive]:
        with os.scandir(self._directory) as entries:
            for entry in entries:
                if _ARCHIVE.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    yield Archive(entry.name, status.st_size, status.st_mtime)

"""The log writer: a thread, so that the event loop never waits for a terminal or a disk.

Lines wait in a bounded queue. When the queue is full, lines are dropped and counted, and the count
is written later: a stalled terminal must not stall the server.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import queue
import re
import threading
import time
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from iggy_protocol import record
from iggy_ref_server.config.syntax import TRACE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from typing import TextIO


# The format of a log record: one line.
#
#     2026-01-02T03:04:05.678901Z  INFO shard-0 partitions.commit: flushed stream=3 topic=1
#     (time in UTC)              (level)(process)(logger):         (message)(extra fields)
#
# Control characters are escaped, so that a name chosen by a client cannot forge a line or control a
# terminal. Only a traceback has more lines; each starts with ``    | ``.


LOGGER_PREFIX: Final = "iggy_ref_server."

_LEVEL_NAMES: Final = {TRACE: "TRACE", logging.WARNING: "WARN", logging.CRITICAL: "ERROR"}
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_CONTROLS: Final = {number: f"\\x{number:02x}" for number in (*range(0x20), *range(0x7F, 0xA0))} | {
    0x0A: "\\n",
    0x0D: "\\r",
    0x09: "\\t",
    0x2028: "\\u2028",
    0x2029: "\\u2029",
}
_COLOURS: Final = {logging.ERROR: "31", logging.WARNING: "33", logging.INFO: "", 0: "2"}


class LineFormatter(logging.Formatter):
    """Formats records as lines.

    Args:
        process: the name of this process, such as ``shard-0``.
    """

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """Format a record, without the line end."""
        moment = datetime.fromtimestamp(record.created, tz=UTC)
        level = _LEVEL_NAMES.get(record.levelno, record.levelname)
        name = record.name.removeprefix(LOGGER_PREFIX)
        message = record.getMessage().translate(_CONTROLS)
        line = f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z {level:>5} {self._process} {name}: {message}"
        for key, value in vars(record).items():
            if key not in _STANDARD:
                line += f" {key}={_field(value)}"
        return line + self._details(record)

    def _details(self, record: logging.LogRecord) -> str:
        """Add the traceback, if there is one."""
        details = self.formatException(record.exc_info) if record.exc_info else ""
        rows = [row.translate(_CONTROLS) for row in details.split("\n") if row]
        return "".join(f"\n    | {row}" for row in rows)


def _field(value: object) -> str:
    """Format an extra field; a value with blanks is quoted."""
    text = str(value)
    if text and not any(character in text for character in ' ="') and text.isprintable():
        return text
    return json.dumps(text.translate(_CONTROLS), ensure_ascii=False)


def colorize(line: str, level: int) -> str:
    """Colour a line for a terminal: red, yellow, plain or faint."""
    colour = next(code for least, code in _COLOURS.items() if level >= least)
    return f"\x1b[{colour}m{line}\x1b[0m" if colour else line


# Some seconds of output of a busy server, and a few megabytes.
LINES_WAITING_MAX: Final = 10_000


class LogLine(NamedTuple):
    """A line and its level."""

    level: int
    text: str


class LogWriter:
    """Writes lines to a terminal and a file on its own thread.

    Args:
        terminal: receives every line.
        file: receives every line too, if there is one.
        sweep_interval_s: how often old files are removed.
    """

    def __init__(
        self,
        terminal: TextIO,
        file: RollingFile | None,
        *,
        sweep_interval_s: float,
        lines_waiting_max: int = LINES_WAITING_MAX,
    ) -> None:
        self._terminal = terminal
        self._is_coloured = terminal.isatty()
        self._file = file
        self._sweep_interval_s = sweep_interval_s
        self._lines: queue.Queue[LogLine | None] = queue.Queue(lines_waiting_max)
        self._lines_dropped = 0
        self._thread = threading.Thread(target=self._run, name="logs", daemon=True)

    def start(self) -> None:
        """Start writing."""
        self._thread.start()

    def put(self, line: LogLine) -> None:
        """Enqueue a line without waiting."""
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self._lines_dropped += 1

    def flush(self) -> None:
        """Wait until all enqueued lines are written."""
        self._lines.join()

    def stop(self) -> None:
        """Write all enqueued lines and end the thread; idempotent."""
        if self._thread.is_alive():
            self._lines.put(None)
            self._thread.join()
            if self._file is not None:
                self._file.close()

    def _run(self) -> None:
        while True:
            try:
                line = self._lines.get(timeout=self._sweep_interval_s)
            except queue.Empty:
                self._remove_old()
                continue
            try:
                if line is None:
                    return
                self._write(line)
            finally:
                self._lines.task_done()

    def _write(self, line: LogLine) -> None:
        dropped, self._lines_dropped = self._lines_dropped, 0
        if dropped:
            self._write(
                LogLine(line.level, f"{dropped} log lines were dropped: the queue was full")
            )
        if self._file is not None:
            self._file.append(f"{line.text}\n".encode(errors="backslashreplace"))
        # The terminal may be closed or have another encoding; the file has the line.
        with suppress(OSError, ValueError):
            encoding = self._terminal.encoding or "utf-8"
            text = line.text.encode(encoding, "backslashreplace").decode(encoding)
            self._terminal.write(f"{colorize(text, line.level) if self._is_coloured else text}\n")
            self._terminal.flush()

    def _remove_old(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.remove_old()


# The log files of a server: rotation, and removal of old files.
#
# ``plan_removal`` chooses the files to remove. The current file is not among them, but its maximum
# size is part of the total.


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

"""The log writer: a thread, so that the event loop never waits for a terminal or a disk.

Lines wait in a bounded queue. When the queue is full, lines are dropped and counted, and the count
is written later: a stalled terminal must not stall the server.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from iggy_ref_server.config.syntax import TRACE

if TYPE_CHECKING:
    from typing import TextIO

    from iggy_ref_server.logs.rolling_file import RollingFile


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

"""The log writer: a thread, so that the event loop never waits for a terminal or a disk.

Lines wait in a bounded queue. When the queue is full, lines are dropped and counted, and the count
is written later: a stalled terminal must not stall the server.
"""

from __future__ import annotations

import queue
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from iggy_ref_server.logs.lines import paint

if TYPE_CHECKING:
    from typing import TextIO

    from iggy_ref_server.logs.rolling import RollingFile

__all__ = ["Line", "LogWriter"]

# Some seconds of output of a busy server, and a few megabytes.
LINES_WAITING_MAX: Final = 10_000


class Line(NamedTuple):
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
        self._lines: queue.Queue[Line | None] = queue.Queue(lines_waiting_max)
        self._lines_dropped = 0
        self._thread = threading.Thread(target=self._run, name="logs", daemon=True)

    def start(self) -> None:
        """Start writing."""
        self._thread.start()

    def put(self, line: Line) -> None:
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
                self._sweep()
                continue
            try:
                if line is None:
                    return
                self._write(line)
            finally:
                self._lines.task_done()

    def _write(self, line: Line) -> None:
        dropped, self._lines_dropped = self._lines_dropped, 0
        if dropped:
            self._write(Line(line.level, f"{dropped} log lines were dropped: the queue was full"))
        if self._file is not None:
            self._file.append(f"{line.text}\n".encode(errors="backslashreplace"))
        # The terminal may be closed or have another encoding; the file has the line.
        with suppress(OSError, ValueError):
            encoding = self._terminal.encoding or "utf-8"
            text = line.text.encode(encoding, "backslashreplace").decode(encoding)
            self._terminal.write(f"{paint(text, line.level) if self._is_coloured else text}\n")
            self._terminal.flush()

    def _sweep(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.sweep()

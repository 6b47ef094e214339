"""The log output of a process: lines on the terminal and in rolling files.

    with start_logging(config.system.logging, directory, environment, process="shard-0"):
        ...

Modules use ``logging.getLogger(__name__)``. ``RUST_LOG`` sets the levels, else
``system.logging.level``. Each process calls ``start_logging``, also after a fork from a process
that logs already; all processes share the files.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from iggy_ref_server.config.syntax import LogFilter, parse_log_filter
from iggy_ref_server.logs.writer import (
    LOG_NAME,
    LineFormatter,
    LogLimits,
    LogLine,
    LogWriter,
    RollingFile,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from typing import TextIO

    from iggy_ref_server.config.schema import LoggingConfig

__all__ = ["LOG_NAME", "LogLimits", "LogWriter", "RollingFile", "start_logging"]

FILTER_VARIABLE: Final = "RUST_LOG"
MICROSECONDS: Final = 1_000_000

logger = logging.getLogger(__name__)


@contextmanager
def start_logging(
    settings: LoggingConfig,
    directory: Path,
    environment: Mapping[str, str],
    *,
    process: str,
    terminal: TextIO | None = None,
) -> Iterator[LogWriter]:
    """Log from this process until the block ends.

    Args:
        settings: ``config.system.logging``.
        directory: the data directory, the base of ``settings.path``.
        environment: may hold ``RUST_LOG``.
        process: the name of this process in every line.
        terminal: standard output by default.
    """
    problems: list[str] = []
    file = _open_file(settings, directory, problems)
    writer = LogWriter(
        sys.stdout if terminal is None else terminal,
        file,
        sweep_interval_s=settings.rotation_check_interval_us / MICROSECONDS,
    )
    handler = _LineHandler(writer, process)
    levels = _set_levels(_choose_filter(settings, environment, problems))
    logging.getLogger().addHandler(handler)
    writer.start()
    atexit.register(writer.stop)
    for problem in problems:
        logger.warning(problem)
    try:
        yield writer
    finally:
        logging.getLogger().removeHandler(handler)
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
        atexit.unregister(writer.stop)
        writer.stop()


class _LineHandler(logging.Handler):
    """Formats records and passes the lines to the writer."""

    def __init__(self, writer: LogWriter, process: str) -> None:
        super().__init__()
        self.setFormatter(LineFormatter(process))
        self._writer = writer
        self._process_id = os.getpid()

    def emit(self, record: logging.LogRecord) -> None:
        # A forked child inherits this handler, but not the thread that writes the lines.
        if os.getpid() != self._process_id:
            return
        try:
            self._writer.put(LogLine(record.levelno, self.format(record)))
        except Exception:
            self.handleError(record)


def _open_file(settings: LoggingConfig, directory: Path, problems: list[str]) -> RollingFile | None:
    """Open the log file; on an error, log to the terminal only."""
    if not settings.file_enabled:
        return None
    limits = LogLimits(
        file_size_bytes_max=settings.max_file_size_bytes,
        total_size_bytes_max=settings.max_total_size_bytes,
        retention_s=settings.retention_us / MICROSECONDS,
    )
    try:
        return RollingFile(directory / settings.path, limits)
    except OSError as error:
        problems.append(f"the log file cannot be opened, so logs go to the terminal only: {error}")
        return None


def _choose_filter(
    settings: LoggingConfig, environment: Mapping[str, str], problems: list[str]
) -> LogFilter:
    """Return the levels of the environment if they are valid, else those of the settings."""
    wanted = environment.get(FILTER_VARIABLE)
    if wanted:
        try:
            return parse_log_filter(wanted)
        except ValueError as error:
            problems.append(f"{FILTER_VARIABLE} is ignored: {error}")
    return parse_log_filter(settings.level)


def _set_levels(wanted: LogFilter) -> dict[str, int]:
    """Set the levels of loggers, and return the previous ones; the root's name is empty."""
    before = {}
    for name, level in {"": wanted.level, **wanted.parts}.items():
        before[name] = logging.getLogger(name).level
        logging.getLogger(name).setLevel(level)
    return before

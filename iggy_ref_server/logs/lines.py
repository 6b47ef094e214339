"""The format of a log record: one line.

    2026-01-02T03:04:05.678901Z  INFO shard-0 partitions.commit: flushed stream=3 topic=1
    (time in UTC)              (level)(process)(logger):         (message)(extra fields)

Control characters are escaped, so that a name chosen by a client cannot forge a line or control a
terminal. Only a traceback has more lines; each starts with ``    | ``.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Final

from iggy_ref_server.config.log_filter import TRACE

__all__ = ["LineFormatter", "paint"]

OWN_PREFIX: Final = "iggy_ref_server."

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
        name = record.name.removeprefix(OWN_PREFIX)
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


def paint(line: str, level: int) -> str:
    """Colour a line for a terminal: red, yellow, plain or faint."""
    colour = next(code for least, code in _COLOURS.items() if level >= least)
    return f"\x1b[{colour}m{line}\x1b[0m" if colour else line

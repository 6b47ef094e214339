"""Log levels: the syntax of ``RUST_LOG`` and of ``system.logging.level``.

    info                          everything from info upwards
    warn,iggy=debug               debug for this server, warn for the libraries that it uses
    error,iggy_ref_server.segments=trace
    off

A part is the name of a Python logger; ``iggy`` and ``server`` mean this server, and ``::`` may
separate names as in Rust. Without a level for all other loggers, it is ``error``.
"""

from __future__ import annotations

import logging
import re
from typing import Final

from iggy_protocol import record

__all__ = ["OFF", "TRACE", "LogFilter", "parse_log_filter"]

TRACE: Final = 5
OFF: Final = logging.CRITICAL + 10

_LEVELS: Final = {
    "trace": TRACE,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "off": OFF,
    "none": OFF,
}
_OWN_LOGGERS: Final = ("iggy_ref_server", "iggy_protocol")
_OWN_NAMES: Final = frozenset({"iggy", "iggy_server", "server"})
_PART: Final = re.compile(r"\w+(?:(?:\.|::)\w+)*")


@record
class LogFilter:
    """The levels of all loggers.

    Attributes:
        level: the level of the root logger.
        parts: the levels of named loggers.
    """

    level: int
    parts: dict[str, int]


def parse_log_filter(text: str) -> LogFilter:
    """Parse log levels.

    Args:
        text: ``level`` and ``part=level``, separated by commas, case-insensitive.

    Raises:
        ValueError: the text is empty or malformed.
    """
    directives = [directive.strip() for directive in text.split(",") if directive.strip()]
    if not directives:
        raise ValueError(f"{text!r} has no level; write {', '.join(_LEVELS)}")
    level = logging.ERROR
    parts: dict[str, int] = {}
    for directive in directives:
        part, separator, name = directive.partition("=")
        if not separator and part.lower() in _LEVELS:
            level = _LEVELS[part.lower()]
            continue
        wanted = _LEVELS.get(name.strip().lower())
        if wanted is None or not _PART.fullmatch(part.strip()):
            raise ValueError(f"{directive!r} is neither a level nor PART=LEVEL")
        parts.update(dict.fromkeys(_loggers(part.strip()), wanted))
    return LogFilter(level, parts)


def _loggers(part: str) -> tuple[str, ...]:
    """Translate the name of a part, which may be a Rust module of Apache Iggy, to logger names."""
    first, *rest = part.replace("::", ".").split(".")
    roots = _OWN_LOGGERS if first in _OWN_NAMES else (first,)
    return tuple(".".join((root, *rest)) for root in roots)

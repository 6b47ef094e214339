"""Time spans as users write them: seconds, ``timedelta`` or text such as ``1m 30s``.

The grammar of the text is that of the connection strings of Apache Iggy.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Final, TypeAlias

from iggy_sdk.errors import ConfigurationError

Seconds: TypeAlias = float | int | timedelta
"""A time span: seconds, or a timedelta."""

MICROSECONDS_MAX: Final = 2**64 - 2
"""The longest span that the wire can say; the number after it means for ever."""

_ZERO_WORDS: Final = frozenset({"0", "none", "disabled", "unlimited"})

_UNITS: Final[tuple[tuple[float, tuple[str, ...]], ...]] = (
    (1e-9, ("nanos", "nsec", "ns")),
    (1e-6, ("micros", "usec", "us", "µs")),
    (1e-3, ("millis", "msec", "ms")),
    (1.0, ("seconds", "second", "secs", "sec", "s")),
    (60.0, ("minutes", "minute", "mins", "min", "m")),
    (3_600.0, ("hours", "hour", "hrs", "hr", "h")),
    (86_400.0, ("days", "day", "d")),
    (7 * 86_400.0, ("weeks", "week", "wks", "wk", "w")),
    (30.44 * 86_400.0, ("months", "month", "M")),
    (365.25 * 86_400.0, ("years", "year", "yrs", "yr", "y")),
)
_UNIT_SECONDS: Final = {name: seconds for seconds, names in _UNITS for name in names}
_PART: Final = re.compile(r"\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[A-Za-zµ]+)\s*")


def parse_duration(text: str, *, name: str = "duration") -> float:
    """Read a time span such as ``5s``, ``500ms`` or ``1m 30s``.

    Args:
        text: numbers with units; ``0``, ``none``, ``disabled`` and ``unlimited`` mean zero.
        name: what the span is for, in the text of the error.

    Returns:
        Seconds.

    Raises:
        ConfigurationError: the text is no time span.
    """
    if text.strip() in _ZERO_WORDS:
        return 0.0
    total, at = 0.0, 0
    while (part := _PART.match(text, at)) is not None:
        if part["unit"] not in _UNIT_SECONDS:
            raise _unreadable(text, name)
        total += float(part["number"]) * _UNIT_SECONDS[part["unit"]]
        at = part.end()
    if at == 0 or at < len(text):
        raise _unreadable(text, name)
    return total


def to_seconds(value: Seconds, *, name: str = "duration") -> float:
    """Take a time span as seconds.

    Raises:
        ConfigurationError: it is negative, not a number, or no time span at all.
    """
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    else:
        raise ConfigurationError(
            f"{name} is {value!r}", advice=f"Give {name} as seconds or as a timedelta."
        )
    if math.isnan(seconds) or seconds < 0:
        raise ConfigurationError(f"{name} is {value!r}", advice=f"Make {name} zero or more.")
    return seconds


def spell_seconds(seconds: float) -> str:
    """Write a time span for a text, to the millisecond: what is left of 30 s was 30 s."""
    return f"{round(seconds, 3) or seconds:g} s"


def to_microseconds(value: Seconds, *, name: str = "duration") -> int:
    """Take a time span as whole microseconds, as the wire wants them.

    Raises:
        ConfigurationError: it is no time span, or longer than the wire can say.
    """
    if isinstance(value, timedelta):
        micros = value // timedelta(microseconds=1)
        to_seconds(value, name=name)
    else:
        seconds = to_seconds(value, name=name)
        micros = round(seconds * 1_000_000) if math.isfinite(seconds) else MICROSECONDS_MAX + 1
    if micros > MICROSECONDS_MAX:
        raise ConfigurationError(f"{name} is {value!r}", advice=f"Make {name} shorter.")
    return micros


def _unreadable(text: str, name: str) -> ConfigurationError:
    return ConfigurationError(
        f"{name} is {text!r}",
        advice="Write a time span such as 5s, 500ms or '1m 30s', or none for zero.",
    )

"""Sizes and durations as text: ``"10 KiB"``, ``"1.202 KB"``, ``"2 days 4 hours"``.

The HTTP API writes sizes like this, and options may have values like this. The unit of a written
size is the largest one in which it is exact with at most three decimals, so parsing gives the same
number of bytes.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from iggy_protocol.errors import InvalidField, LocalProtocolError
from iggy_protocol.status_table import StatusCode

# From the largest to the smallest; of one rank the binary unit is larger, so it comes first.
_UNITS: Final[dict[str, int]] = {
    f"{prefix}{suffix}": base**rank
    for rank, prefix in ((6, "E"), (5, "P"), (4, "T"), (3, "G"), (2, "M"), (1, "K"))
    for suffix, base in (("iB", 1024), ("B", 1000))
}

_SIZE_BYTES_MAX: Final = 2**64 - 1

SIZE_TEXT_PATTERN: Final = r"^[0-9]{1,20}(\.[0-9]{1,3})? ([KMGTPE]i?)?B$"
"""What a server writes; a reader accepts a little more."""

_READABLE: Final = re.compile(r"(?P<number>[0-9]{1,20}(\.[0-9]{1,20})?) *(?P<unit>([KMGTPE]i?)?B)?")


_SECOND_US: Final = 1_000_000
_DAY_US: Final = 86_400 * _SECOND_US
_DURATION_US_MAX: Final = 2**64 - 1

# A month is a twelfth of a year, and a year has 365.25 days.
_DURATION_UNITS: Final[dict[str, Fraction]] = {
    name: Fraction(microseconds)
    for names, microseconds in (
        ("ns nsec nanos", Fraction(1, 1000)),
        ("us usec µs micros", 1),
        ("ms msec millis", 1000),
        ("s sec secs second seconds", _SECOND_US),
        ("m min mins minute minutes", 60 * _SECOND_US),
        ("h hr hrs hour hours", 3600 * _SECOND_US),
        ("d day days", _DAY_US),
        ("w wk wks week weeks", 7 * _DAY_US),
        ("mon month months", 2_630_016 * _SECOND_US),
        ("y yr yrs year years", 31_557_600 * _SECOND_US),
    )
    for name in names.split()
}
_DURATION_PART: Final = re.compile(r"\s*([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*([a-zµ]+)")
_NO_DURATION: Final = frozenset({"0", "unlimited", "disabled", "none"})


def format_size(size_bytes: int) -> str:
    """Write a size exactly.

    Args:
        size_bytes: from 0 to 2^64 - 1.

    Raises:
        LocalProtocolError: the size has no place in 64 bits.
    """
    if not 0 <= size_bytes <= _SIZE_BYTES_MAX:
        raise LocalProtocolError(f"a size of {size_bytes} bytes does not fit 64 bits")
    for unit, factor in _UNITS.items():
        thousandths, rest = divmod(size_bytes * 1000, factor)
        if size_bytes >= factor and not rest:
            whole, decimals = divmod(thousandths, 1000)
            return f"{whole}.{decimals:03}".rstrip("0").rstrip(".") + f" {unit}"
    return f"{size_bytes} B"


def parse_size(text: str) -> int:
    """Read a size; a number without a unit counts bytes.

    Args:
        text: such as ``"3136.5 KiB"``, ``"1GB"`` or ``"42"``.

    Raises:
        InvalidField: the text is no size, or not one of whole bytes in 64 bits (status 80).
    """
    match = _READABLE.fullmatch(text)
    if match is None:
        raise _refusal(f"{text!r} is no size")
    size_bytes = Fraction(match["number"]) * _UNITS.get(match["unit"] or "B", 1)
    if size_bytes.denominator != 1 or size_bytes > _SIZE_BYTES_MAX:
        raise _refusal(f"{text!r} is no whole number of bytes in 64 bits")
    return int(size_bytes)


def _refusal(message: str) -> InvalidField:
    return InvalidField(message, field="size", status=StatusCode.INVALID_SIZE_BYTES)


def parse_duration(text: str) -> int:
    """Parse a duration; none, such as ``"none"``, is 0.

    Args:
        text: such as ``"5ms"``, ``"1 m"`` or ``"2 days 4 hours"``, in any case.

    Returns:
        Microseconds.

    Raises:
        ValueError: the text is not a duration; the message says what was expected.
    """
    lowered = text.strip().lower()
    if lowered in _NO_DURATION:
        return 0
    total, position = Fraction(0), 0
    while position < len(lowered):
        match = _DURATION_PART.match(lowered, position)
        if match is None or match[2] not in _DURATION_UNITS:
            break
        total += Fraction(match[1]) * _DURATION_UNITS[match[2]]
        position = match.end()
    if position == 0 or position < len(lowered):
        raise ValueError(f'{text!r} is not a duration; write a number and a unit, such as "30 s"')
    if total.denominator != 1 or total > _DURATION_US_MAX:
        raise ValueError(f"{text!r} is not a whole number of microseconds in 64 bits")
    return int(total)

"""Byte sizes as the HTTP API writes them: ``"0 B"``, ``"10 KiB"``, ``"1.202 KB"``.

The unit is the largest one in which the size is exact with at most three decimals, so parsing gives
the same number of bytes.
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

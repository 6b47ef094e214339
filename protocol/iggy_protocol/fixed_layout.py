"""Derive a fast ``struct.Struct`` from a construct declaration of fixed size.

Parsing with construct costs microseconds, too much for the header of every message. A layout
without variable parts is equivalent to a format string, so the string is derived, and the
declaration is written once.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from construct import Bytes, FormatField

if TYPE_CHECKING:
    from construct import Struct

__all__ = ["derive_struct"]


def derive_struct(layout: Struct) -> tuple[struct.Struct, tuple[str, ...]]:
    """Derive the struct that reads and writes the same bytes as a layout of fixed size.

    Args:
        layout: named fields that are little-endian numbers or byte strings of fixed length.

    Returns:
        The struct, and the names of the fields in the order of its values.

    Raises:
        TypeError: a field has no name, or is of a kind that struct cannot express.
    """
    fields: list[Any] = list(layout.subcons)
    derived = struct.Struct("<" + "".join(_format_of(field) for field in fields))
    assert derived.size == layout.sizeof()
    return derived, tuple(field.name for field in fields)


def _format_of(field: Any) -> str:
    if not field.name:
        raise TypeError("every field of a fixed layout needs a name")
    kind = field.subcon
    if isinstance(kind, FormatField) and kind.fmtstr.startswith("<"):
        return str(kind.fmtstr[1:])
    if isinstance(kind, Bytes) and isinstance(kind.length, int):
        return f"{kind.length}s"
    raise TypeError(f"{field.name} is neither a little-endian number nor bytes of fixed length")

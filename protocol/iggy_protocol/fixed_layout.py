"""From a construct declaration of fixed size to the ``struct.Struct`` that reads it fast.

A construct says what the bytes mean; parsing with it costs microseconds, which is too much for
something that stands in front of every message. A layout without variable parts says the same
thing as a format string, so the string is derived and the declaration stays the only truth.

This module knows construct and struct. It knows no particular layout.
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

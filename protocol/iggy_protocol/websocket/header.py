"""The header of a frame (RFC 6455, section 5.2), and the mask of a payload."""

from __future__ import annotations

import struct
from typing import Final

from websockets.frames import Opcode

try:
    from websockets.speedups import apply_mask
except ImportError:  # the library was built without a compiler
    from websockets.utils import apply_mask

__all__ = [
    "CONTROL",
    "FIN",
    "HEADER_BYTES",
    "HEADER_BYTES_MIN",
    "LENGTH",
    "MASKED",
    "MASK_BYTES",
    "NO_MASK",
    "OPCODE",
    "SHORT_MAX",
    "TWO_BYTES",
    "WHOLE_BINARY",
    "apply_mask",
    "frame_header",
]

# Of the first byte.
FIN: Final = 0x80
CONTROL: Final = 0x08
OPCODE: Final = 0x0F
WHOLE_BINARY: Final = FIN | Opcode.BINARY
# Of the second byte.
MASKED: Final = 0x80
LENGTH: Final = 0x7F
# A length up to SHORT_MAX is in the second byte; the other two values announce 2 or 8 bytes.
SHORT_MAX, TWO_BYTES, EIGHT_BYTES = 125, 126, 127
MASK_BYTES: Final = 4
NO_MASK: Final = bytes(MASK_BYTES)

HEADER_BYTES_MIN: Final = 2
# The size of a header, mask included, by its second byte.
HEADER_BYTES: Final = tuple(
    HEADER_BYTES_MIN
    + {TWO_BYTES: 2, EIGHT_BYTES: 8}.get(second & LENGTH, 0)
    + (MASK_BYTES if second & MASKED else 0)
    for second in range(256)
)


def frame_header(first: int, size: int, mask_bit: int = 0) -> bytes:
    """Encode a header up to its mask; ``mask_bit`` is 0 or ``MASKED``."""
    if size <= SHORT_MAX:
        return bytes((first, mask_bit | size))
    if size < 1 << 16:
        return struct.pack("!BBH", first, mask_bit | TWO_BYTES, size)
    return struct.pack("!BBQ", first, mask_bit | EIGHT_BYTES, size)

"""The memory of replies, which the allocator should keep."""

from __future__ import annotations

from typing import Final

REPLIES_KEPT: Final = 4
"""Polls and columns that are in memory at a time."""
KEPT_BYTES_MAX: Final = 30 << 20
"""The allocator heeds no piece of more than 32 MiB."""


def keep_freed_memory(batch_bytes: int) -> None:
    """Let the allocator keep the memory of one reply for the next.

    The one of Linux returns freed memory to the kernel, until a larger piece was freed once. Each
    page of each reply would be a fault then, which takes longer than the reading itself.
    """
    # Nothing writes to it, so it costs neither memory nor time.
    bytearray(min(REPLIES_KEPT * batch_bytes, KEPT_BYTES_MAX))

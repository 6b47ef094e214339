"""Writes many buffers as one run of bytes, over short writes and the limit ``IOV_MAX``."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iggy_protocol import Buffer

__all__ = ["BUFFERS_MAX", "locate", "total_size", "write_all"]

# The kernel takes no more buffers in one call (IOV_MAX).
BUFFERS_MAX = 1024


def size_of(buffer: Buffer) -> int:
    """Count the bytes of a buffer; the length of a view may count wider items."""
    return buffer.nbytes if isinstance(buffer, memoryview) else len(buffer)


def total_size(buffers: Sequence[Buffer]) -> int:
    """Count the bytes of all buffers."""
    return sum([size_of(buffer) for buffer in buffers])


def locate(buffers: Sequence[Buffer], index: int, skip: int) -> tuple[int, int]:
    """Find the buffer and the place in it after ``skip`` more bytes, counted from a buffer's start.

    Returns:
        The index of a buffer that is not empty and the bytes of it to leave out; or the number of
        buffers and 0 when nothing is left.
    """
    while index < len(buffers):
        size = size_of(buffers[index])
        if skip < size:
            return index, skip
        skip -= size
        index += 1
    return index, 0


def write_all(descriptor: int, buffers: Sequence[Buffer], position: int) -> None:
    """Write all buffers one after another, however often the kernel has to be asked.

    No buffer stays in use when this returns or raises.

    Raises:
        OSError: what part was written is unknown.
    """
    written = os.pwritev(descriptor, buffers[:BUFFERS_MAX], position)
    index, skip = locate(buffers, 0, written)
    while index < len(buffers):
        position += written
        written = write_from(descriptor, buffers, index, skip, position)
        index, skip = locate(buffers, index, skip + written)


def write_from(
    descriptor: int, buffers: Sequence[Buffer], index: int, skip: int, position: int
) -> int:
    """Write what one call can take, beginning inside a buffer; return how much that was."""
    # Views are let go by hand: the traceback of an error would keep them, and with them the
    # caller's buffer could not be resized.
    with memoryview(buffers[index]) as whole, whole.cast("B") as flat, flat[skip:] as head:
        following = buffers[index + 1 : index + BUFFERS_MAX]
        written = os.pwritev(descriptor, [head, *following], position)
    if not written:
        raise OSError(errno.EIO, "the kernel wrote no bytes")
    return written

"""File descriptors that close with the last reference.

A caller that passes the number to the kernel keeps a reference to the ``Descriptor``.
"""

from __future__ import annotations

import _thread
import os
from contextlib import suppress

__all__ = ["Descriptor"]


class Descriptor:
    """The owner of one open file's number."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        with suppress(OSError):
            close(self.number)


def close(number: int) -> None:
    """Close a file, without making the caller wait while the disk space of a removed one is freed.

    The last close of a removed file frees its blocks, some tens of milliseconds for a large one,
    so a thread does it. A bare one: a destructor may run anywhere, also where ``threading`` holds
    its locks.
    """
    if os.fstat(number).st_nlink:
        os.close(number)
        return
    try:
        _thread.start_new_thread(os.close, (number,))
    except RuntimeError:  # the interpreter is going down
        os.close(number)

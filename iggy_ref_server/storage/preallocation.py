"""Preallocation of disk space with ``fallocate``, which Python lacks.

Python's ``posix_fallocate`` makes the file longer, and writes zeros where the file system does
not support it. Here the length of the file does not change.
"""

from __future__ import annotations

import ctypes
import errno
import os

__all__ = ["preallocate"]

KEEP_SIZE = 1
NOT_OFFERED = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
LIBC = ctypes.CDLL(None, use_errno=True)


def preallocate(descriptor: int, size: int) -> bool:
    """Keep room for the first bytes of a file; False where that cannot be had at all.

    Raises:
        OSError: the disk has not so much room.
    """
    call = getattr(LIBC, "fallocate", None)
    if call is None:  # a system other than Linux
        return False
    kept = call(
        ctypes.c_int(descriptor), ctypes.c_int(KEEP_SIZE), ctypes.c_long(0), ctypes.c_long(size)
    )
    if kept == 0:
        return True
    number = ctypes.get_errno()
    if number in NOT_OFFERED:
        return False
    raise OSError(number, os.strerror(number))

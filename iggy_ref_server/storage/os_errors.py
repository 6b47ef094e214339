"""Converts errors of the operating system to ``StorageError``."""

from __future__ import annotations

import errno
import os

from iggy_ref_server.storage.interface import DiskFull, StorageError

__all__ = ["storage_error"]

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


def storage_error(action: str, path: str, error: OSError | int) -> StorageError:
    """Make a ``StorageError`` of an error of the operating system.

    Args:
        action: the verb that failed.
        path: what it was about, relative to the data directory.
        error: what Python raised, or the bare number as a ring reports it.
    """
    number = error if isinstance(error, int) else error.errno or 0
    text = os.strerror(number) if isinstance(error, int) else error.strerror or str(error)
    kind = DiskFull if number in NO_SPACE else StorageError
    return kind(action, path, text, errno=number)

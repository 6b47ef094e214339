"""Checks that paths stay inside the data directory.

Only the text is checked: an administrator may put a symbolic link in the data directory to use
another disk.
"""

from __future__ import annotations

import errno

from iggy_ref_server.storage.interface import StorageError

__all__ = ["ASIDE_SUFFIX", "aside", "checked", "checked_directory", "is_aside", "parent"]

# What ``replace`` writes before it renames. A crash may leave one behind: lists leave it out, and
# the next ``replace`` of the same file overwrites it.
ASIDE_SUFFIX = ".aside"


def checked(action: str, path: str) -> str:
    """Return the path of a file or directory below the data directory.

    Raises:
        StorageError: it is absolute, empty, not in its shortest form, or leads upwards.
    """
    if "\0" in path or any(part in {"", ".", ".."} for part in path.split("/")):
        raise StorageError(
            action, path, "not a plain path inside the data directory", errno=errno.EINVAL
        )
    return path


def checked_directory(action: str, path: str) -> str:
    """Return the path of a directory; the empty one is the data directory itself.

    Raises:
        StorageError: as for ``checked``.
    """
    return checked(action, path) if path else path


def parent(path: str) -> str:
    """Name the directory that holds a path; the empty one is the data directory itself."""
    return path.rpartition("/")[0]


def aside(path: str) -> str:
    """Name the file beside another in which its new content is prepared."""
    directory, slash, name = path.rpartition("/")
    return f"{directory}{slash}.{name}{ASIDE_SUFFIX}"


def is_aside(name: str) -> bool:
    """Tell whether a name in a directory is content in preparation."""
    return name.startswith(".") and name.endswith(ASIDE_SUFFIX)

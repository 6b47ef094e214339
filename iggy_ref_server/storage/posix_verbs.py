"""Blocking file system calls, for worker threads; full paths, errors are ``OSError``."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from iggy_ref_server.storage.interface import Entry
from iggy_ref_server.storage.paths import aside, is_aside
from iggy_ref_server.storage.vectors import write_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iggy_protocol import Buffer

__all__ = [
    "free_bytes",
    "list_directory",
    "make_directories",
    "open_file",
    "read_file",
    "remove",
    "remove_tree",
    "rename",
    "replace",
    "sync_directory",
]

# Messages, metadata and password hashes: readable by the user of the server only.
FILE_MODE = 0o600
DIRECTORY_MODE = 0o700


def open_file(path: str, *, create: bool) -> int:
    """Open for reading and writing; return the descriptor."""
    return os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), FILE_MODE)


@contextmanager
def opened(path: str, flags: int) -> Iterator[int]:
    """Open for the time of a block."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, FILE_MODE)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_file(path: str, size_max: int) -> bytes | None:
    """Read a whole file; None where there is none."""
    try:
        with open(path, "rb") as file:
            content = file.read(size_max + 1)
    except FileNotFoundError:
        return None
    if len(content) > size_max:
        raise OSError(errno.EFBIG, f"larger than {size_max} bytes")
    return content


def replace(path: str, content: Buffer, *, sync: bool = True) -> None:
    """Write aside, sync, rename, sync the directory; or all of that without the syncs."""
    prepared = aside(path)
    try:
        with opened(prepared, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as descriptor:
            write_all(descriptor, (content,), 0)
            if sync:
                os.fsync(descriptor)
        os.rename(prepared, path)
    except OSError:
        with suppress(OSError):
            os.unlink(prepared)
        raise
    if sync:
        sync_directory(os.path.dirname(path))


def rename(source: str, target: str) -> None:
    """Rename, and sync the directory or both."""
    os.rename(source, target)
    for directory in {os.path.dirname(target), os.path.dirname(source)}:
        sync_directory(directory)


def remove(path: str) -> None:
    """Remove a file; no error where there is none."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def remove_tree(path: str) -> None:
    """Remove a directory with all it holds; no error where there is none."""
    while True:
        try:
            return shutil.rmtree(path)
        except FileNotFoundError:
            # Another task may have removed an entry inside meanwhile.
            if not os.path.lexists(path):
                return None


def make_directories(path: str) -> None:
    """Make a directory and those above it, and sync each parent that changed."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    make_directories(parent)
    try:
        os.mkdir(path, DIRECTORY_MODE)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
    sync_directory(parent)


def list_directory(path: str) -> list[Entry]:
    """List a directory sorted by name; an empty list where there is none."""
    try:
        with os.scandir(path) as scan:
            found = [describe(entry) for entry in scan if not is_aside(entry.name)]
    except FileNotFoundError:
        return []
    return sorted(entry for entry in found if entry is not None)


def describe(entry: os.DirEntry[str]) -> Entry | None:
    """Describe a name in a directory; None when it is gone already."""
    try:
        is_directory = entry.is_dir()
        return Entry(entry.name, is_directory, 0 if is_directory else entry.stat().st_size)
    except FileNotFoundError:
        return None


def sync_directory(path: str) -> None:
    """Bring the names in a directory to the disk."""
    with opened(path, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        os.fsync(descriptor)


def free_bytes(path: str) -> tuple[int, int]:
    """Return the free and the total bytes of a file system."""
    figures = os.statvfs(path)
    return figures.f_bavail * figures.f_frsize, figures.f_blocks * figures.f_frsize

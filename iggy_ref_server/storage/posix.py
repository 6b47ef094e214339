"""Blocking file system calls, for worker threads; full paths, errors are ``OSError``."""

from __future__ import annotations

import _thread
import ctypes
import errno
import os
import shutil
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from iggy_ref_server.storage.interface import DirectoryEntry, is_temporary, temporary_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from iggy_protocol import Buffer


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
    prepared = temporary_path(path)
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


def list_directory(path: str) -> list[DirectoryEntry]:
    """List a directory sorted by name; an empty list where there is none."""
    try:
        with os.scandir(path) as scan:
            found = [describe_entry(entry) for entry in scan if not is_temporary(entry.name)]
    except FileNotFoundError:
        return []
    return sorted(entry for entry in found if entry is not None)


def describe_entry(entry: os.DirEntry[str]) -> DirectoryEntry | None:
    """Describe a name in a directory; None when it is gone already."""
    try:
        is_directory = entry.is_dir()
        return DirectoryEntry(entry.name, is_directory, 0 if is_directory else entry.stat().st_size)
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


# Writes many buffers as one run of bytes, over short writes and the limit ``IOV_MAX``.


# The kernel takes no more buffers in one call (IOV_MAX).
BUFFERS_MAX = 1024


def size_of(buffer: Buffer) -> int:
    """Count the bytes of a buffer; the length of a view may count wider items."""
    return buffer.nbytes if isinstance(buffer, memoryview) else len(buffer)


def total_size(buffers: Sequence[Buffer]) -> int:
    """Count the bytes of all buffers."""
    return sum([size_of(buffer) for buffer in buffers])


def locate_byte(buffers: Sequence[Buffer], index: int, skip: int) -> tuple[int, int]:
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
    index, skip = locate_byte(buffers, 0, written)
    while index < len(buffers):
        position += written
        written = write_from(descriptor, buffers, index, skip, position)
        index, skip = locate_byte(buffers, index, skip + written)


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


# File descriptors that close with the last reference.
#
# A caller that passes the number to the kernel keeps a reference to the ``Descriptor``.


class Descriptor:
    """The owner of one open file's number."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        with suppress(OSError):
            close_descriptor(self.number)


def close_descriptor(number: int) -> None:
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


# Preallocation of disk space with ``fallocate``, which Python lacks.
#
# Python's ``posix_fallocate`` makes the file longer, and writes zeros where the file system does
# not support it. Here the length of the file does not change.


FALLOC_FL_KEEP_SIZE = 1
NOT_SUPPORTED = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
LIBC = ctypes.CDLL(None, use_errno=True)


def preallocate(descriptor: int, size: int, position: int = 0) -> bool:
    """Keep room for bytes of a file; False where that cannot be had at all.

    Raises:
        OSError: the disk has not so much room.
    """
    call = getattr(LIBC, "fallocate", None)
    if call is None:  # a system other than Linux
        return False
    kept = call(
        ctypes.c_int(descriptor),
        ctypes.c_int(FALLOC_FL_KEEP_SIZE),
        ctypes.c_long(position),
        ctypes.c_long(size),
    )
    if kept == 0:
        return True
    number = ctypes.get_errno()
    if number in NOT_SUPPORTED:
        return False
    raise OSError(number, os.strerror(number))

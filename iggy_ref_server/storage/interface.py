"""The storage interface that all engines implement.

All paths are relative to the data directory and written with ``/``. An engine never reorders
operations on one file: a write that was started earlier reaches the file earlier.

    *_nowait  never waits for a disk; the result says when it would have to
    begin_*   begins now, and calls back at the end; the result says when it cannot begin
    async     may wait, and can be cancelled: a write or sync in the kernel is finished first, so
              that the caller's buffers are free when the call returns or raises
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from iggy_protocol import Buffer


class StorageError(Exception):
    """The file system refused or failed.

    Attributes:
        path: what it was about, relative to the data directory.
        action: the verb that failed, such as ``write``.
        errno: the number of the operating system, or 0.
    """

    def __init__(self, action: str, path: str, reason: str, *, errno: int = 0) -> None:
        super().__init__(f"cannot {action} {path}: {reason}")
        self.action = action
        self.path = path
        self.errno = errno


DoneCallback: TypeAlias = "Callable[[StorageError | None], None]"
"""Is told the end of what was begun: None, or what went wrong."""


class DiskFull(StorageError):
    """No space or no quota is left; trying again later may help."""


class DirectoryEntry(NamedTuple):
    """A name in a directory."""

    name: str
    is_directory: bool
    size_bytes: int


class File(Protocol):
    """An open file. It closes with the last reference.

    So a segment may be removed while a reply still sends its bytes: a reply that holds the file, or
    a slice of it, can still read it.
    """

    @property
    def path(self) -> str:
        """Its name, relative to the data directory."""

    @property
    def descriptor(self) -> int | None:
        """The number for ``sendfile``, or None where there is no such thing."""

    def size(self) -> int:
        """Return the length of the file in bytes."""

    @property
    def has_room_ahead(self) -> bool:
        """Whether the disk keeps room behind the end of the file; ``truncate`` gives it back."""

    def write_nowait(self, buffers: Sequence[Buffer], position: int) -> bool:
        """Write all buffers into the page cache without waiting, if the engine can.

        Returns:
            Whether all is in the page cache. False means that nothing was written: writeback
            is slow at the moment, or the write is too large; await ``write`` instead.

        Raises:
            StorageError: the write failed; what part of it was written is unknown.
        """

    async def write(self, buffers: Sequence[Buffer], position: int, *, sync: bool = False) -> None:
        """Write all buffers one after another, and then sync the data if asked.

        Raises:
            StorageError: the write or the sync failed; ``action`` says which.
        """

    def begin_write(self, buffers: Sequence[Buffer], position: int, done: DoneCallback) -> bool:
        """Begin to write all buffers one after another and to sync the data, if that is wise.

        Args:
            buffers: in use until the end.
            position: where the first one goes.
            done: called once at the end, with None or with the error that ``write`` would raise;
                never before this returns. It must not raise.

        Returns:
            Whether it was begun. False means that nothing was done, and ``write`` shall be
            awaited.

        Raises:
            StorageError: the write failed at once; what part of it was written is unknown.
        """

    def read_nowait(self, size: int, position: int) -> bytes | None:
        """Read from memory if all of it is there; None when a disk would have to be asked.

        A result shorter than ``size`` means that the file ends there.
        """

    async def read(self, size: int, position: int) -> bytes:
        """Read ``size`` bytes, or as many as there are before the file's end."""

    def is_cached(self, size: int, position: int) -> bool:
        """Tell whether these bytes can be sent without waiting for a disk."""

    async def sync(self) -> None:
        """Bring the data, and the size, to the disk.

        Raises:
            StorageError: it is unknown what is on the disk now.
        """

    async def truncate(self, size: int) -> None:
        """Cut or extend the file."""

    async def preallocate(self, size: int) -> bool:
        """Have the disk keep room for so many bytes of the file, whose length does not change.

        Returns:
            Whether it does; False where the file system has no such thing.

        Raises:
            StorageError: there is no room.
        """


class FileSlice(NamedTuple):
    """A run of bytes in a file, not yet read."""

    file: File
    position: int
    size: int


class Storage(Protocol):
    """A data directory.

    Paths that are not plain, or lead out of it, are refused. ``make_directories``, ``entries`` and
    ``sync_directory`` take the empty path for the data directory itself. After ``aclose`` every
    verb is refused, those of open files as well, with errno EBADF.
    """

    @property
    def engine(self) -> str:
        """What serves the files, for people: such as ``io_uring``."""

    @property
    def ended_count(self) -> int:
        """How many operations have ended since it was opened; it shows that the disk works."""

    @property
    def open_files(self) -> OpenFileBudget:
        """How many files may be kept open, and which are."""

    async def open(self, path: str, *, create: bool = False) -> File:
        """Open a file for reading and writing.

        Args:
            path: the file; its directory exists.
            create: make an empty one where there is none.

        Raises:
            StorageError: with errno ENOENT where there is no such file.
        """

    async def read_file(self, path: str, *, size_max: int = 1 << 30) -> bytes | None:
        """Read a whole file; None where there is none."""

    async def replace(self, path: str, content: Buffer, *, sync: bool = True) -> None:
        """Give a file new content, all of it or none.

        That is: write aside, sync, rename, sync the directory. Without the two syncs the new
        content outlives the process, but after a power failure the file may be the old one, or
        damaged.
        """

    async def rename(self, source: str, target: str) -> None:
        """Rename a file or directory and sync the directories.

        An existing target file is replaced.
        """

    async def remove(self, path: str) -> None:
        """Remove a file; no error where there is none."""

    async def remove_tree(self, path: str) -> None:
        """Remove a directory with all it holds; no error where there is none."""

    async def make_directories(self, path: str) -> None:
        """Make a directory and those above it, and sync each parent that changed."""

    async def entries(self, path: str) -> list[DirectoryEntry]:
        """List a directory sorted by name; an empty list where there is none."""

    async def sync_directory(self, path: str) -> None:
        """Bring the names in a directory to the disk."""

    async def free_bytes(self) -> tuple[int, int]:
        """Return the free and the total bytes of the file system."""

    async def aclose(self) -> None:
        """Finish what is under way and let go of everything."""


# Converts errors of the operating system to ``StorageError``.


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


# Checks that paths stay inside the data directory.
#
# Only the text is checked: an administrator may put a symbolic link in the data directory to use
# another disk.


# What ``replace`` writes before it renames. A crash may leave one behind: lists leave it out, and
# the next ``replace`` of the same file overwrites it.
TEMPORARY_SUFFIX = ".aside"


def check_path(action: str, path: str) -> str:
    """Return the path of a file or directory below the data directory.

    Raises:
        StorageError: it is absolute, empty, not in its shortest form, or leads upwards.
    """
    if "\0" in path or any(part in {"", ".", ".."} for part in path.split("/")):
        raise StorageError(
            action, path, "not a plain path inside the data directory", errno=errno.EINVAL
        )
    return path


def check_directory_path(action: str, path: str) -> str:
    """Return the path of a directory; the empty one is the data directory itself.

    Raises:
        StorageError: as for ``check_path``.
    """
    return check_path(action, path) if path else path


def parent_path(path: str) -> str:
    """Name the directory that holds a path; the empty one is the data directory itself."""
    return path.rpartition("/")[0]


def temporary_path(path: str) -> str:
    """Name the file beside another in which its new content is prepared."""
    directory, slash, name = path.rpartition("/")
    return f"{directory}{slash}.{name}{TEMPORARY_SUFFIX}"


def is_temporary(name: str) -> bool:
    """Tell whether a name in a directory is content in preparation."""
    return name.startswith(".") and name.endswith(TEMPORARY_SUFFIX)


# The budget of open files: which files are closed when descriptors run out.
#
# A process has a limited number of descriptors, and a shard may have more partitions than that.
# Files stay open while the budget allows it; then those that were idle longest are closed, and
# opened again on the next use. A file that a reply still refers to stays open until the reply is
# sent.
#
# The budget records nothing when a file is used. When it needs descriptors it asks the owner
# whether the file was used since it asked last.


class OpenFileOwner(Protocol):
    """An owner of open files, which it can close item by item."""

    def is_idle(self, item: Hashable) -> bool:
        """Tell whether an item was not used since the last time this was asked."""

    def close_item(self, item: Hashable) -> None:
        """Keep an item's files open no longer."""


Key: TypeAlias = "tuple[OpenFileOwner, Hashable]"

OPENING_MAX = 16
# When the system refuses another descriptor, this part of all kept files is closed.
EVICTED_FRACTION = 4


class OpenFileBudget:
    """The files that are kept open in one process.

    Args:
        descriptors_max: how many descriptors they may take; None for any number.

    Attributes:
        descriptors_count: how many they take now.
        opening: held while files are opened that will be kept.
    """

    def __init__(self, descriptors_max: int | None = None) -> None:
        self.descriptors_max = descriptors_max
        self.descriptors_count = 0
        self._kept: dict[Key, int] = {}  # the next to be looked at first

        # Files that are being opened are not counted yet, so only a few are at a time.
        self.opening = trio.Semaphore(OPENING_MAX)

    def keep(self, owner: OpenFileOwner, item: Hashable, descriptors_count: int) -> None:
        """Count what was opened, and close others if that is too much."""
        key = (owner, item)
        if key not in self._kept:
            self._kept[key] = descriptors_count
            self.descriptors_count += descriptors_count
            if self.descriptors_max is not None:
                self._close_until(self.descriptors_max, excluded=key)

    def forget(self, owner: OpenFileOwner, item: Hashable) -> None:
        """Count an item no longer, because its owner has let go of it."""
        self.descriptors_count -= self._kept.pop((owner, item), 0)

    def evict_some(self) -> bool:
        """Close some files because the system has no more descriptors; tell whether any were."""
        before = self.descriptors_count
        self._close_until(before - max(before // EVICTED_FRACTION, 1), excluded=None)
        return self.descriptors_count < before

    def _close_until(self, descriptors_max: int, *, excluded: Key | None) -> None:
        # In the second round everything is idle, so that the loop ends.
        for _ in range(2 * len(self._kept)):
            if self.descriptors_count <= descriptors_max or not self._kept:
                return
            key = next(iter(self._kept))
            owner, item = key
            if key == excluded or not owner.is_idle(item):
                self._kept[key] = self._kept.pop(key)
            else:
                self.forget(owner, item)
                owner.close_item(item)

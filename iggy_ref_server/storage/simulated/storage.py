"""Simulated storage for tests: files in memory, with faults, kills and power losses.

storage = SimulatedStorage(FaultPlan(seed=7))
...
storage = storage.kill()      # the process is gone: all that was written is there
storage = storage.crash()     # the power is gone: what was synced is there, and maybe more
"""

from __future__ import annotations

import errno
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import trio

from iggy_ref_server.handoff_lock import HandoffLock
from iggy_ref_server.storage.interface import (
    DirectoryEntry,
    DoneCallback,
    File,
    OpenFileBudget,
    StorageError,
    check_directory_path,
    check_path,
    parent_path,
)
from iggy_ref_server.storage.locks import PathLocks
from iggy_ref_server.storage.simulated.disk import SimulatedDisk, Survival
from iggy_ref_server.storage.simulated.fault_plan import FaultPlan, Verb
from iggy_ref_server.storage.simulated.tree import FileContent, SimulatedTree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from iggy_protocol import Buffer


class SimulatedStorage:
    """A data directory in memory.

    Args:
        plan: what goes wrong; nothing by default.
        tree: the names and files to begin with; none by default.
    """

    def __init__(self, plan: FaultPlan | None = None, tree: SimulatedTree | None = None) -> None:
        self.plan = plan or FaultPlan()
        self._disk = SimulatedDisk(self.plan, tree or SimulatedTree())
        self._tree = self._disk.tree
        self.open_files = OpenFileBudget()
        self._path_locks = PathLocks()
        self._file_locks: WeakKeyDictionary[FileContent, HandoffLock] = WeakKeyDictionary()

    @property
    def engine(self) -> str:
        """What serves the files, for people."""
        return "memory"

    @property
    def ended_count(self) -> int:
        """How many operations have ended."""
        return self._disk.gate.ended_count

    def kill(self) -> SimulatedStorage:
        """End the process at once; return the storage that the next one opens, under the same plan.

        All that was written is there, synced or not, and any part of a write in flight. The old
        storage refuses all calls.
        """
        return SimulatedStorage(self.plan, self._disk.tree_after_kill())

    def crash(self, survival: Survival | None = None) -> SimulatedStorage:
        """Cut the power; return the storage that is found when it is back, under the same plan.

        Args:
            survival: what becomes of the changes that were not synced; left to the plan's seed for
                each file by default.
        """
        return SimulatedStorage(self.plan, self._disk.tree_after_power_loss(survival))

    async def open(self, path: str, *, create: bool = False) -> File:
        """Open a file for reading and writing."""

        def find() -> FileContent:
            content = self._tree.content(path)
            if content is None and create:
                content = FileContent()
                self._tree.put(path, content)
            if content is None:
                raise OSError(errno.ENOENT, "No such file")
            return content

        content = await self._disk.run("open", check_path("open", path), find)
        write_lock = self._file_locks.setdefault(content, HandoffLock())
        return SimulatedFile(self._disk, path, content, write_lock)

    async def read_file(self, path: str, *, size_max: int = 1 << 30) -> bytes | None:
        """Read a whole file; None where there is none."""

        def read() -> bytes | None:
            content = self._tree.content(path)
            if content is not None and len(content.written) > size_max:
                raise OSError(errno.EFBIG, f"larger than {size_max} bytes")
            return None if content is None else bytes(content.written)

        return await self._disk.run("read_file", check_path("read_file", path), read)

    async def replace(self, path: str, content: Buffer, *, sync: bool = True) -> None:
        """Give a file new content, all of it or none."""

        def put() -> None:
            if len(data) > self._disk.free_bytes():
                raise OSError(errno.ENOSPC, "No space left on device")
            self._tree.put(path, FileContent(data))

        data = bytes(content)
        await self._change_names("replace", [check_path("replace", path)], put, sync=sync)

    async def rename(self, source: str, target: str) -> None:
        """Rename a file or directory and sync the directories."""
        paths = [check_path("rename", source), check_path("rename", target)]
        work = partial(self._tree.rename, source, target)
        await self._change_names("rename", paths, work, sync=True)

    async def remove(self, path: str) -> None:
        """Remove a file; no error where there is none."""
        work = partial(self._tree.remove, check_path("remove", path))
        await self._change_names("remove", [path], work)

    async def remove_tree(self, path: str) -> None:
        """Remove a directory with all it holds; no error where there is none."""
        work = partial(self._tree.remove_tree, check_path("remove_tree", path))
        await self._change_names("remove_tree", [path], work)

    async def make_directories(self, path: str) -> None:
        """Make a directory and those above it, and sync each parent that changed."""
        work = partial(self._tree.make_directories, check_directory_path("make_directories", path))
        with self._disk.gate.track("make_directories", path):
            await trio.lowlevel.checkpoint()
            changed = await self._disk.do("make_directories", path, work)
            await self._sync_names("make_directories", path, changed)

    async def entries(self, path: str) -> list[DirectoryEntry]:
        """List a directory sorted by name; an empty list where there is none."""
        work = partial(self._tree.entries, check_directory_path("entries", path))
        return await self._disk.run("entries", path, work)

    async def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        work = partial(self._tree.sync, check_directory_path("sync_directory", path))
        await self._disk.run("sync_directory", path, work)

    async def free_bytes(self) -> tuple[int, int]:
        """Return the free and the total bytes of the disk."""
        free = await self._disk.run("free_bytes", "", self._disk.free_bytes)
        return free, self._disk.total_bytes()

    async def aclose(self) -> None:
        """Finish what is under way."""
        await self._disk.gate.close()

    async def _change_names(
        self, verb: Verb, paths: list[str], work: Callable[[], None], *, sync: bool = False
    ) -> None:
        with self._disk.gate.track(verb, paths[0]):
            async with self._path_locks.hold(*paths):
                await self._disk.do(verb, paths[0], work)
                if sync:
                    await self._sync_names(verb, paths[0], {parent_path(path) for path in paths})

    async def _sync_names(self, verb: Verb, path: str, directories: Iterable[str]) -> None:
        for directory in sorted(directories):
            work = partial(self._tree.sync, directory)
            await self._disk.do("sync_directory", directory, work, part_of=(verb, path))


# An open file of memory storage.


class SimulatedFile:
    """An open file: what its path was, and the content that path led to.

    Args:
        disk: where it is.
        path: its name, relative to the data directory.
        content: its bytes.
        write_lock: all changes pass it in the order of their calls, from whichever open file.
    """

    def __init__(
        self, disk: SimulatedDisk, path: str, content: FileContent, write_lock: HandoffLock
    ) -> None:
        self._disk = disk
        self._path = path
        self._content = content
        self._write_lock = write_lock

    @property
    def path(self) -> str:
        """Its name when it was opened, relative to the data directory."""
        return self._path

    @property
    def descriptor(self) -> None:
        """Nothing that ``sendfile`` could use."""
        return

    def size(self) -> int:
        """Return the length of the file in bytes."""
        return len(self._content.written)

    @property
    def has_room_ahead(self) -> bool:
        """Say no: a simulated disk takes no space ahead."""
        return False

    def write_nowait(self, buffers: Sequence[Buffer], position: int) -> bool:
        """Write all buffers one after another at once, unless the plan refuses."""
        self._disk.gate.check("write", self._path)
        if self._write_lock.is_locked or self._disk.plan.is_refused(self._path):
            return False
        self._disk.write_at_once(self._path, self._content, b"".join(buffers), position)
        return True

    async def write(self, buffers: Sequence[Buffer], position: int, *, sync: bool = False) -> None:
        """Write all buffers one after another, and then sync the data if asked."""
        with self._disk.gate.track("write", self._path):
            async with self._write_lock:
                data = b"".join(buffers)
                await self._disk.write(self._path, self._content, data, position)
                if sync:
                    await self._disk.sync(self._path, self._content)

    def begin_write(self, buffers: Sequence[Buffer], position: int, done: DoneCallback) -> bool:
        """Write all buffers at once and begin to sync the data, unless the plan refuses."""
        if not self.write_nowait(buffers, position):
            return False
        self._disk.gate.enter("sync", self._path)
        trio.lowlevel.spawn_system_task(self._sync_in_background, done)
        return True

    async def _sync_in_background(self, done: DoneCallback) -> None:
        failure = None
        try:
            await self._disk.sync(self._path, self._content)
        except StorageError as error:
            failure = error
        finally:
            self._disk.gate.leave()
        done(failure)

    def read_nowait(self, size: int, position: int) -> bytes | None:
        """Read, unless the plan says that the bytes are on the disk only."""
        self._disk.gate.check("read", self._path)
        return None if self._disk.plan.is_uncached(self._path) else self._slice(size, position)

    async def read(self, size: int, position: int) -> bytes:
        """Read ``size`` bytes, or as many as there are before the file's end."""
        return await self._disk.run("read", self._path, partial(self._slice, size, position))

    def is_cached(self, size: int, position: int) -> bool:
        """Tell whether the plan lets these bytes be in memory."""
        is_empty = not size or position >= self.size()
        return is_empty or not self._disk.plan.is_uncached(self._path)

    async def sync(self) -> None:
        """Bring the data, and the size, to the disk."""
        with self._disk.gate.track("sync", self._path):
            async with self._write_lock:
                pass  # what was to be changed before is changed; what comes later need not wait
            await self._disk.sync(self._path, self._content)

    async def truncate(self, size: int) -> None:
        """Cut or extend the file."""
        with self._disk.gate.track("truncate", self._path):
            async with self._write_lock:
                work = partial(self._content.truncate, size)
                await self._disk.do("truncate", self._path, work)

    async def preallocate(self, size: int) -> bool:
        """Have the disk keep room for the file."""
        work = partial(self._disk.preallocate, self._content, size)
        return await self._disk.run("preallocate", self._path, work)

    def _slice(self, size: int, position: int) -> bytes:
        return bytes(self._content.written[position : position + size])

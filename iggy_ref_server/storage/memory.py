"""Simulated storage for tests: files in memory, with faults, kills and power losses.

storage = MemoryStorage(FaultPlan(seed=7))
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

from iggy_ref_server.baton import Baton
from iggy_ref_server.storage.fault_plan import FaultPlan
from iggy_ref_server.storage.memory_content import Content
from iggy_ref_server.storage.memory_disk import MemoryDisk
from iggy_ref_server.storage.memory_file import MemoryFile
from iggy_ref_server.storage.memory_tree import MemoryTree
from iggy_ref_server.storage.open_budget import OpenBudget
from iggy_ref_server.storage.paths import checked, checked_directory, parent
from iggy_ref_server.storage.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from iggy_protocol import Buffer
    from iggy_ref_server.storage.fault_plan import Verb
    from iggy_ref_server.storage.interface import Entry, File
    from iggy_ref_server.storage.power_loss import Survival

__all__ = ["MemoryStorage"]


class MemoryStorage:
    """A data directory in memory.

    Args:
        plan: what goes wrong; nothing by default.
        tree: the names and files to begin with; none by default.
    """

    def __init__(self, plan: FaultPlan | None = None, tree: MemoryTree | None = None) -> None:
        self.plan = plan or FaultPlan()
        self._disk = MemoryDisk(self.plan, tree or MemoryTree())
        self._tree = self._disk.tree
        self.open_files = OpenBudget()
        self._turns = Turns()
        self._file_turns: WeakKeyDictionary[Content, Baton] = WeakKeyDictionary()

    @property
    def engine(self) -> str:
        """What serves the files, for people."""
        return "memory"

    def kill(self) -> MemoryStorage:
        """End the process at once; return the storage that the next one opens, under the same plan.

        All that was written is there, synced or not, and any part of a write in flight. The old
        storage refuses all calls.
        """
        return MemoryStorage(self.plan, self._disk.tree_after_kill())

    def crash(self, survival: Survival | None = None) -> MemoryStorage:
        """Cut the power; return the storage that is found when it is back, under the same plan.

        Args:
            survival: what becomes of the changes that were not synced; left to the plan's seed for
                each file by default.
        """
        return MemoryStorage(self.plan, self._disk.tree_after_power_loss(survival))

    async def open(self, path: str, *, create: bool = False) -> File:
        """Open a file for reading and writing."""

        def find() -> Content:
            content = self._tree.content(path)
            if content is None and create:
                content = Content()
                self._tree.put(path, content)
            if content is None:
                raise OSError(errno.ENOENT, "No such file")
            return content

        content = await self._disk.visit("open", checked("open", path), find)
        turn = self._file_turns.setdefault(content, Baton())
        return MemoryFile(self._disk, path, content, turn)

    async def read_file(self, path: str, *, size_max: int = 1 << 30) -> bytes | None:
        """Read a whole file; None where there is none."""

        def read() -> bytes | None:
            content = self._tree.content(path)
            if content is not None and len(content.written) > size_max:
                raise OSError(errno.EFBIG, f"larger than {size_max} bytes")
            return None if content is None else bytes(content.written)

        return await self._disk.visit("read_file", checked("read_file", path), read)

    async def replace(self, path: str, content: Buffer, *, sync: bool = True) -> None:
        """Give a file new content, all of it or none."""

        def put() -> None:
            if len(data) > self._disk.free_bytes():
                raise OSError(errno.ENOSPC, "No space left on device")
            self._tree.put(path, Content(data))

        data = bytes(content)
        await self._change_names("replace", [checked("replace", path)], put, sync=sync)

    async def rename(self, source: str, target: str) -> None:
        """Rename a file or directory and sync the directories."""
        paths = [checked("rename", source), checked("rename", target)]
        work = partial(self._tree.rename, source, target)
        await self._change_names("rename", paths, work, sync=True)

    async def remove(self, path: str) -> None:
        """Remove a file; no error where there is none."""
        work = partial(self._tree.remove, checked("remove", path))
        await self._change_names("remove", [path], work)

    async def remove_tree(self, path: str) -> None:
        """Remove a directory with all it holds; no error where there is none."""
        work = partial(self._tree.remove_tree, checked("remove_tree", path))
        await self._change_names("remove_tree", [path], work)

    async def make_directories(self, path: str) -> None:
        """Make a directory and those above it, and sync each parent that changed."""
        work = partial(self._tree.make_directories, checked_directory("make_directories", path))
        with self._disk.gate.passing("make_directories", path):
            await trio.lowlevel.checkpoint()
            changed = await self._disk.do("make_directories", path, work)
            await self._sync_names("make_directories", path, changed)

    async def entries(self, path: str) -> list[Entry]:
        """List a directory sorted by name; an empty list where there is none."""
        work = partial(self._tree.entries, checked_directory("entries", path))
        return await self._disk.visit("entries", path, work)

    async def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        work = partial(self._tree.sync, checked_directory("sync_directory", path))
        await self._disk.visit("sync_directory", path, work)

    async def free_bytes(self) -> tuple[int, int]:
        """Return the free and the total bytes of the disk."""
        free = await self._disk.visit("free_bytes", "", self._disk.free_bytes)
        return free, self._disk.total_bytes()

    async def aclose(self) -> None:
        """Finish what is under way."""
        await self._disk.gate.close()

    async def _change_names(
        self, verb: Verb, paths: list[str], work: Callable[[], None], *, sync: bool = False
    ) -> None:
        with self._disk.gate.passing(verb, paths[0]):
            async with self._turns.taken(*paths):
                await self._disk.do(verb, paths[0], work)
                if sync:
                    await self._sync_names(verb, paths[0], {parent(path) for path in paths})

    async def _sync_names(self, verb: Verb, path: str, directories: Iterable[str]) -> None:
        for directory in sorted(directories):
            work = partial(self._tree.sync, directory)
            await self._disk.do("sync_directory", directory, work, part_of=(verb, path))

"""The simulated disk: applies the fault plan to operations, and simulates kill and power loss."""

from __future__ import annotations

import copy
import errno
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import trio

from iggy_ref_server.storage.gate import Gate
from iggy_ref_server.storage.memory_content import Content
from iggy_ref_server.storage.os_errors import storage_error
from iggy_ref_server.storage.power_loss import PowerLoss

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from iggy_ref_server.storage.fault_plan import FaultPlan, Verb
    from iggy_ref_server.storage.memory_tree import MemoryTree
    from iggy_ref_server.storage.power_loss import Survival

__all__ = ["MemoryDisk"]

# What ``free_bytes`` tells of a disk without a limit.
TOTAL_BYTES = 1 << 40

ResultT = TypeVar("ResultT")


@dataclass(slots=True, eq=False)
class Held:
    """A write that the kernel has taken and not finished."""

    content: Content
    data: bytes
    position: int


class MemoryDisk:
    """A tree of files with a fault plan.

    Attributes:
        gate: counts what is under way.
        is_gone: whether the process that used this disk is dead; it can do nothing any more.
    """

    def __init__(self, plan: FaultPlan, tree: MemoryTree) -> None:
        self.plan = plan
        self.tree = tree
        self.gate = Gate()
        self.is_gone = False
        self._held: list[Held] = []

    async def visit(self, verb: Verb, path: str, work: Callable[[], ResultT]) -> ResultT:
        """Pass the gate and do one thing.

        Raises:
            StorageError: as for ``do``, or the storage is closed.
        """
        with self.gate.passing(verb, path):
            await trio.lowlevel.checkpoint()
            return await self.do(verb, path, work)

    async def do(
        self,
        verb: Verb,
        path: str,
        work: Callable[[], ResultT],
        *,
        part_of: tuple[str, str] | None = None,
    ) -> ResultT:
        """Do one thing, slowly or not at all if the plan says so.

        Args:
            verb: what the plan's rules are asked for.
            path: what it is about.
            work: does it in memory; may raise ``OSError``.
            part_of: what to name in an error when this is only a part of it.

        Raises:
            StorageError: the plan's, or the work's.
        """
        action, blamed = part_of or (verb, path)
        await self._wait(verb, path)
        number = self.plan.error(verb, path)
        if number is not None:
            raise storage_error(action, blamed, number)
        try:
            return work()
        except OSError as error:
            raise storage_error(action, blamed, error) from error

    async def write(self, path: str, content: Content, data: bytes, position: int) -> None:
        """Write, in parts and slowly if the plan says so.

        Raises:
            StorageError: any part of the data was written.
        """
        while True:
            part = data[: self.plan.first_part(path, len(data))]
            with self._holding(Held(content, part, position)):
                await self._wait("write", path)
            self.write_at_once(path, content, part, position)
            data, position = data[len(part) :], position + len(part)
            if not data:
                return

    def write_at_once(self, path: str, content: Content, data: bytes, position: int) -> None:
        """Write if the plan lets it, or as much as fits.

        Raises:
            StorageError: any part of the data was written.
        """
        number = self.plan.error("write", path)
        if number is not None:
            content.write(data[: self.plan.any_part(len(data))], position)
            raise storage_error("write", path, number)
        growth = max(0, position + len(data) - content.used_bytes)
        missing = max(0, growth - self.free_bytes())
        content.write(data[: max(0, len(data) - missing)], position)
        if data and missing:
            raise storage_error("write", path, errno.ENOSPC)

    async def sync(self, path: str, content: Content) -> None:
        """Make durable what was written before this call.

        Raises:
            StorageError: it will never be known whether it is.
        """
        covered = content.begin_sync()
        await self._wait("sync", path)
        number = self.plan.error("sync", path)
        if number is not None:
            content.fail_sync(covered)
            raise storage_error("sync", path, number)
        content.finish_sync(covered)

    def preallocate(self, content: Content, size: int) -> bool:
        """Keep room for a file.

        Raises:
            OSError: there is none.
        """
        if size - content.used_bytes > self.free_bytes():
            raise OSError(errno.ENOSPC, "No space left on device")
        content.reserved_bytes = max(content.reserved_bytes, size)
        return True

    def free_bytes(self) -> int:
        """Return how many bytes fit."""
        if self.plan.capacity_bytes is None:
            return TOTAL_BYTES
        return max(0, self.plan.capacity_bytes - self.tree.used_bytes())

    def total_bytes(self) -> int:
        """Return how large the disk is."""
        return TOTAL_BYTES if self.plan.capacity_bytes is None else self.plan.capacity_bytes

    def tree_after_kill(self) -> MemoryTree:
        """End the process; return what the next one finds."""
        self._end()
        return copy.deepcopy(self.tree)

    def tree_after_power_loss(self, survival: Survival | None) -> MemoryTree:
        """End the process and the machine; return what is found when the power is back."""
        self._end()
        return self.tree.after_power_loss(PowerLoss(self.plan.chance, survival))

    def _end(self) -> None:
        self.is_gone = True
        self.gate.shut()
        for held in self._held:
            survivor = held.data[: self.plan.any_part(len(held.data))]
            held.content.write(survivor, held.position)

    async def _wait(self, verb: Verb, path: str) -> None:
        """Take the time that the plan wants; the kernel cannot be interrupted in it."""
        delay_s = self.plan.delay_s(verb, path)
        if delay_s:
            with trio.CancelScope(shield=True):
                await trio.sleep(delay_s)
        if self.is_gone:
            self.gate.check(verb, path)

    @contextmanager
    def _holding(self, held: Held) -> Iterator[None]:
        self._held.append(held)
        try:
            yield
        finally:
            self._held.remove(held)

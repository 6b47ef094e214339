"""The simulated disk: applies the fault plan to operations, and simulates kill and power loss."""

from __future__ import annotations

import copy
import errno
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

import trio

from iggy_ref_server.storage.interface import storage_error
from iggy_ref_server.storage.locks import InFlightGate
from iggy_ref_server.storage.simulated.fault_plan import ATOMIC_BYTES_MAX, FaultPlan, Verb
from iggy_ref_server.storage.simulated.tree import (
    ChangeState,
    ContentChange,
    FileContent,
    SimulatedTree,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator


# What ``free_bytes`` tells of a disk without a limit.
UNLIMITED_DISK_BYTES = 1 << 40

ResultT = TypeVar("ResultT")


@dataclass(slots=True, eq=False)
class InFlightWrite:
    """A write that the kernel has taken and not finished."""

    content: FileContent
    data: bytes
    position: int


class SimulatedDisk:
    """A tree of files with a fault plan.

    Attributes:
        gate: counts what is under way.
        is_killed: whether the process that used this disk is dead; it can do nothing any more.
    """

    def __init__(self, plan: FaultPlan, tree: SimulatedTree) -> None:
        self.plan = plan
        self.tree = tree
        self.gate = InFlightGate()
        self.is_killed = False
        self._in_flight: list[InFlightWrite] = []

    async def run(self, verb: Verb, path: str, work: Callable[[], ResultT]) -> ResultT:
        """Pass the gate and do one thing.

        Raises:
            StorageError: as for ``do``, or the storage is closed.
        """
        with self.gate.track(verb, path):
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

    async def write(self, path: str, content: FileContent, data: bytes, position: int) -> None:
        """Write, in parts and slowly if the plan says so.

        Raises:
            StorageError: any part of the data was written.
        """
        while True:
            part = data[: self.plan.first_part(path, len(data))]
            with self._tracking(InFlightWrite(content, part, position)):
                await self._wait("write", path)
            self.write_at_once(path, content, part, position)
            data, position = data[len(part) :], position + len(part)
            if not data:
                return

    def write_at_once(self, path: str, content: FileContent, data: bytes, position: int) -> None:
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

    async def sync(self, path: str, content: FileContent) -> None:
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

    def preallocate(self, content: FileContent, size: int) -> bool:
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
            return UNLIMITED_DISK_BYTES
        return max(0, self.plan.capacity_bytes - self.tree.used_bytes())

    def total_bytes(self) -> int:
        """Return how large the disk is."""
        return (
            UNLIMITED_DISK_BYTES if self.plan.capacity_bytes is None else self.plan.capacity_bytes
        )

    def tree_after_kill(self) -> SimulatedTree:
        """End the process; return what the next one finds."""
        self._end()
        return copy.deepcopy(self.tree)

    def tree_after_power_loss(self, survival: Survival | None) -> SimulatedTree:
        """End the process and the machine; return what is found when the power is back."""
        self._end()
        return self.tree.after_power_loss(PowerLoss(self.plan.rng, survival))

    def _end(self) -> None:
        self.is_killed = True
        self.gate.shut()
        for write_in_flight in self._in_flight:
            survivor = write_in_flight.data[: self.plan.any_part(len(write_in_flight.data))]
            write_in_flight.content.write(survivor, write_in_flight.position)

    async def _wait(self, verb: Verb, path: str) -> None:
        """Take the time that the plan wants; the kernel cannot be interrupted in it."""
        delay_s = self.plan.delay_s(verb, path)
        if delay_s:
            with trio.CancelScope(shield=True):
                await trio.sleep(delay_s)
        if self.is_killed:
            self.gate.check(verb, path)

    @contextmanager
    def _tracking(self, write_in_flight: InFlightWrite) -> Iterator[None]:
        self._in_flight.append(write_in_flight)
        try:
            yield
        finally:
            self._in_flight.remove(write_in_flight)


# A simulated power loss: a seed decides which unsynced changes survive.
#
# Disks write pages in any order, so any subset of the unsynced writes may survive, whole or torn at
# any byte. The file system journals name changes in order, so a prefix of those survives.


# A write is torn in at most so many pieces.
TEARS_MAX = 3


class Survival(Enum):
    """How much of what was not synced is on the disk all the same."""

    NOTHING = "nothing"
    PREFIX = "prefix"
    SUBSET = "subset"
    EVERYTHING = "everything"


class PowerLoss:
    """One power failure.

    Args:
        rng: the random generator of all decisions.
        survival: the same for every file; random for each file by default.
    """

    def __init__(self, rng: random.Random, survival: Survival | None = None) -> None:
        self._rng = rng
        self._survival = survival

    def names_count(self, pending_count: int) -> int:
        """Return how many of the unsynced changes of names are there, the oldest first."""
        match self._survival_of_one():
            case Survival.NOTHING:
                return 0
            case Survival.EVERYTHING:
                return pending_count
            case _:
                return self._rng.randint(0, pending_count)

    def surviving(self, changes: list[ContentChange]) -> Iterator[ContentChange]:
        """Pick the changes of one file that are there, or parts of them."""
        survival = self._survival_of_one()
        at_risk_count = sum(change.state is not ChangeState.DURABLE for change in changes)
        whole_count = self._rng.randint(0, at_risk_count)
        for change in changes:
            if change.state is ChangeState.DURABLE or survival is Survival.EVERYTHING:
                yield change
            elif survival is Survival.SUBSET:
                yield from self._torn(change)
            elif survival is Survival.PREFIX:
                if whole_count > 0:
                    yield change
                elif whole_count == 0:
                    yield from self._cut(change)
                whole_count -= 1

    def _survival_of_one(self) -> Survival:
        return self._survival or self._rng.choice(list(Survival))

    def _cut(self, change: ContentChange) -> Iterator[ContentChange]:
        if change.data is not None and len(change.data) > ATOMIC_BYTES_MAX:
            yield replace(change, data=change.data[: self._rng.randint(0, len(change.data))])

    def _torn(self, change: ContentChange) -> Iterator[ContentChange]:
        """Keep all, none or some pieces of a change, each as likely."""
        kept = self._rng.choice(["all", "none", "pieces"])
        if kept == "all":
            yield change
        elif kept == "pieces" and change.data is not None and len(change.data) > ATOMIC_BYTES_MAX:
            size = len(change.data)
            tears = sorted(self._rng.randint(0, size) for _ in range(TEARS_MAX))
            for start, end in zip([0, *tears], [*tears, size], strict=True):
                if start < end and self._rng.random() < 0.5:
                    piece = change.data[start:end]
                    yield replace(change, position=change.position + start, data=piece)

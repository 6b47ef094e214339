"""io_uring under trio: tasks park, operations are submitted together, completions wake the tasks.

All operations prepared between two waits of the event loop are submitted with one system call.
Operations that do not fit into the ring wait in a queue; each belongs to a parked task, so the
queue is never longer than the number of tasks. Results are the kernel's numbers.
"""

from __future__ import annotations

import errno
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import outcome
import trio
from trio.lowlevel import Abort

from iggy_ref_server._uring import Ring

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iggy_protocol import Buffer

    RaiseCancel = Callable[[], object]

__all__ = ["RingDriver", "RingStatistics"]

ENTRIES = 256


class RingStatistics(NamedTuple):
    """What a ring has done and does.

    Attributes:
        operations_count: operations that tasks have asked for.
        submissions_count: calls of the kernel that brought them there.
        in_flight_count: operations prepared and not yet completed.
        waiting_count: operations that found no room.
    """

    operations_count: int
    submissions_count: int
    in_flight_count: int
    waiting_count: int


class Operation:
    """One parked task, and the results it waits for.

    Args:
        entries_count: how many entries it needs in the ring, and how many results it gets.
        prepare: puts them there.

    Attributes:
        raise_cancel: set when the task is to be cancelled.
    """

    __slots__ = ("_missing_count", "_results", "_task", "entries_count", "prepare", "raise_cancel")

    def __init__(self, entries_count: int, prepare: Callable[[Operation], object]) -> None:
        self.entries_count = entries_count
        self.prepare = prepare
        self.raise_cancel: RaiseCancel | None = None
        self._task = trio.lowlevel.current_task()
        self._results = [0] * entries_count
        self._missing_count = entries_count

    def complete(self, part: int, result: int) -> None:
        """Take the result of one entry, and wake the task with the last."""
        self._results[part] = result
        self._missing_count -= 1
        if self._missing_count:
            return
        if self.raise_cancel is not None and result == -errno.ECANCELED:
            trio.lowlevel.reschedule(self._task, outcome.capture(self.raise_cancel))
        else:
            trio.lowlevel.reschedule(self._task, outcome.Value(self._results))

    def fail(self, error: Exception) -> None:
        """Wake the task with an error, as nothing could be prepared."""
        trio.lowlevel.reschedule(self._task, outcome.Error(error))


class RingDriver(trio.abc.Instrument):
    """Carries operations of trio's tasks to the kernel, and their results back.

    It must be made inside a trio run, and lives until ``close`` or the end of that run.

    Args:
        entries: how many operations one submission takes; a write with its sync is two.

    Attributes:
        ring: for tests, which plant faults there.

    Raises:
        OSError: there is no io_uring to be had.
    """

    def __init__(self, *, entries: int = ENTRIES) -> None:
        if entries < 2:
            raise ValueError("a ring needs two entries at least")
        self.ring = Ring(entries)
        self._operations_count = 0
        self._waiting: deque[Operation] = deque()
        self._reaping = trio.CancelScope()
        self._ended = trio.Event()
        # Of the system, because tasks of any nursery wait for it, also while they are cancelled.
        trio.lowlevel.spawn_system_task(self._reap_forever, name="io_uring")
        trio.lowlevel.add_instrument(self)

    def statistics(self) -> RingStatistics:
        """Return what the ring has done and does."""
        return RingStatistics(
            self._operations_count,
            self.ring.submissions,
            self.ring.in_flight,
            len(self._waiting),
        )

    async def write(self, descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
        """Write what one call takes; cannot be cancelled."""

        def prepare(operation: Operation) -> None:
            token = partial(operation.complete, 0)
            self.ring.write(token, descriptor, buffers, position, False)

        [written] = await self._perform(Operation(1, prepare), keep)
        return written

    async def write_and_sync(
        self, descriptor: int, buffers: Sequence[Buffer], position: int
    ) -> tuple[int, int]:
        """Write what one call takes, and sync the data if all was written; cannot be cancelled.

        Returns:
            The result of the write, and that of the sync: ``-ECANCELED`` if there was none.
        """

        def prepare(operation: Operation) -> None:
            written, synced = partial(operation.complete, 0), partial(operation.complete, 1)
            self.ring.write(written, descriptor, buffers, position, True)
            self.ring.fsync(synced, descriptor, True)

        written, synced = await self._perform(Operation(2, prepare), keep)
        return written, synced

    @property
    def has_room(self) -> bool:
        """Whether an operation can begin now."""
        return not self._waiting and self._finds_room(1)

    def begin_sync(self, descriptor: int, done: Callable[[int], None]) -> None:
        """Begin to sync the data, for which there must be room; ``done`` is told the result."""
        self._operations_count += 1
        self.ring.fsync(done, descriptor, True)
        # Not with the others before the loop waits: the disk can be at work meanwhile.
        self.ring.submit()

    async def sync(self, descriptor: int) -> int:
        """Sync the data; cannot be cancelled."""

        def prepare(operation: Operation) -> None:
            self.ring.fsync(partial(operation.complete, 0), descriptor, True)

        [synced] = await self._perform(Operation(1, prepare), keep)
        return synced

    async def read(self, descriptor: int, target: bytes, start: int, position: int) -> int:
        """Read into a target made by ``blank``, from a place in it on, what one call brings.

        When cancelled, the kernel is asked to give up and its answer is awaited.
        """
        tokens = []

        def prepare(operation: Operation) -> None:
            tokens.append(partial(operation.complete, 0))
            self.ring.read(tokens[0], descriptor, target, start, position)

        def give_up(raise_cancel: RaiseCancel) -> Abort:
            if not tokens:
                self._waiting.remove(operation)
                return Abort.SUCCEEDED
            operation.raise_cancel = raise_cancel
            self.ring.cancel(tokens[0])
            return Abort.FAILED

        operation = Operation(1, prepare)
        [count] = await self._perform(operation, give_up)
        return count

    # Measured against submitting each operation at once, and against a task that is woken once per
    # round: with one writer this is as quick as the former, with many as cheap as the latter.
    def before_io_wait(self, timeout: float) -> None:
        """Submit what was prepared since the loop last waited; trio calls this."""
        if self.ring.prepared:
            self.ring.submit()

    async def aclose(self) -> None:
        """Let go of the ring, once nothing is under way any more."""
        self._reaping.cancel()
        with trio.CancelScope(shield=True):
            await self._ended.wait()
        await trio.lowlevel.checkpoint()

    # An interrupt from the keyboard must not come between preparing and parking.
    @trio.lowlevel.enable_ki_protection
    async def _perform(
        self, operation: Operation, abort: Callable[[RaiseCancel], Abort]
    ) -> list[int]:
        self._operations_count += operation.entries_count
        if not self._waiting and self._finds_room(operation.entries_count):
            operation.prepare(operation)
        else:
            self._waiting.append(operation)
        results: list[int] = await trio.lowlevel.wait_task_rescheduled(abort)
        return results

    def _finds_room(self, entries_count: int) -> bool:
        if self.ring.room < entries_count:
            self.ring.submit()
        return self.ring.room >= entries_count

    async def _reap_forever(self) -> None:
        try:
            with self._reaping:
                while True:
                    await trio.lowlevel.wait_readable(self.ring.eventfd)
                    self._reap()
                    self._prepare_waiting()
        finally:
            trio.lowlevel.remove_instrument(self)
            self.ring.close()
            self._ended.set()

    def _reap(self) -> None:
        # Not in the loop above, whose variables would keep the last buffers alive while it waits.
        for complete, result in self.ring.reap():
            complete(result)

    def _prepare_waiting(self) -> None:
        while self._waiting and self._finds_room(self._waiting[0].entries_count):
            operation = self._waiting.popleft()
            try:
                operation.prepare(operation)
            except Exception as error:
                operation.fail(error)


def keep(raise_cancel: RaiseCancel) -> Abort:
    """Answer a cancellation while the kernel reads the task's buffers."""
    return Abort.FAILED

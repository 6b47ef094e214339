"""The storage engine for Linux: io_uring runs reads, writes and syncs that may wait for a disk."""

from __future__ import annotations

import errno
import os
from collections import deque
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import outcome
import trio
from trio.lowlevel import Abort

from iggy_ref_server._uring import Ring, blank
from iggy_ref_server.storage.files import THREADS_MAX, PosixDirectory, PosixFile, WritebackLimit
from iggy_ref_server.storage.interface import DoneCallback, File, storage_error
from iggy_ref_server.storage.locks import SharedSync
from iggy_ref_server.storage.posix import BUFFERS_MAX, Descriptor, locate_byte, preallocate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from iggy_protocol import Buffer


# io_uring under trio: tasks park, operations are submitted together, completions wake the tasks.
#
# All operations prepared between two waits of the event loop are submitted with one system call.
# Operations that do not fit into the ring wait in a queue; each belongs to a parked task, so the
# queue is never longer than the number of tasks. Results are the kernel's numbers.


if TYPE_CHECKING:
    RaiseCancel = Callable[[], object]

RING_ENTRIES = 256


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


class RingOperation:
    """One parked task, and the results it waits for.

    Args:
        entries_count: how many entries it needs in the ring, and how many results it gets.
        prepare: puts them there.

    Attributes:
        raise_cancel: set when the task is to be cancelled.
    """

    __slots__ = ("_missing_count", "_results", "_task", "entries_count", "prepare", "raise_cancel")

    def __init__(self, entries_count: int, prepare: Callable[[RingOperation], object]) -> None:
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

    def __init__(self, *, entries: int = RING_ENTRIES) -> None:
        if entries < 2:
            raise ValueError("a ring needs two entries at least")
        self.ring = Ring(entries)
        self._operations_count = 0
        self._waiting: deque[RingOperation] = deque()
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

        def prepare(operation: RingOperation) -> None:
            token = partial(operation.complete, 0)
            self.ring.write(token, descriptor, buffers, position, False)

        [written] = await self._perform(RingOperation(1, prepare), ignore_cancellation)
        return written

    async def write_and_sync(
        self, descriptor: int, buffers: Sequence[Buffer], position: int
    ) -> tuple[int, int]:
        """Write what one call takes, and sync the data if all was written; cannot be cancelled.

        Returns:
            The result of the write, and that of the sync: ``-ECANCELED`` if there was none.
        """

        def prepare(operation: RingOperation) -> None:
            written, synced = partial(operation.complete, 0), partial(operation.complete, 1)
            self.ring.write(written, descriptor, buffers, position, True)
            self.ring.fsync(synced, descriptor, True)

        written, synced = await self._perform(RingOperation(2, prepare), ignore_cancellation)
        return written, synced

    @property
    def has_room(self) -> bool:
        """Whether an operation can begin now."""
        return not self._waiting and self._make_room(1)

    def begin_sync(self, descriptor: int, done: Callable[[int], None]) -> None:
        """Begin to sync the data, for which there must be room; ``done`` is told the result."""
        self._operations_count += 1
        self.ring.fsync(done, descriptor, True)
        # Not with the others before the loop waits: the disk can be at work meanwhile.
        self.ring.submit()

    async def sync(self, descriptor: int) -> int:
        """Sync the data; cannot be cancelled."""

        def prepare(operation: RingOperation) -> None:
            self.ring.fsync(partial(operation.complete, 0), descriptor, True)

        [synced] = await self._perform(RingOperation(1, prepare), ignore_cancellation)
        return synced

    async def read(self, descriptor: int, target: bytes, start: int, position: int) -> int:
        """Read into a target made by ``blank``, from a place in it on, what one call brings.

        When cancelled, the kernel is asked to give up and its answer is awaited.
        """
        tokens = []

        def prepare(operation: RingOperation) -> None:
            tokens.append(partial(operation.complete, 0))
            self.ring.read(tokens[0], descriptor, target, start, position)

        def give_up(raise_cancel: RaiseCancel) -> Abort:
            if not tokens:
                self._waiting.remove(operation)
                return Abort.SUCCEEDED
            operation.raise_cancel = raise_cancel
            self.ring.cancel(tokens[0])
            return Abort.FAILED

        operation = RingOperation(1, prepare)
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
        self, operation: RingOperation, abort: Callable[[RaiseCancel], Abort]
    ) -> list[int]:
        self._operations_count += operation.entries_count
        if not self._waiting and self._make_room(operation.entries_count):
            operation.prepare(operation)
        else:
            self._waiting.append(operation)
        results: list[int] = await trio.lowlevel.wait_task_rescheduled(abort)
        return results

    def _make_room(self, entries_count: int) -> bool:
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
        while self._waiting and self._make_room(self._waiting[0].entries_count):
            operation = self._waiting.popleft()
            try:
                operation.prepare(operation)
            except Exception as error:
                operation.fail(error)


def ignore_cancellation(raise_cancel: RaiseCancel) -> Abort:
    """Answer a cancellation while the kernel reads the task's buffers."""
    return Abort.FAILED


# The kernel's result for a linked sync that it skipped because the write was short.
SYNC_SKIPPED = -errno.ECANCELED


class UringStorage(PosixDirectory):
    """A data directory served by io_uring, with worker threads for names.

    It must be made inside a trio run, and ends with that run at the latest.

    Args:
        root: the data directory.
        writeback_limit: says when to write inline; one of its own by default.
        threads_max: how many worker threads may be busy at once.
        entries: how many operations one submission takes.

    Attributes:
        driver: the way to the kernel; for statistics, and for tests that plant faults.

    Raises:
        OSError: there is no io_uring to be had.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        writeback_limit: WritebackLimit | None = None,
        threads_max: int = THREADS_MAX,
        entries: int = RING_ENTRIES,
    ) -> None:
        super().__init__(root, threads_max=threads_max)
        self._writeback_limit = writeback_limit or WritebackLimit()
        self.driver = RingDriver(entries=entries)

    @property
    def engine(self) -> str:
        """What serves the files, for people."""
        return "io_uring"

    async def open(self, path: str, *, create: bool = False) -> File:
        """Open a file for reading and writing."""
        descriptor = await self.open_descriptor(path, create=create)
        return UringFile(self, path, descriptor, self._writeback_limit, self.driver)

    async def aclose(self) -> None:
        """Wait for operations in flight; open files close with their last reference."""
        try:
            await super().aclose()
        finally:
            await self.driver.aclose()


class UringFile(PosixFile):
    """An open file; writes and syncs are finished once begun, reads are given up if possible."""

    def __init__(
        self,
        directory: PosixDirectory,
        path: str,
        descriptor: Descriptor,
        writeback_limit: WritebackLimit,
        driver: RingDriver,
    ) -> None:
        super().__init__(path, descriptor, directory.gate, writeback_limit)
        self._directory = directory
        self._driver = driver
        self._syncs = SharedSync()

    async def write(self, buffers: Sequence[Buffer], position: int, *, sync: bool = False) -> None:
        """Write all buffers one after another, and then sync the data if asked."""
        with self._gate.track("write", self.path):
            await self.write_lock.acquire()
            try:
                work = partial(self._write_all, buffers, position, sync=sync)
                synced = await (self._syncs.lead(work) if sync else work())
            finally:
                self.write_lock.release()
        self._check_sync(synced)

    def begin_write(self, buffers: Sequence[Buffer], position: int, done: DoneCallback) -> bool:
        """Write all buffers at once and begin to sync the data, if that is wise."""
        self._gate.check("write", self.path)
        if not self._driver.has_room or not self._syncs.begin_nowait():
            return False
        is_written = False
        try:
            is_written = self.write_nowait(buffers, position)
        finally:
            if not is_written:
                self._syncs.end(None)
        if is_written:
            self._gate.enter("sync", self.path)
            self._driver.begin_sync(self.descriptor, partial(self._on_sync_done, done))
        return is_written

    def _on_sync_done(self, done: DoneCallback, result: int) -> None:
        self._syncs.end(result)
        self._gate.leave()
        done(storage_error("sync", self.path, -result) if result else None)

    async def read(self, size: int, position: int) -> bytes:
        """Read ``size`` bytes, or as many as there are before the file's end."""
        with self._gate.track("read", self.path):
            size = self._size_inside(size, position)
            if not size:
                await trio.lowlevel.checkpoint()
                return b""
            await trio.lowlevel.checkpoint_if_cancelled()
            return await self._read_all(blank(size), position)

    async def sync(self) -> None:
        """Bring the data, and the size, to the disk."""
        with self._gate.track("sync", self.path):
            # What was to be changed before is changed then; what comes later need not wait.
            await self.write_lock.acquire()
            self.write_lock.release()
            self._check_sync(await self._syncs.join(partial(self._driver.sync, self.descriptor)))

    async def truncate(self, size: int) -> None:
        """Cut or extend the file."""
        with self._gate.track("truncate", self.path):
            async with self.write_lock:
                work = partial(os.ftruncate, self.descriptor, size)
                await self._directory.run_blocking("truncate", self.path, work)

    async def preallocate(self, size: int) -> bool:
        """Have the disk keep room for the file."""
        with self._gate.track("preallocate", self.path):
            async with self.write_lock:
                work = partial(preallocate, self.descriptor, size)
                return await self._directory.run_blocking("preallocate", self.path, work)

    def _check_sync(self, result: int) -> None:
        if result:
            raise storage_error("sync", self.path, -result)

    async def _read_all(self, target: bytes, position: int) -> bytes:
        count = 0
        while count < len(target):
            more = await self._driver.read(self.descriptor, target, count, position + count)
            if more < 0:
                raise storage_error("read", self.path, -more)
            if not more:  # the file was cut meanwhile
                return target[:count]
            count += more
        return target

    async def _write_all(self, buffers: Sequence[Buffer], position: int, *, sync: bool) -> int:
        """Write until nothing is left; return the result of the sync, 0 if none was asked for."""
        synced = SYNC_SKIPPED
        index, skip = locate_byte(buffers, 0, 0)
        if index == len(buffers) and not sync:
            await trio.lowlevel.checkpoint()
        while index < len(buffers):
            is_last = len(buffers) - index <= BUFFERS_MAX
            with remaining_buffers(buffers, index, skip) as rest:
                written, synced = await self._write_some(rest, position, sync=sync and is_last)
            if synced not in (0, SYNC_SKIPPED):
                return synced
            if written <= 0:
                raise storage_error("write", self.path, -written or errno.EIO)
            position += written
            index, skip = locate_byte(buffers, index, skip + written)
        if not sync:
            return 0
        return synced if synced == 0 else await self._driver.sync(self.descriptor)

    async def _write_some(
        self, buffers: Sequence[Buffer], position: int, *, sync: bool
    ) -> tuple[int, int]:
        if sync:
            return await self._driver.write_and_sync(self.descriptor, buffers, position)
        return await self._driver.write(self.descriptor, buffers, position), SYNC_SKIPPED


@contextmanager
def remaining_buffers(
    buffers: Sequence[Buffer], index: int, skip: int
) -> Iterator[Sequence[Buffer]]:
    """Give what one call takes, beginning inside a buffer."""
    if not skip:
        yield buffers[index : index + BUFFERS_MAX]
        return
    # Let go by hand, so that the caller can resize its buffers even while an error is handled.
    with memoryview(buffers[index]) as whole, whole.cast("B") as flat, flat[skip:] as head:
        yield [head, *buffers[index + 1 : index + BUFFERS_MAX]]

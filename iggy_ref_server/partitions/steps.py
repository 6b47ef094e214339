"""Steps: work that is written once, as a generator, and run at once, in the background or awaited.

A body yields each ``Need`` that may have to wait for a disk, and gets its result or its error at
the ``yield``. It yields nothing for what is in memory. A driver decides how a need is met:

    run_now(steps)                      all at once; or hands back what is left, ``Suspended``
    run_if_ready(steps)                 all at once; or closes the steps, and nothing more is done
    await run_async(steps)              at once as far as possible, then awaits the rest
    run_in_background(steps, nursery)   never waits: a completion continues the steps, or a task

Closing a suspended body releases what it holds, because its locks are released by ``finally``. A
body must not yield there. In the background nothing is raised to the caller: an error that the body
does not catch ends the nursery.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from iggy_protocol import Buffer
    from iggy_ref_server.handoff_lock import HandoffLock
    from iggy_ref_server.storage.interface import DoneCallback, File, StorageError


LOGGER = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")

NOT_READY: Final = object()
"""Says that a need cannot be met at once."""


class Need(ABC):
    """What a body cannot go on without.

    Attributes:
        is_shielded: whether waiting for it cannot be cancelled, because it changes files.
    """

    __slots__ = ()

    is_shielded = False

    def try_now(self) -> Any:
        """Return the result if it is there without waiting, else ``NOT_READY``."""
        return NOT_READY

    def begin(self, done: DoneCallback) -> bool:
        """Begin what has no result, and call back at the end, never before this returns.

        Returns:
            Whether it was begun. False means that nothing was done, and ``perform`` must be
            awaited.
        """
        return False

    @abstractmethod
    async def perform(self) -> Any:
        """Wait for the result."""


Steps: TypeAlias = Generator[Need, Any, ResultT]
"""A body: yields needs, is sent their results, and returns a result of its own."""


class Await(Need):
    """An asynchronous call, for what can never be done at once."""

    __slots__ = ("_arguments", "_function")

    def __init__(self, function: Callable[..., Awaitable[Any]], *arguments: object) -> None:
        self._function = function
        self._arguments = arguments

    async def perform(self) -> Any:
        """Make the call."""
        return await self._function(*self._arguments)


class AwaitShielded(Await):
    """An asynchronous call that changes files, and is finished once it was begun."""

    __slots__ = ()

    is_shielded = True


class AcquireLock(Need):
    """A lock; the body releases it."""

    __slots__ = ("_lock",)

    def __init__(self, lock: HandoffLock) -> None:
        self._lock = lock

    def try_now(self) -> Any:
        """Acquire the lock if it is free."""
        return True if self._lock.acquire_nowait() else NOT_READY

    async def perform(self) -> None:
        """Wait for the lock."""
        await self._lock.acquire()


class ReadFile(Need):
    """Bytes of a file; fewer than asked for where it ends."""

    __slots__ = ("_file", "_position", "_size")

    def __init__(self, file: File, size: int, position: int) -> None:
        self._file = file
        self._size = size
        self._position = position

    def try_now(self) -> Any:
        """Read from memory, if all of it is there."""
        content = self._file.read_nowait(self._size, self._position)
        return NOT_READY if content is None else content

    async def perform(self) -> bytes:
        """Read from the disk."""
        return await self._file.read(self._size, self._position)


class WriteFile(Need):
    """Buffers that have to reach a file, and with ``sync`` the disk."""

    __slots__ = ("_buffers", "_file", "_position", "_sync")

    is_shielded = True

    def __init__(self, file: File, buffers: Sequence[Buffer], position: int, *, sync: bool) -> None:
        self._file = file
        self._buffers = buffers
        self._position = position
        self._sync = sync

    def try_now(self) -> Any:
        """Write into the page cache; a sync always has to wait."""
        if self._sync or not self._file.write_nowait(self._buffers, self._position):
            return NOT_READY
        return None

    def begin(self, done: DoneCallback) -> bool:
        """Begin to write and sync. Without a sync there is nothing to call back from."""
        return self._sync and self._file.begin_write(self._buffers, self._position, done)

    async def perform(self) -> None:
        """Write, and sync if asked."""
        await self._file.write(self._buffers, self._position, sync=self._sync)


class Suspended(Generic[ResultT]):
    """Steps that stopped at a need; nothing of what they did has to be done again.

    One of ``finish``, ``finish_in_background`` and ``close`` is called, once.
    """

    __slots__ = ("_need", "_steps")

    def __init__(self, steps: Steps[ResultT], need: Need) -> None:
        self._steps = steps
        self._need = need

    def close(self) -> None:
        """Give up what is left to do, and have the body release what it holds."""
        self._steps.close()

    async def finish(self) -> ResultT:
        """Wait for what is left to do, and return the result."""
        suspended = self
        while True:
            try:
                result = await suspended._perform()
            except BaseException as error:  # cancellation too: the body releases what it holds
                outcome = _throw(self._steps, error)
            else:
                outcome = _send(self._steps, result)
            if not isinstance(outcome, Suspended):
                return outcome
            suspended = outcome

    async def _perform(self) -> Any:
        if not self._need.is_shielded:
            return await self._need.perform()
        with trio.CancelScope(shield=True):
            return await self._need.perform()

    def finish_in_background(self, nursery: trio.Nursery) -> None:
        """Do what is left when the need is met: from its completion, or else in a task."""
        try:
            self._begin_or_start_task(nursery)
        except Exception as error:
            _raise_in_nursery(nursery, error)

    def _begin_or_start_task(self, nursery: trio.Nursery) -> None:
        outcome: ResultT | Suspended[ResultT] = self
        while isinstance(outcome, Suspended):
            try:
                if outcome._need.begin(partial(self._on_done, nursery)):
                    return
            except Exception as error:
                outcome = _throw(self._steps, error)
                continue
            self._start_task(outcome, nursery)
            return

    def _start_task(self, suspended: Suspended[ResultT], nursery: trio.Nursery) -> None:
        try:
            nursery.start_soon(suspended.finish)
        except RuntimeError:
            # The nursery has ended, so this shard stops, and closes its partitions, which writes
            # what is left. They wait for the locks that are held here.
            suspended.close()

    def _on_done(self, nursery: trio.Nursery, error: StorageError | None) -> None:
        try:
            outcome = _send(self._steps, None) if error is None else _throw(self._steps, error)
        except Exception as uncaught:
            # Not raised here: the task that calls this serves all other completions too, and its
            # end would end the process without closing the partitions.
            _raise_in_nursery(nursery, uncaught)
            return
        if isinstance(outcome, Suspended):
            outcome.finish_in_background(nursery)


def run_now(steps: Steps[ResultT]) -> ResultT | Suspended[ResultT]:
    """Run steps without waiting.

    Returns:
        Their result, or what is left of them at the first need that has to wait.
    """
    return _send(steps, None)


def run_if_ready(steps: Steps[ResultT]) -> ResultT | None:
    """Run steps without waiting; close them and return None if a need has to wait."""
    outcome = _send(steps, None)
    if isinstance(outcome, Suspended):
        outcome.close()
        return None
    return outcome


async def run_async(steps: Steps[ResultT]) -> ResultT:
    """Run steps, and wait for what they need; a checkpoint only if something has to wait."""
    outcome = _send(steps, None)
    if isinstance(outcome, Suspended):
        return await outcome.finish()
    return outcome


def run_in_background(steps: Steps[None], nursery: trio.Nursery) -> None:
    """Run steps without waiting, and have the rest done later."""
    try:
        outcome = _send(steps, None)
    except Exception as error:
        _raise_in_nursery(nursery, error)
        return
    if isinstance(outcome, Suspended):
        outcome.finish_in_background(nursery)


def _raise_in_nursery(nursery: trio.Nursery, error: Exception) -> None:
    async def fail() -> None:
        raise error

    try:
        nursery.start_soon(fail)
    except RuntimeError:
        LOGGER.error("work failed after the end of its nursery", exc_info=error)


def _send(steps: Steps[ResultT], result: Any) -> ResultT | Suspended[ResultT]:
    """Continue steps with the result of their need."""
    try:
        need = steps.send(result)
    except StopIteration as stop:
        value: ResultT = stop.value
        return value
    return _meet(steps, need)


def _throw(steps: Steps[ResultT], error: BaseException) -> ResultT | Suspended[ResultT]:
    """Continue steps with the error of their need."""
    try:
        need = steps.throw(error)
    except StopIteration as stop:
        value: ResultT = stop.value
        return value
    return _meet(steps, need)


def _meet(steps: Steps[ResultT], need: Need) -> ResultT | Suspended[ResultT]:
    """Meet needs as long as that is possible at once."""
    try:
        while True:
            try:
                result = need.try_now()
            except Exception as error:
                need = steps.throw(error)
                continue
            if result is NOT_READY:
                return Suspended(steps, need)
            need = steps.send(result)
    except StopIteration as stop:
        value: ResultT = stop.value
        return value

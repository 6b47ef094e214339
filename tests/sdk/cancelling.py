"""Cancels a coroutine at its k-th checkpoint, for every k there is.

    async for checkpoint in cancelled_everywhere(operation):
        ...                                         # look at what the cancellation left behind

A checkpoint is where a coroutine lets others run; there, and nowhere else, can it be cancelled. The
operation is a function that makes a new coroutine each time. It runs once for k = 1, 2, … and is
cancelled when it stands at that checkpoint, until a run ends before it comes to one. Works on both
engines, because it drives the coroutine itself and passes on what it awaits.

An operation may start tasks of its own. With ``children`` their checkpoints count as well, in the
order in which they are reached, and at each of them all of the operation is cancelled.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import anyio
import trio
from anyio.lowlevel import checkpoint, current_token

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator

CHECKPOINTS_MAX = 1_000
"""An operation with more of them does not end, or should be tested in parts."""

TURNS_TO_REST = 30
"""How often everybody may run before a task that is still there counts as one that stays."""


class _Count:
    """Counts checkpoints, and cancels a scope at a certain one."""

    def __init__(self, scope: anyio.CancelScope, stop: int) -> None:
        self._scope = scope
        self._left = stop
        self.is_reached = False

    def note(self) -> None:
        """Count one more."""
        self._left -= 1
        if self._left == 0:
            self.is_reached = True
            self._scope.cancel()


_FAMILY: ContextVar[_Count | None] = ContextVar("family", default=None)
"""The count of the operation that a task belongs to; tasks inherit it from those who start them."""


class _Counted:
    """Awaits a coroutine and counts its checkpoints."""

    def __init__(self, operation: Awaitable[Any], count: _Count) -> None:
        self._operation = operation
        self._count = count

    def __await__(self) -> Generator[Any, Any, Any]:
        running = self._operation.__await__()
        send: Callable[[], Any] = lambda: next(running)  # noqa: E731  replaced at every step
        while True:
            try:
                awaited = send()
            except StopIteration as finished:
                return finished.value
            self._count.note()
            try:
                value = yield awaited
            except BaseException as error:
                send = _thrower(running, error)
            else:
                send = _sender(running, value)


def _thrower(running: Generator[Any, Any, Any], error: BaseException) -> Callable[[], Any]:
    return lambda: running.throw(error)


def _sender(running: Generator[Any, Any, Any], value: Any) -> Callable[[], Any]:
    return lambda: running.send(value)


@contextmanager
def _children_counted(count: _Count) -> Iterator[None]:
    """Count the checkpoints of tasks that are started in here, too."""
    token = _FAMILY.set(count)
    loop: Any = current_token().native_token
    try:
        if isinstance(loop, asyncio.AbstractEventLoop):
            with _made_by_asyncio(loop):
                yield
        else:
            with _stepped_by_trio(count):
                yield
    finally:
        _FAMILY.reset(token)


@contextmanager
def _made_by_asyncio(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    async def counted(coroutine: Coroutine[Any, Any, Any], count: _Count) -> Any:
        return await _Counted(coroutine, count)

    def make(loop: asyncio.AbstractEventLoop, coroutine: Any, **named: Any) -> asyncio.Task[Any]:
        count = _FAMILY.get()
        return asyncio.Task(
            coroutine if count is None else counted(coroutine, count), loop=loop, **named
        )

    before = loop.get_task_factory()
    loop.set_task_factory(make)
    try:
        yield
    finally:
        loop.set_task_factory(before)


@contextmanager
def _stepped_by_trio(count: _Count) -> Iterator[None]:
    parent = trio.lowlevel.current_task()

    class Steps(trio.abc.Instrument):
        def after_task_step(self, task: trio.lowlevel.Task) -> None:
            # One that has ended stands at no checkpoint, and the operation counts for itself.
            is_alive = task is not parent and task.coro.cr_frame is not None
            if is_alive and task.context.get(_FAMILY) is count:
                count.note()

    steps = Steps()
    trio.lowlevel.add_instrument(steps)
    try:
        yield
    finally:
        trio.lowlevel.remove_instrument(steps)


async def cancel_at(
    operation: Callable[[], Awaitable[Any]], checkpoint: int, *, children: bool = False
) -> bool:
    """Run an operation, cancelled at this checkpoint; return whether it came that far.

    One that shields itself may end all the same.

    Args:
        operation: makes what is run.
        checkpoint: which one, beginning with 1.
        children: whether checkpoints of tasks that it starts count as well.
    """
    with anyio.CancelScope() as scope:
        count = _Count(scope, checkpoint)
        if children:
            with _children_counted(count):
                await _Counted(operation(), count)
        else:
            await _Counted(operation(), count)
    return count.is_reached


async def cancelled_everywhere(
    operation: Callable[[], Awaitable[Any]], *, children: bool = False
) -> AsyncIterator[int]:
    """Run an operation again and again, cancelled one checkpoint later each time.

    Args:
        operation: makes what is run.
        children: whether checkpoints of tasks that it starts count as well.

    Yields:
        The number of the checkpoint, after each run that was cancelled.
    """
    for number in range(1, CHECKPOINTS_MAX):
        if not await cancel_at(operation, number, children=children):
            assert number > 1, "the operation has no checkpoint"
            return
        yield number
    raise AssertionError(f"the operation has {CHECKPOINTS_MAX} checkpoints or more")


async def tasks_at_rest() -> set[int]:
    """Tell which tasks there are, after all have had time to end that are about to."""
    for _ in range(TURNS_TO_REST):
        await checkpoint()
    return {task.id for task in anyio.get_running_tasks()}

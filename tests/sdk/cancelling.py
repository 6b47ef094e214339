"""Cancels a coroutine at its k-th checkpoint, for every k there is.

    async for checkpoint in cancelled_everywhere(operation):
        ...                                         # look at what the cancellation left behind

A checkpoint is where a coroutine lets others run; there, and nowhere else, can it be cancelled. The
operation is a function that makes a new coroutine each time. It runs once for k = 1, 2, … and is
cancelled when it stands at that checkpoint, until a run ends before it comes to one. Works on both
engines, because it drives the coroutine itself and passes on what it awaits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Generator

CHECKPOINTS_MAX = 1_000
"""An operation with more of them does not end, or should be tested in parts."""


class _Counted:
    """Awaits a coroutine and cancels a scope when it stands at a certain checkpoint."""

    def __init__(self, operation: Awaitable[Any], scope: anyio.CancelScope, stop: int) -> None:
        self._operation = operation
        self._scope = scope
        self._stop = stop
        self.is_reached = False

    def __await__(self) -> Generator[Any, Any, Any]:
        running = self._operation.__await__()
        send: Callable[[], Any] = lambda: next(running)  # noqa: E731  replaced at every step
        passed = 0
        while True:
            try:
                awaited = send()
            except StopIteration as finished:
                return finished.value
            passed += 1
            if passed == self._stop:
                self.is_reached = True
                self._scope.cancel()
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


async def cancel_at(operation: Callable[[], Awaitable[Any]], checkpoint: int) -> bool:
    """Run an operation, cancelled at this checkpoint; return whether it came that far.

    One that shields itself may end all the same.
    """
    with anyio.CancelScope() as scope:
        counted = _Counted(operation(), scope, checkpoint)
        await counted
    return counted.is_reached


async def cancelled_everywhere(operation: Callable[[], Awaitable[Any]]) -> AsyncIterator[int]:
    """Run an operation again and again, cancelled one checkpoint later each time.

    Yields:
        The number of the checkpoint, after each run that was cancelled.
    """
    for checkpoint in range(1, CHECKPOINTS_MAX):
        if not await cancel_at(operation, checkpoint):
            assert checkpoint > 1, "the operation has no checkpoint"
            return
        yield checkpoint
    raise AssertionError(f"the operation has {CHECKPOINTS_MAX} checkpoints or more")

"""Calling ``on_error`` for messages that were not sent.

The callback runs in its own task, so that a slow one delays no delivery. A failure in the queue
keeps its bytes of the buffer until the call, which bounds the queue. Exceptions of the callback are
logged and counted.
"""

from __future__ import annotations

import inspect
import logging
from collections import deque
from typing import TYPE_CHECKING, Final

import anyio

if TYPE_CHECKING:
    from iggy_sdk.errors import SendFailedError
    from iggy_sdk.producer.budget import ByteBudget
    from iggy_sdk.producer.options import ErrorCallback

__all__ = ["Reports"]

_LOGGER: Final = logging.getLogger("iggy_sdk.producer")


class Reports:
    """A queue of failures, reported one after another.

    Args:
        callback: called with each failure.
        budget: gets the bytes of a failure back before the call.
    """

    def __init__(self, callback: ErrorCallback, budget: ByteBudget) -> None:
        self._callback = callback
        self._budget = budget
        self._queue: deque[tuple[SendFailedError, int]] = deque()
        self._is_telling = False
        self._wake: anyio.Event | None = None
        self._quiet: anyio.Event | None = None
        self.errors_count = 0

    def add(self, error: SendFailedError, size_bytes: int) -> None:
        """Queue a failure for the callback."""
        self._queue.append((error, size_bytes))
        if self._wake is not None:
            self._wake.set()

    async def run(self) -> None:
        """Call the callback for queued failures until this is cancelled."""
        while True:
            while self._queue:
                await self._tell_next()
            if self._quiet is not None:
                self._quiet.set()
                self._quiet = None
            self._wake = anyio.Event()
            await self._wake.wait()

    async def wait_until_quiet(self) -> None:
        """Wait until all failures were reported."""
        while self._queue or self._is_telling:
            if self._quiet is None:
                self._quiet = anyio.Event()
            await self._quiet.wait()

    def log_rest(self) -> None:
        """Log failures that were not reported before the producer closed."""
        while self._queue:
            error, size_bytes = self._queue.popleft()
            self._budget.give_back(size_bytes)
            _LOGGER.error("on_error was not called before the producer closed: %s", error)

    async def _tell_next(self) -> None:
        error, size_bytes = self._queue.popleft()
        self._is_telling = True
        # Before the call, because the callback may send the messages again.
        self._budget.give_back(size_bytes)
        try:
            answer = self._callback(error)
            if inspect.isawaitable(answer):
                await answer
        except Exception:
            self.errors_count += 1
            _LOGGER.exception("on_error raised an exception; the producer continues")
        finally:
            self._is_telling = False

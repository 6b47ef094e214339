"""Telling the user's callback of messages that were given up.

The callback runs in a task of its own, so that a slow one holds up no delivery. What waits to be
told keeps its bytes of the buffer until its turn comes, which bounds this queue as well. What the
callback raises is logged and counted.
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
    """A queue of failures, told one after another.

    Args:
        callback: who is told.
        budget: where the bytes of a failure go back to when its turn comes.
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
        """Have the callback told of a failure."""
        self._queue.append((error, size_bytes))
        if self._wake is not None:
            self._wake.set()

    async def run(self) -> None:
        """Tell the callback until this is cancelled."""
        while True:
            while self._queue:
                await self._tell_next()
            if self._quiet is not None:
                self._quiet.set()
                self._quiet = None
            self._wake = anyio.Event()
            await self._wake.wait()

    async def wait_until_quiet(self) -> None:
        """Wait until everything was told."""
        while self._queue or self._is_telling:
            if self._quiet is None:
                self._quiet = anyio.Event()
            await self._quiet.wait()

    def log_rest(self) -> None:
        """Log what is left when nobody is told any more."""
        while self._queue:
            error, size_bytes = self._queue.popleft()
            self._budget.give_back(size_bytes)
            _LOGGER.error("on_error was not told in time: %s", error)

    async def _tell_next(self) -> None:
        error, size_bytes = self._queue.popleft()
        self._is_telling = True
        # Before the callback, because it may want to send the messages again.
        self._budget.give_back(size_bytes)
        try:
            answer = self._callback(error)
            if inspect.isawaitable(answer):
                await answer
        except Exception:
            self.errors_count += 1
            _LOGGER.exception("on_error failed; the producer goes on")
        finally:
            self._is_telling = False

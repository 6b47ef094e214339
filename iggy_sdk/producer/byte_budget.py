"""The byte limit of a buffer: acquired for an accepted message, released when it is finished.

Callers that find no space wait in order of arrival. Bytes stay acquired until the server has
acknowledged the message, so the limit is one of memory and not of a queue alone.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import anyio

from iggy_protocol import StatusCode
from iggy_sdk.errors import BufferFullError

if TYPE_CHECKING:
    from iggy_sdk.errors import IggyError
    from iggy_sdk.producer.options import Backpressure


class _SpaceWaiter:
    """One caller that waits for space."""

    __slots__ = ("error", "event", "is_granted", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.event = anyio.Event()
        self.is_granted = False
        self.error: IggyError | None = None


class ByteBudget:
    """Bytes that may be acquired at the same time.

    Args:
        limit_bytes: how many; None for no limit.
        backpressure: what a caller does when there is no space.
    """

    def __init__(self, limit_bytes: int | None, backpressure: Backpressure) -> None:
        self._limit = limit_bytes
        self._backpressure = backpressure
        self._waiters: deque[_SpaceWaiter] = deque()
        self.taken_bytes = 0

    @property
    def waiters_count(self) -> int:
        """How many callers wait for space."""
        return len(self._waiters)

    def try_acquire(self, size_bytes: int) -> bool:
        """Acquire bytes if there is space and no caller waits for it."""
        if self._waiters or not self._has_space(size_bytes):
            return False
        self.taken_bytes += size_bytes
        return True

    async def take(self, size_bytes: int) -> None:
        """Acquire bytes, and wait for space as the backpressure says.

        Raises:
            BufferFullError: there was no space, or never will be.
            IggyError: the budget was closed meanwhile.
        """
        if self._limit is not None and size_bytes > self._limit:
            raise BufferFullError(
                f"{size_bytes} bytes do not fit into a buffer of {self._limit} bytes",
                advice="Send fewer or smaller messages at once, or raise max_buffer_size.",
            )
        if self.try_acquire(size_bytes):
            return
        if not self._backpressure.waits:
            raise BufferFullError(
                f"{self.taken_bytes} of {self._limit} bytes are in use, {size_bytes} are needed",
                advice="Send slower, raise max_buffer_size, or wait with Backpressure.block().",
            )
        await self._wait_for_space(size_bytes)

    def release(self, size_bytes: int) -> None:
        """Release bytes, and admit waiting callers that fit now."""
        assert 0 <= size_bytes <= self.taken_bytes, "more bytes are released than were acquired"
        self.taken_bytes -= size_bytes
        while self._waiters and self._has_space(self._waiters[0].size_bytes):
            waiter = self._waiters.popleft()
            waiter.is_granted = True
            self.taken_bytes += waiter.size_bytes
            waiter.event.set()

    def close(self, error: IggyError) -> None:
        """Fail every caller that waits for space."""
        while self._waiters:
            waiter = self._waiters.popleft()
            waiter.error = error
            waiter.event.set()

    def _has_space(self, size_bytes: int) -> bool:
        return self._limit is None or self.taken_bytes + size_bytes <= self._limit

    async def _wait_for_space(self, size_bytes: int) -> None:
        waiter = _SpaceWaiter(size_bytes)
        self._waiters.append(waiter)
        try:
            with anyio.move_on_after(self._backpressure.timeout):
                await waiter.event.wait()
        except BaseException:
            self._cancel_wait(waiter)
            raise
        if waiter.error is not None:
            raise waiter.error
        if not waiter.is_granted:
            self._cancel_wait(waiter)
            raise BufferFullError(
                f"{size_bytes} bytes found no space within {self._backpressure.timeout} s",
                code=StatusCode.BACKGROUND_SEND_TIMEOUT,
                advice="Send slower, raise max_buffer_size, or wait longer.",
            )

    def _cancel_wait(self, waiter: _SpaceWaiter) -> None:
        """Undo the grant or the place in line of a caller that was cancelled."""
        if waiter.is_granted:
            self.release(waiter.size_bytes)
        elif waiter in self._waiters:
            self._waiters.remove(waiter)
            # The next caller may fit where this one did not.
            self.release(0)

"""An outcome that is not known yet: the promise between the data plane and whoever works for it.

A ``Pending`` is decided once, for success or with a fault. The data plane hangs callbacks on it,
because a task per acknowledgement would cost more than the append itself; everybody else awaits it.

Owns the waiting. Knows neither partitions nor clients.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from iggy_ref_server.faults import ServerFault

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

__all__ = ["Pending"]

LOGGER = logging.getLogger(__name__)


class Pending:
    """Work that somebody else finishes.

    Attributes:
        is_done: whether the outcome is known.
        fault: why it failed, once it is done; None means success.
    """

    __slots__ = ("_callbacks", "_event", "fault", "is_done")

    def __init__(self) -> None:
        self.is_done = False
        self.fault: ServerFault | None = None
        self._callbacks: list[Callable[[Pending], None]] = []
        self._event: trio.Event | None = None

    @classmethod
    def finished(cls) -> Self:
        """Make one that has succeeded already."""
        pending = cls()
        pending.is_done = True
        return pending

    def add_done_callback(self, callback: Callable[[Pending], None]) -> None:
        """Have this called when the outcome is known, or at once if it is."""
        if self.is_done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def finish(self, fault: ServerFault | None = None) -> None:
        """Make the outcome known to everyone who asked."""
        assert not self.is_done
        self.is_done = True
        self.fault = fault
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback(self)
            except Exception:
                LOGGER.exception("nobody was told of an outcome, which stands all the same")
        if self._event is not None:
            self._event.set()

    async def settled(self) -> None:
        """Wait until the outcome is known, whatever it is."""
        if self.is_done:
            await trio.lowlevel.checkpoint()
            return
        if self._event is None:
            self._event = trio.Event()
        await self._event.wait()

    async def wait(self) -> None:
        """Wait for success.

        Raises:
            ServerFault: the work failed.
        """
        await self.settled()
        if self.fault is not None:
            # A fresh one for each waiter: a traceback belongs to one task.
            raise ServerFault(self.fault.status, self.fault.message)

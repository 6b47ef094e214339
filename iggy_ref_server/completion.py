"""The completion of work that is in progress, such as an append.

A ``Completion`` finishes once, with success or with a fault. The scheduler adds callbacks to it,
because a task per acknowledgement would cost more than the append itself; other users await it.
A ``Wait`` is a completion that its user may give up.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from iggy_ref_server.faults import ServerFault

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self


LOGGER = logging.getLogger(__name__)


class Completion:
    """The result of work in progress.

    Attributes:
        is_done: whether the work has finished.
        fault: why it failed, once it is done; None means success.
    """

    __slots__ = ("_callbacks", "_event", "fault", "is_done")

    def __init__(self) -> None:
        self.is_done = False
        self.fault: ServerFault | None = None
        self._callbacks: list[Callable[[Completion], None]] = []
        self._event: trio.Event | None = None

    @classmethod
    def finished(cls) -> Self:
        """Return a completion that has succeeded already."""
        pending = cls()
        pending.is_done = True
        return pending

    def add_done_callback(self, callback: Callable[[Completion], None]) -> None:
        """Call ``callback`` when the work finishes, or now if it has."""
        if self.is_done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def finish(self, fault: ServerFault | None = None) -> None:
        """Finish with success or a fault, and run the callbacks."""
        assert not self.is_done
        self.is_done = True
        self.fault = fault
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback(self)
            except Exception:
                # The work itself is done; one failing callback must not keep the others waiting.
                LOGGER.exception("a completion callback failed; the completed work is not affected")
        if self._event is not None:
            self._event.set()

    async def settled(self) -> None:
        """Wait until the work has finished, with success or not."""
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
            # A new exception for each waiter: a traceback belongs to one task.
            raise ServerFault(self.fault.status, self.fault.message)


class Wait(Completion):
    """A wait that finishes when something has happened, unless its user cancels it before.

    Args:
        on_cancel: takes the wait out of where it is listed; None if it is nowhere.
    """

    __slots__ = ("_on_cancel",)

    def __init__(self, on_cancel: Callable[[Wait], None] | None = None) -> None:
        super().__init__()
        self._on_cancel = on_cancel

    def cancel(self) -> None:
        """Give up: nobody is told any more; does nothing once it is done."""
        if not self.is_done:
            self._callbacks.clear()
            on_cancel, self._on_cancel = self._on_cancel, None
            if on_cancel is not None:
                on_cancel(self)

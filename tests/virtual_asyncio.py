"""An asyncio event loop on a virtual clock: when nothing is ready, it jumps to the next timer.

Hours pass in milliseconds, as with trio's ``MockClock(autojump_threshold=0)``. A loop that has
neither a timer nor anything ready waits for its sockets in real time.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from _typeshed import FileDescriptorLike


class JumpingSelector(selectors.BaseSelector):
    """Asks the system without waiting, and spends the time of a wait on the virtual clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self._real = selectors.DefaultSelector()

    def register(
        self, fileobj: FileDescriptorLike, events: int, data: object = None
    ) -> selectors.SelectorKey:
        """Watch a file."""
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: FileDescriptorLike) -> selectors.SelectorKey:
        """Watch a file no longer."""
        return self._real.unregister(fileobj)

    def modify(
        self, fileobj: FileDescriptorLike, events: int, data: object = None
    ) -> selectors.SelectorKey:
        """Watch a file for something else."""
        return self._real.modify(fileobj, events, data)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready; if nothing is, the time until ``timeout`` has passed."""
        if timeout is None:
            return self._real.select(None)
        ready = self._real.select(0)
        if not ready and timeout > 0:
            self.now += timeout
        return ready

    def get_map(self) -> Mapping[FileDescriptorLike, selectors.SelectorKey]:
        """Return what is watched."""
        return self._real.get_map()

    def get_key(self, fileobj: FileDescriptorLike) -> selectors.SelectorKey:
        """Return how a file is watched."""
        return self._real.get_key(fileobj)

    def close(self) -> None:
        """Close the real selector."""
        self._real.close()


class VirtualEventLoop(asyncio.SelectorEventLoop):
    """The stock loop, but for its clock."""

    def __init__(self) -> None:
        self._jumping = JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return the virtual time, which began at 0."""
        return self._jumping.now

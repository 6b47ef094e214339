"""The content of a simulated file: what was written, and what a power loss would leave.

Every change since the last sync is kept until it is known to be on the disk. After a failed sync
its changes stay doubtful, as on Linux: a later sync that succeeds says nothing about them.
"""

from __future__ import annotations

import errno
from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["Change", "Content", "State"]


class State(Enum):
    """How sure it is that a change is on the disk."""

    DIRTY = "dirty"
    DOUBTFUL = "doubtful"
    DURABLE = "durable"


@dataclass(slots=True)
class Change:
    """One write, or where ``data`` is None one change of the size to ``position``."""

    position: int
    data: bytes | None
    state: State = State.DIRTY

    def apply_to(self, content: bytearray) -> None:
        """Change some bytes; a gap before a write becomes zeros."""
        if self.data is None:
            del content[self.position :]
        if len(content) < self.position:
            content.extend(bytes(self.position - len(content)))
        if self.data is not None:
            content[self.position : self.position + len(self.data)] = self.data


class Content:
    """The two layers of a file.

    Attributes:
        written: what every reader sees.
        reserved_bytes: room that the disk keeps for it, at least.
    """

    def __init__(self, content: bytes = b"") -> None:
        self.written = bytearray(content)
        self.reserved_bytes = 0
        self._base = bytearray(content)
        self._changes: deque[Change] = deque()

    @property
    def used_bytes(self) -> int:
        """How much of the disk it takes."""
        return max(len(self.written), self.reserved_bytes)

    def write(self, data: bytes, position: int) -> None:
        """Write at a position; no bytes change nothing."""
        if data:
            self._do(Change(position, data))

    def truncate(self, size: int) -> None:
        """Cut or extend."""
        if size < 0:
            raise OSError(errno.EINVAL, "a size cannot be negative")
        self._do(Change(size, None))
        self.reserved_bytes = 0

    def _do(self, change: Change) -> None:
        change.apply_to(self.written)
        self._changes.append(change)

    def begin_sync(self) -> list[Change]:
        """Return the changes that a sync beginning at this moment covers."""
        return [change for change in self._changes if change.state is State.DIRTY]

    def finish_sync(self, covered: Iterable[Change]) -> None:
        """Take the changes as durable, but for those that another sync has failed on."""
        for change in covered:
            if change.state is State.DIRTY:
                change.state = State.DURABLE
        while self._changes and self._changes[0].state is State.DURABLE:
            self._changes.popleft().apply_to(self._base)

    def fail_sync(self, covered: Iterable[Change]) -> None:
        """Take the changes as doubtful, but for those that another sync has made durable."""
        for change in covered:
            if change.state is State.DIRTY:
                change.state = State.DOUBTFUL

    def after_power_loss(self, choose: Callable[[list[Change]], Iterable[Change]]) -> Content:
        """Return what is found when the power is back.

        Args:
            choose: picks, from all changes that are not part of the durable base, those that are
                on the disk, or parts of them, in their order.
        """
        found = bytearray(self._base)
        for change in choose(list(self._changes)):
            change.apply_to(found)
        return Content(bytes(found))

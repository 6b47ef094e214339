"""Waiters: who is woken when a partition gets a message.

The publish of an append wakes them, nobody looks again and again. While nobody waits, an append
compares two numbers. A purge and a close end all waits with a fault.

A waiter is called in the middle of an append, so its callback must not touch the partition.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from iggy_protocol import StatusCode
from iggy_ref_server.completion import Wait
from iggy_ref_server.faults import ServerFault

WAITS_MAX: Final = 4096
"""For one partition: 64 clients that wait as often as one may. A wait takes about 300 bytes."""

NO_OFFSET: Final = 1 << 64
"""Above every offset: nobody waits."""


class MessageWaiters:
    """The waiters of one partition, by the offset that they wait for.

    Attributes:
        lowest_offset: the lowest offset that somebody waits for; ``NO_OFFSET`` if nobody waits.
    """

    __slots__ = ("_by_offset", "_count", "lowest_offset")

    def __init__(self) -> None:
        # The inner dictionaries serve as sets that keep their order.
        self._by_offset: dict[int, dict[Wait, None]] = {}
        self._count = 0
        self.lowest_offset = NO_OFFSET

    def __len__(self) -> int:
        return self._count

    def add(self, offset: int) -> Wait:
        """Wait for a message with this offset or a later one, which is not there yet.

        Raises:
            ServerFault: too many wait already.
        """
        if self._count >= WAITS_MAX:
            raise ServerFault(
                StatusCode.TOO_MANY_DEFERRED_POLLS,
                f"{WAITS_MAX} requests wait for messages of this partition already",
            )
        wait = Wait(partial(self._remove, offset))
        self._by_offset.setdefault(offset, {})[wait] = None
        self._count += 1
        self.lowest_offset = min(self.lowest_offset, offset)
        return wait

    def wake(self, last_offset: int) -> None:
        """Finish the waits for offsets up to that of the newest message."""
        for offset in sorted(offset for offset in self._by_offset if offset <= last_offset):
            for wait in self._take(offset):
                wait.finish()

    def end(self, fault: ServerFault) -> None:
        """Finish all waits with a fault: what they wait for will not come."""
        for offset in sorted(self._by_offset):
            for wait in self._take(offset):
                wait.finish(fault)

    def _take(self, offset: int) -> dict[Wait, None]:
        waits = self._by_offset.pop(offset)
        self._count -= len(waits)
        self.lowest_offset = min(self._by_offset, default=NO_OFFSET)
        return waits

    def _remove(self, offset: int, wait: Wait) -> None:
        waits = self._by_offset.get(offset)
        if waits is not None and wait in waits:
            del waits[wait]
            self._count -= 1
            if not waits:
                self._take(offset)

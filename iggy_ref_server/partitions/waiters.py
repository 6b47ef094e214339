"""Waiters: who is woken when a partition gets a message.

The publish of an append wakes them, nobody looks again and again. While nobody waits, an append
compares two numbers. A purge and a close end all waits with a fault.

A waiter is called in the middle of an append, so its callback must not touch the partition.
"""

from __future__ import annotations

import heapq
from functools import partial
from typing import Final

from iggy_protocol import StatusCode
from iggy_ref_server.completion import Wait
from iggy_ref_server.faults import ServerFault

WAITS_MAX: Final = 4096
"""For one partition: 64 clients that wait as often as one may. A wait takes about 300 bytes."""

NO_OFFSET: Final = 1 << 64
"""Above every offset: nobody waits."""


HEAP_SPARE: Final = 64
"""So many offsets that nobody waits for any more may be listed before they are cleared away."""


class MessageWaiters:
    """The waiters of one partition, by the offset that they wait for.

    Attributes:
        lowest_offset: the lowest offset that somebody waits for; ``NO_OFFSET`` if nobody waits.
    """

    __slots__ = ("_by_offset", "_count", "_offsets", "lowest_offset")

    def __init__(self) -> None:
        # The inner dictionaries serve as sets that keep their order.
        self._by_offset: dict[int, dict[Wait, None]] = {}
        # A heap of these offsets, and of some that nobody waits for any more.
        self._offsets: list[int] = []
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
        if offset not in self._by_offset:
            self._by_offset[offset] = {}
            heapq.heappush(self._offsets, offset)
        self._by_offset[offset][wait] = None
        self._count += 1
        self.lowest_offset = min(self.lowest_offset, offset)
        return wait

    def wake(self, last_offset: int) -> None:
        """Finish the waits for offsets up to that of the newest message."""
        self._end_until(last_offset, None)

    def end(self, fault: ServerFault) -> None:
        """Finish all waits with a fault: what they wait for will not come."""
        self._end_until(NO_OFFSET, fault)

    def _end_until(self, last_offset: int, fault: ServerFault | None) -> None:
        while self.lowest_offset <= last_offset and self._by_offset:
            waits = self._by_offset.pop(self.lowest_offset)
            self._count -= len(waits)
            self._find_lowest()
            for wait in waits:
                wait.finish(fault)

    def _remove(self, offset: int, wait: Wait) -> None:
        waits = self._by_offset.get(offset)
        if waits is not None and wait in waits:
            del waits[wait]
            self._count -= 1
            if not waits:
                del self._by_offset[offset]
                self._find_lowest()

    def _find_lowest(self) -> None:
        """Find the lowest offset, after one of them has gone; cheap, however many there are."""
        if len(self._offsets) > 2 * len(self._by_offset) + HEAP_SPARE:
            self._offsets = sorted(self._by_offset)
        while self._offsets and self._offsets[0] not in self._by_offset:
            heapq.heappop(self._offsets)
        self.lowest_offset = self._offsets[0] if self._offsets else NO_OFFSET

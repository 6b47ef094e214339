"""The position of the metadata: a number that every change of the metadata and every login raises.

Clients from 0.9 on keep the highest position that a reply told them, also over a restart of the
server, and ask for metadata that are at least as new. So it never goes back. It is in memory alone,
and begins at the time of the start:

    milliseconds since 2020 + changes of the metadata so far

A later life of the server begins above the last position of this one. The changes are counted, so
however many there were in a moment, the second part makes up for them. Logins are not counted; a
thousand in every second of a whole life would be needed to get ahead of the first part. The clock
may have been set back; the newest generation in the metadata tells a time as well.

Shard 0 alone raises the position, when all shards have applied a change. All shards read it in
shared memory: what they tell a client is then no newer than what they have applied.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from iggy_ref_server.metadata.state import Metadata


EPOCH_MS: Final = 1_577_836_800_000
"""The beginning of 2020, in milliseconds since that of 1970."""

POSITION_BYTES: Final = 8
POSITION_END: Final = 1 << 43
"""Clients make numbers of producers from it and need it below this; it is reached in 2298."""


def make_position_memory() -> mmap.mmap:
    """Make the shared memory; processes that are forked later inherit it."""
    return mmap.mmap(-1, POSITION_BYTES)


class MetadataPosition:
    """The position, as one shard sees it.

    Args:
        memory: made by ``make_position_memory``; None where there are no other shards.
    """

    __slots__ = ("_cells",)

    def __init__(self, memory: mmap.mmap | None = None) -> None:
        # One aligned word: it is read and written as a whole.
        self._cells = memoryview(memory or make_position_memory()).cast("Q")

    @property
    def current(self) -> int:
        """The position now; 0 before shard 0 has read the metadata."""
        return self._cells[0]

    def start(self, metadata: Metadata, now_us: int) -> None:
        """Begin above all positions of earlier lives; shard 0 only."""
        newest_us = max(now_us, metadata.last_generation)
        self._set(max(1, newest_us // 1000 - EPOCH_MS) + metadata.version)

    def advance(self) -> int:
        """Raise the position, and return it; shard 0 only."""
        return self._set(self._cells[0] + 1)

    def _set(self, position: int) -> int:
        assert self._cells[0] < position < POSITION_END, "the position of the metadata only goes up"
        self._cells[0] = position
        return position

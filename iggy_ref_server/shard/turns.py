"""Whose turn it is: the round-robin of balanced sends, one for all shards of a server.

Each shard counts in a place of its own in memory that all shards share, and the turn of a topic is
the sum of its places. Nobody waits for anybody: sends that come one after another are dealt out in
order, sends at the same moment may take the same turn, which harms nobody. This is the only memory
that shards share, because a question to another shard would cost more than the send.

When a topic gets more partitions or fewer, the turn stays where it was, as far as there is such a
partition. So it is also kept among how many the last turn was taken.

Owns that memory. Knows topics as numbers only.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iggy_ref_server.metadata.records import TopicRecord

__all__ = ["Turn", "Turns", "share_turns"]

# Topics that meet in one place only take turns together.
PLACES = 4096
COUNT_BYTES = 8


def share_turns(shards_count: int) -> mmap.mmap:
    """Make the memory for the turns of all topics; processes that are forked later share it."""
    return mmap.mmap(-1, PLACES * (shards_count + 1) * COUNT_BYTES)


class Turn:
    """The turn of one topic, as one shard counts it."""

    __slots__ = ("_among", "_counts", "_own", "_place")

    def __init__(self, counts: memoryview, place: int, own: int) -> None:
        self._counts = counts
        self._place = place
        self._own = own
        self._among = len(counts) - PLACES + place

    def take(self, count: int) -> int:
        """Return whose turn it is among so many, and let the next one have theirs."""
        counts = self._counts
        total: int = sum(counts[self._place : self._among : PLACES])
        among = counts[self._among]
        if among != count:
            counts[self._among] = count
            if among:
                shift = (total % among - total) % count
                counts[self._own] += shift
                total += shift
        counts[self._own] += 1
        return total % count


class Turns:
    """The turns of all topics.

    Args:
        memory: made by ``share_turns``.
        shard_id: who counts here.
    """

    def __init__(self, memory: mmap.mmap, shard_id: int) -> None:
        self._counts = memoryview(memory).cast("Q")
        self._shard_id = shard_id

    def of(self, topic: TopicRecord) -> Turn:
        """Return the turn of a topic; one that is made anew begins at its first partition."""
        place = hash((topic.stream_id, topic.id, topic.created_at_us)) % PLACES
        return Turn(self._counts, place, self._shard_id * PLACES + place)

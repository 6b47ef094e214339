"""Round-robin of balanced sends over the partitions of a topic, shared by all shards.

Each shard increments a counter of its own in shared memory, and the sum of a topic's counters
chooses the partition. There is no lock: sends one after another go to one partition after another,
and sends at the same moment may choose the same partition, which does no harm. This is the only
memory that shards share, because a call to another shard would cost more than the send itself.

When a topic gets more or fewer partitions, the sequence continues at the same partition if it still
exists. So the number of partitions at the last send is stored as well.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iggy_ref_server.metadata.records import TopicRecord

__all__ = ["Turn", "Turns", "share_turns"]

# Two topics with the same hash share a counter, so one may skip a partition; no more than that.
PLACES = 4096
COUNT_BYTES = 8


def share_turns(shards_count: int) -> mmap.mmap:
    """Make the shared memory; processes that are forked later inherit it."""
    return mmap.mmap(-1, PLACES * (shards_count + 1) * COUNT_BYTES)


class Turn:
    """The round-robin of one topic, on one shard."""

    __slots__ = ("_among", "_counts", "_own", "_place")

    def __init__(self, counts: memoryview, place: int, own: int) -> None:
        self._counts = counts
        self._place = place
        self._own = own
        self._among = len(counts) - PLACES + place

    def take(self, count: int) -> int:
        """Return the index of the next partition, and advance."""
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
    """The round-robin of all topics, on one shard.

    Args:
        memory: made by ``share_turns``.
        shard_id: this shard.
    """

    def __init__(self, memory: mmap.mmap, shard_id: int) -> None:
        self._counts = memoryview(memory).cast("Q")
        self._shard_id = shard_id

    def of(self, topic: TopicRecord) -> Turn:
        """Return the round-robin of a topic; a new topic starts at its first partition."""
        place = hash((topic.stream_id, topic.id, topic.created_at_us)) % PLACES
        return Turn(self._counts, place, self._shard_id * PLACES + place)

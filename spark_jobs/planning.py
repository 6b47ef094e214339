"""Plan the tasks of a read: which task reads which messages of which partition.

The same start and end give the same plan, because a repeated micro-batch must consist of the same
rows in the same tasks.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spark_jobs.offsets import Offsets
    from spark_jobs.options import ReadOptions

__all__ = ["Slice", "plan", "split"]


@dataclass(frozen=True)
class Slice(InputPartition):
    """Messages of one partition for one task.

    Attributes:
        topic: name of the topic.
        partition: number of the partition.
        start: the first offset.
        end: the offset after the last.
    """

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many messages there are, if none is missing."""
        return self.end - self.start

    def pieces(self, count: int) -> list[Slice]:
        """Split it into pieces of nearly the same size, in order."""
        cuts = [self.start + self.size * index // count for index in range(count + 1)]
        return [Slice(self.topic, self.partition, start, end) for start, end in pairwise(cuts)]


def plan(start: Offsets, end: Offsets, options: ReadOptions) -> list[Slice]:
    """Make the tasks for everything between two offsets.

    Args:
        start: the first offset of each partition.
        end: the offset after the last of each partition that is to be read.
        options: the wanted number of tasks.
    """
    whole = [Slice(*at, start[at], end[at]) for at in sorted(end) if end[at] > start[at]]
    return split(
        whole,
        min_partitions=options.min_partitions or 0,
        max_records=options.max_records_per_task or 0,
    )


def split(slices: Iterable[Slice], *, min_partitions: int, max_records: int) -> list[Slice]:
    """Split slices until there are enough of them, and none is too large; 0 is no limit.

    The largest is split first, so that all are nearly equal in the end.
    """
    whole = list(slices)
    counts = [max(1, -(-one.size // max_records)) if max_records else 1 for one in whole]
    wanted = min(min_partitions, sum(one.size for one in whole))
    if sum(counts) < wanted:
        total = sum(one.size for one in whole)
        counts = [
            min(one.size, max(count, one.size * wanted // total))
            for one, count in zip(whole, counts, strict=True)
        ]
    while sum(counts) < wanted:
        largest = max(range(len(whole)), key=lambda index: whole[index].size / counts[index])
        counts[largest] += 1
    return [piece for one, count in zip(whole, counts, strict=True) for piece in one.pieces(count)]

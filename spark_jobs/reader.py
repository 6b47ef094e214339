"""Reads messages: the batch reader, and its base for the streaming reader.

A task polls its slice piece by piece, and polls the next piece while Spark processes the last one.
Messages that retention deleted meanwhile are a loss; offsets that never had a message are not.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_jobs.errors import DataLossError, SchemaError
from spark_jobs.offsets import Offsets, TopicPartition
from spark_jobs.pushdown import PushedFilters
from spark_jobs.schema import check_read_schema
from spark_jobs.spark_api import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from iggy_sdk import ReceivedBatch
    from spark_jobs.options import ReadOptions


# Plan the tasks of a read: which task reads which messages of which partition.
#
# The same start and end give the same plan, because a repeated micro-batch must consist of the same
# rows in the same tasks.


@dataclass(frozen=True)
class OffsetSlice(InputPartition):
    """Messages of one partition for one task.

    Attributes:
        topic: name of the topic.
        partition: number of the partition.
        start: the first offset.
        end: the offset after the last.
        is_classic: whether it is polled in the protocol of 0.8.
    """

    topic: str
    partition: int
    start: int
    end: int
    is_classic: bool = False

    @property
    def size(self) -> int:
        """How many messages there are, if none is missing."""
        return self.end - self.start

    def pieces(self, count: int) -> list[OffsetSlice]:
        """Split it into pieces of nearly the same size, in order."""
        cuts = [self.start + self.size * index // count for index in range(count + 1)]
        return [replace(self, start=start, end=end) for start, end in pairwise(cuts)]


def plan_tasks(start: Offsets, end: Offsets, options: ReadOptions) -> list[OffsetSlice]:
    """Make the tasks for everything between two offsets.

    Args:
        start: the first offset of each partition.
        end: the offset after the last of each partition that is to be read.
        options: the wanted number of tasks.
    """
    from spark_jobs.topics import answers_classic

    wanted = [at for at in sorted(end) if end[at] > start[at]]
    is_classic = bool(wanted) and answers_classic(options.server)
    whole = [OffsetSlice(*at, start[at], end[at], is_classic) for at in wanted]
    return split_slices(
        whole,
        min_partitions=options.min_partitions or 0,
        max_records=options.max_records_per_task or 0,
    )


def split_slices(
    slices: Iterable[OffsetSlice], *, min_partitions: int, max_records: int
) -> list[OffsetSlice]:
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


POLL_BYTES: Final = 8 << 20
"""The target size of a poll: the kernel hands over more of it at a time than of a smaller one, and
a still larger one leaves the caches of processors."""

FIRST_POLL_COUNT: Final = 1000
"""Messages of the first poll, before their size is known."""

POLL_COUNT_MAX: Final = 100_000


class SliceReader:
    """Reads slices in a Spark task; it is pickled, so it holds no connection.

    Args:
        options: where and how.
        schema: the requested columns.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_read_schema(schema)
        self.options = options
        self.schema = schema

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the messages of a slice as Arrow record batches.

        Raises:
            DataLossError: messages of the slice are lost, and ``failOnDataLoss`` is on.
            SchemaError: the schema has payload as string, and a payload is not UTF-8.
        """
        # For an empty plan Spark passes a partition of its own.
        if not isinstance(partition, OffsetSlice):
            return
        # Only tasks need Arrow; the planner starts faster without it.
        from iggy_sdk.arrow import ArrowRowBuilder, PayloadDecodeError, keep_freed_memory
        from spark_jobs.topics import POLL_CONSUMER  # noqa: F401  loaded before there are threads

        keep_freed_memory(POLL_BYTES)
        maker = ArrowRowBuilder(
            arrow_schema(self.schema),
            {
                "stream": self.options.stream,
                "topic": partition.topic,
                "partition": partition.partition,
            },
        )
        for batch in self._batches(partition):
            try:
                rows = maker.rows(batch, partition.end)
            except PayloadDecodeError as error:
                raise SchemaError(
                    f"the schema has payload as string, and message {error.offset} of partition "
                    f"{error.partition_id} is not UTF-8; use binary"
                ) from None
            if rows.num_rows:
                yield rows

    def _batches(self, wanted: OffsetSlice) -> Iterator[ReceivedBatch[bytes]]:
        """Poll a slice from start to end, always one poll ahead."""
        at, count = wanted.start, self.options.poll_count or FIRST_POLL_COUNT
        with ThreadPoolExecutor(1, "iggy-poll") as ahead:
            pending = ahead.submit(self._poll, wanted, at, count)
            while at < wanted.end:
                batch = self._polled(wanted, pending)
                if batch is None:
                    return
                first = batch.first_offset
                if first != at:
                    self._check_gap(wanted, at, first)
                if first is None:
                    return
                assert batch.last_offset is not None
                at, count = batch.last_offset + 1, self._next_count(batch)
                if at < wanted.end:
                    pending = ahead.submit(self._poll, wanted, at, count)
                yield batch

    def _polled(
        self, wanted: OffsetSlice, pending: Future[ReceivedBatch[bytes]]
    ) -> ReceivedBatch[bytes] | None:
        """Wait for a poll; None if its topic or partition was deleted, and may be."""
        from iggy_sdk import NotFoundError

        try:
            return pending.result()
        except NotFoundError as error:
            if not self.options.fail_on_data_loss:
                return None
            place = TopicPartition(wanted.topic, wanted.partition)
            raise DataLossError(
                f"{place} was deleted before it was read; set failOnDataLoss to false to continue "
                f"without it ({error.message})"
            ) from None

    def _poll(self, wanted: OffsetSlice, at: int, count: int) -> ReceivedBatch[bytes]:
        from iggy_sdk import PollingStrategy
        from spark_jobs.topics import POLL_CONSUMER, request

        return request(
            self.options.server,
            lambda client: client.poll_messages(
                self.options.stream,
                wanted.topic,
                consumer=POLL_CONSUMER,
                partition_id=wanted.partition,
                strategy=PollingStrategy.offset(at),
                count=min(count, wanted.end - at),
            ),
            is_classic=wanted.is_classic,
        )

    def _next_count(self, batch: ReceivedBatch[bytes]) -> int:
        if self.options.poll_count is not None:
            return self.options.poll_count
        return max(1, min(POLL_COUNT_MAX, POLL_BYTES * len(batch) // batch.nbytes))

    def _check_gap(self, wanted: OffsetSlice, at: int, found: int | None) -> None:
        """Raise unless the missing offsets are a gap that a crashed server left.

        A gap has messages on both sides, and may be wider than the slice.
        """
        from spark_jobs.topics import earliest_offset

        if not self.options.fail_on_data_loss:
            return
        place = TopicPartition(wanted.topic, wanted.partition)
        earliest = earliest_offset(self.options, place)
        if found is not None and earliest is not None and earliest <= at:
            return
        after = wanted.end if found is None else min(found, wanted.end)
        kept = "has no messages" if earliest is None else f"begins with offset {earliest}"
        raise DataLossError(
            f"{place}: offsets {at} to {after - 1} are gone, it now {kept}; "
            "retention or a purge deleted them. Set failOnDataLoss to false to continue with what "
            "is left"
        )


class BatchReader(SliceReader, DataSourceReader):
    """Reads what a topic holds now, or a part of it."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._bounds = PushedFilters()

    def partitions(self) -> Sequence[InputPartition]:
        """Ask the server for offsets and divide them into tasks."""
        from spark_jobs.topics import end_offsets, resolve

        options = self.options
        ends = end_offsets(options)
        start = resolve(options, options.starting, ends, name="startingOffsets")
        end = resolve(options, options.ending, ends, name="endingOffsets")
        for place in ends:
            self._check_end(place, max(start[place], end[place]), ends[place])
        return plan_tasks(*self._bounds.narrow(options, start, end, ends), options)

    def _check_end(self, place: TopicPartition, asked: int, end: int) -> None:
        if asked > end and self.options.fail_on_data_loss:
            raise DataLossError(
                f"{place}: offset {asked} was asked for, and it ends before {end}; give offsets up "
                "to its end, or set failOnDataLoss to false to continue with what there is"
            )


class PushdownReader(BatchReader):
    """A batch reader that polls only what the filters allow."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take the supported filters; return those that Spark has to apply."""
        return [one for one in filters if not self._bounds.take_filter(one)]

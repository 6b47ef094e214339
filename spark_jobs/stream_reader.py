"""The streaming reader: the offsets of each micro-batch, and the progress of the query.

The first micro-batch of a query that starts with the latest message, or at a time, has no rows. It
only records where the query starts, so that a query that fails before its first rows continues from
there and not from the end of the topic at its restart.

Partitions that are added later are read from their beginning.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from iggy_sdk import (
    ConnectionFailedError,
    ConsumerIdentity,
    InvalidOffsetError,
    NotFoundError,
    RequestTimeoutError,
)
from spark_jobs.errors import DataLossError
from spark_jobs.offsets import (
    EARLIEST_MARK,
    Offsets,
    TopicPartition,
    limit_offsets,
    read_offsets,
    write_offsets,
)
from spark_jobs.reader import SliceReader, plan_tasks
from spark_jobs.topics import (
    check_complete,
    close_all,
    connection,
    earliest_offset,
    end_offsets,
    resolve,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from spark_jobs.options import ReadOptions


_LOGGER: Final = logging.getLogger("spark_jobs")


class StreamReader(SliceReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the micro-batches; Spark calls it in one process of the driver."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._target: Offsets | None = None
        self._stored: Offsets = {}
        self.now: Callable[[], float] = time.monotonic
        self._batch_at = self.now()

    # Offsets

    def initialOffset(self) -> dict[str, Any]:
        """Return no offsets: ``latestOffset`` resolves the start of a new query."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limits of the options; ``Trigger.Once`` overrides them with everything."""
        if self.options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self.options.max_offsets_per_trigger)
        if self.options.min_offsets_per_trigger is not None:
            return ReadMinRows(self.options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Record the current ends of the topics, which this run reads up to."""
        self._target = end_offsets(self.options)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Choose the end of the next micro-batch.

        Raises:
            DataLossError: a topic ends before the offset that the query has reached.
        """
        done = read_offsets(start)
        # Spark passes the end of the last micro-batch, so everything before it is committed.
        self._store_progress(done)
        ends = end_offsets(self.options)
        if not done and not self.options.starting.is_settled:
            begin = resolve(self.options, self.options.starting, ends, name="startingOffsets")
            return write_offsets(begin)
        if not done and self.options.starting.offsets is not None:
            check_complete(self.options.starting.offsets, ends, name="startingOffsets")
        begin = self._begin(done, ends)
        if self._target is not None:
            ends = {place: min(end, self._target.get(place, 0)) for place, end in ends.items()}
        wanted = self._limited(begin, self._checked(done, begin, ends), limit)
        if wanted is None:
            return start
        # Known partitions stay in the offsets; a new one enters with its first message.
        return write_offsets({at: end for at, end in wanted.items() if at in done or end})

    def reportLatestOffset(self) -> dict[str, Any]:
        """Return the ends of the topics, for Spark's progress reports."""
        return write_offsets(end_offsets(self.options))

    def _begin(self, done: Offsets, places: Iterable[TopicPartition]) -> Offsets:
        """Return where each partition continues; new ones start at their earliest message."""
        given = {} if done else self.options.starting.offsets or {}
        begin = dict(done)
        for place in places:
            if place not in begin:
                offset = given.get(place, EARLIEST_MARK)
                if offset == EARLIEST_MARK:
                    offset = earliest_offset(self.options, place) or 0
                begin[place] = offset
        return begin

    def _checked(self, done: Offsets, begin: Offsets, ends: Offsets) -> Offsets:
        """Check for partitions that are deleted or shorter than what was read of them."""
        strict = self.options.fail_on_data_loss
        topics = set(self.options.topics)
        gone = sorted(place for place in done if place.topic in topics and place not in ends)
        if gone and strict:
            raise DataLossError(
                f"{gone[0]} does not exist any more; set failOnDataLoss to false to continue"
            )
        short = sorted(place for place in ends if ends[place] < begin[place])
        # With a target, a partition may already be read beyond it.
        if self._target is not None:
            real = end_offsets(self.options) if short else {}
            beyond = [place for place in short if real.get(place, 0) >= begin[place]]
            ends = {**ends, **{place: begin[place] for place in beyond}}
            short = [place for place in short if place not in beyond]
        if short and strict:
            place = short[0]
            reason = "it was purged or recreated" if done else "startingOffsets is beyond its end"
            raise DataLossError(
                f"{place} is to be read from offset {begin[place]} on and ends before "
                f"{ends[place]}: {reason}; set failOnDataLoss to false to read it from its "
                "beginning"
            )
        return ends

    def _limited(self, begin: Offsets, ends: Offsets, limit: ReadLimit) -> Offsets | None:
        """Apply the limits; None waits for more messages."""
        # A recreated partition is read from its beginning.
        waiting = sum(end - begin[at] if end >= begin[at] else end for at, end in ends.items())
        if not waiting:
            return None
        fewest = self.options.min_offsets_per_trigger
        may_wait = self._target is None and not isinstance(limit, ReadAllAvailable)
        if fewest is not None and may_wait and waiting < fewest and not self._is_late():
            return None
        self._batch_at = self.now()
        if isinstance(limit, ReadMaxRows):
            start = {at: min(begin[at], end) for at, end in ends.items()}
            return limit_offsets(start, ends, limit.max_rows)
        return ends

    def _is_late(self) -> bool:
        return self.now() - self._batch_at >= self.options.max_trigger_delay_s

    # Tasks

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Divide a micro-batch into tasks; the same offsets give the same tasks."""
        done, wanted = read_offsets(start), read_offsets(end)
        if not done and not self.options.starting.is_settled:
            return []
        begin = self._begin(done, wanted)
        for place in [place for place, offset in wanted.items() if offset < begin[place]]:
            begin[place] = earliest_offset(self.options, place) or 0
        return plan_tasks(begin, wanted, self.options)

    # Progress

    def commit(self, end: dict[str, Any]) -> None:
        """Store the offsets on the server; Spark has committed all messages before them."""
        self._store_progress(read_offsets(end))

    def stop(self) -> None:
        """Close the connections of this process."""
        close_all()

    def _store_progress(self, done: Offsets) -> None:
        """Store the changed offsets under the consumer's name, if there is one."""
        if self.options.consumer is None:
            return
        for place, offset in done.items():
            if offset and self._stored.get(place) != offset:
                self._store(place, offset)

    def _store(self, place: TopicPartition, offset: int) -> None:
        assert self.options.consumer is not None
        try:
            connection(self.options.server).store_consumer_offset(
                self.options.stream,
                place.topic,
                offset - 1,
                consumer=ConsumerIdentity.single(self.options.consumer),
                partition_id=place.partition,
            )
        except (
            ConnectionFailedError,
            InvalidOffsetError,
            NotFoundError,
            RequestTimeoutError,
        ) as error:
            # Spark continues from its checkpoint, and a later micro-batch stores a later offset. A
            # deleted partition is handled where offsets are chosen.
            _LOGGER.warning(
                "cannot store the offset of %s on the server, the query goes on: %s", place, error
            )
        else:
            self._stored[place] = offset

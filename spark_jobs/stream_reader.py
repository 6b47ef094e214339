"""The streaming reader: the offsets of each micro-batch, and the progress of the query.

The first micro-batch of a query that starts with the latest message, or at a time, has no rows. It
only records where the query starts, so that a query that fails before its first rows continues from
there and not from the end of the topic at its restart.

Partitions that are added later are read from their beginning.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader

from spark_jobs.errors import DataLossError
from spark_jobs.offsets import (
    EARLIEST_MARK,
    Offsets,
    TopicPartition,
    limit_offsets,
    write_offsets,
)
from spark_jobs.query_offset import QueryOffset
from spark_jobs.reader import SliceReader, plan_tasks
from spark_jobs.spark_api import (
    ReadAllAvailable,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

    from spark_jobs.options import ReadOptions
    from spark_jobs.spark_api import ReadLimit
    from spark_jobs.topics import PartitionState


_LOGGER: Final = logging.getLogger("spark_jobs")

_FROM_BEGINNING: Final = "set failOnDataLoss to false to read it from its beginning"


_PLANNER_MODULE: Final = "pyspark.sql.streaming.python_streaming_source_runner"
"""What Spark runs in the process that plans the micro-batches of a query."""


def _is_planner() -> bool:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name == _PLANNER_MODULE


def _connect(server: str) -> None:
    """Load the SDK and connect, while Spark still prepares the checkpoint of the query."""
    from iggy_sdk import IggyError
    from spark_jobs.topics import connection

    # The first question of Spark tries again, and says what is wrong.
    with suppress(IggyError):
        connection(server)


class StreamReader(SliceReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the micro-batches; Spark calls it in one process of the driver."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._target: Offsets | None = None
        self._planned: dict[str, Any] = {}
        self._stored: Offsets = {}
        self.now: Callable[[], float] = time.monotonic
        self._batch_at = self.now()
        self._connecting: threading.Thread | None = None
        if _is_planner():
            self._connecting = threading.Thread(
                target=_connect, args=(options.server,), name="iggy-connect", daemon=True
            )
            self._connecting.start()

    def _await_connection(self) -> None:
        # Two threads must not load modules that need each other at the same time.
        if self._connecting is not None:
            self._connecting.join()
            self._connecting = None

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
        self._await_connection()
        from spark_jobs.topics import end_offsets

        self._target = end_offsets(self.options)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Choose the end of the next micro-batch.

        Raises:
            DataLossError: a partition is gone, was made anew, or ends before the offset that the
                query has reached.
        """
        self._await_connection()
        from spark_jobs.topics import find_partitions, resolve

        done = QueryOffset.from_json(start)
        # Spark passes the end of the last micro-batch, so everything before it is committed.
        self._store_progress(done.offsets)
        found = find_partitions(self.options)
        ends = {at: state.end for at, state in found.items()}
        if not done and not self.options.starting.is_settled:
            begin = resolve(self.options, self.options.starting, ends, name="startingOffsets")
            return self._write(QueryOffset(begin), found)
        begin = self._begin(done, found)
        if self._target is not None:
            # After a restart a query may be ahead of the target.
            ends = {
                at: max(begin[at], min(end, self._target.get(at, 0))) for at, end in ends.items()
            }
        wanted = self._limited(begin, ends, limit)
        if wanted is None:
            # Where retention has emptied a partition, the place where its messages ended is known.
            emptied = {
                at: offset for at, offset in begin.items() if at not in done.offsets and offset
            }
            if not emptied or ends != begin:
                return start
            wanted = ends
        # Known partitions stay in the offsets; a new one enters with its first message.
        kept = {at: end for at, end in wanted.items() if at in done.offsets or end}
        starts = {at: begin[at] for at in kept if begin[at] != done.offsets.get(at)}
        return self._write(QueryOffset(kept, starts), found)

    def reportLatestOffset(self) -> dict[str, Any]:
        """Return the ends of the topics, for Spark's progress reports."""
        self._await_connection()
        from spark_jobs.topics import end_offsets

        return write_offsets(end_offsets(self.options))

    def _write(
        self, reached: QueryOffset, found: Mapping[TopicPartition, PartitionState]
    ) -> dict[str, Any]:
        """Return an offset as Spark stores it."""
        identities = {at: found[at].identity for at in reached.offsets}
        self._planned = replace(reached, identities=identities).to_json()
        return self._planned

    def _begin(self, done: QueryOffset, found: Mapping[TopicPartition, PartitionState]) -> Offsets:
        """Return where each partition continues, or begins."""
        from spark_jobs.topics import first_offset

        given = self._given(done, found)
        self._check_deleted(done, found)
        begin: Offsets = {}
        for at, state in found.items():
            known = done.offsets.get(at, given.get(at))
            reason = None if known is None else self._loss(done, at, known, state)
            if reason is not None and self.options.fail_on_data_loss:
                raise DataLossError(f"{at} {reason}; {_FROM_BEGINNING}")
            if known is None or known == EARLIEST_MARK or reason is not None:
                known = first_offset(self.options, at, state.end)
            begin[at] = known
        return begin

    def _given(
        self, done: QueryOffset, found: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Return the offsets that the user wants a new query to start with."""
        from spark_jobs.topics import check_complete

        if done or self.options.starting.offsets is None:
            return {}
        check_complete(self.options.starting.offsets, found, name="startingOffsets")
        return self.options.starting.offsets

    def _check_deleted(self, done: QueryOffset, found: Container[TopicPartition]) -> None:
        includes = self.options.includes
        gone = sorted(at for at in done.offsets if includes(at.topic) and at not in found)
        if gone and self.options.fail_on_data_loss:
            raise DataLossError(
                f"{gone[0]} does not exist any more; set failOnDataLoss to false to continue"
            )

    def _loss(
        self, done: QueryOffset, at: TopicPartition, reached: int, state: PartitionState
    ) -> str | None:
        """Say what happened to a partition that does not have what is to be read of it."""
        if not done.is_of(at, state.identity):
            return f"was made anew, or purged, after the query had reached offset {reached}"
        if state.end >= reached:
            return None
        reason = "it was purged or recreated" if done else "startingOffsets is beyond its end"
        return f"is to be read from offset {reached} on and ends before {state.end}: {reason}"

    def _limited(self, begin: Offsets, ends: Offsets, limit: ReadLimit) -> Offsets | None:
        """Apply the limits; None waits for more messages."""
        waiting = sum(ends[at] - begin[at] for at in ends)
        if not waiting:
            return None
        fewest = self.options.min_offsets_per_trigger
        may_wait = self._target is None and not isinstance(limit, ReadAllAvailable)
        if fewest is not None and may_wait and waiting < fewest and not self._is_late():
            return None
        self._batch_at = self.now()
        if isinstance(limit, ReadMaxRows):
            return limit_offsets(begin, ends, limit.max_rows)
        return ends

    def _is_late(self) -> bool:
        return self.now() - self._batch_at >= self.options.max_trigger_delay_s

    # Tasks

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Divide a micro-batch into tasks; the same offsets give the same tasks.

        Raises:
            DataLossError: a partition was made anew since the micro-batch was planned.
        """
        self._await_connection()
        done, wanted = QueryOffset.from_json(start), QueryOffset.from_json(end)
        if not done and not self.options.starting.is_settled:
            return []
        begin = {**done.offsets, **wanted.starts}
        slices = {at: offset for at, offset in wanted.offsets.items() if begin.get(at) != offset}
        if end != self._planned:
            slices = self._still_there(slices, wanted)
        for at, offset in slices.items():
            # Checkpoints of before do not tell where a micro-batch began in a new partition.
            if at not in begin or offset < begin[at]:
                begin[at] = self._first(done, at, offset)
        return plan_tasks(begin, slices, self.options)

    def _still_there(self, ends: Offsets, planned: QueryOffset) -> Offsets:
        """Leave out what belonged to a partition that is another one by now."""
        from spark_jobs.topics import find_partitions

        found = find_partitions(self.options)
        gone = sorted(
            at for at in ends if at not in found or not planned.is_of(at, found[at].identity)
        )
        if gone and self.options.fail_on_data_loss:
            raise DataLossError(
                f"{gone[0]} was deleted, made anew, or purged before the micro-batch that ends "
                f"with offset {ends[gone[0]]} was read; {_FROM_BEGINNING}"
            )
        return {at: end for at, end in ends.items() if at not in gone}

    def _first(self, done: QueryOffset, at: TopicPartition, end: int) -> int:
        from spark_jobs.topics import first_offset

        given = {} if done else self.options.starting.offsets or {}
        offset = given.get(at, EARLIEST_MARK)
        return first_offset(self.options, at, end) if offset == EARLIEST_MARK else offset

    # Progress

    def commit(self, end: dict[str, Any]) -> None:
        """Store the offsets on the server; Spark has committed all messages before them."""
        self._await_connection()
        self._store_progress(QueryOffset.from_json(end).offsets)

    def stop(self) -> None:
        """Close the connections of this process."""
        from spark_jobs.topics import close_all

        close_all()

    def _store_progress(self, done: Offsets) -> None:
        """Store the changed offsets under the consumer's name, if there is one."""
        if self.options.consumer is None:
            return
        for place, offset in done.items():
            if offset and self._stored.get(place) != offset:
                self._store(place, offset)

    def _store(self, place: TopicPartition, offset: int) -> None:
        from iggy_sdk import (
            ConnectionFailedError,
            ConsumerIdentity,
            InvalidOffsetError,
            NotFoundError,
            RequestTimeoutError,
        )
        from spark_jobs.topics import request

        assert self.options.consumer is not None
        consumer = ConsumerIdentity.single(self.options.consumer)
        try:
            request(
                self.options.server,
                lambda client: client.store_consumer_offset(
                    self.options.stream,
                    place.topic,
                    offset - 1,
                    consumer=consumer,
                    partition_id=place.partition,
                ),
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

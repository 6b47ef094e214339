"""The reader and the writer of streams for PySpark that lacks a part of the API (``spark_api``)."""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamWriter

from spark_jobs.stream_reader import StreamReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.datasource import InputPartition, WriterCommitMessage
    from pyspark.sql.types import StructType

    from spark_jobs.options import ReadOptions
    from spark_jobs.spark_api import ReadLimit
    from spark_jobs.writer import StreamWriter


ROWS_PER_BATCH: Final = 10_000
"""Rows that become one Arrow batch, as many as Spark itself puts into one."""

_LOGGER: Final = logging.getLogger("spark_jobs")


class UnlimitedStreamReader(StreamReader):
    """The reader for Spark without admission control, 4.0 and 4.1.

    This Spark asks for the latest offset without saying where the query stands. But each
    micro-batch goes through ``partitions``, and so does the end of the last one when a query starts
    again; a reader that was not asked for it belongs to a new query.

    ``availableNow`` is one micro-batch here, and nobody tells the reader of it.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._reached: dict[str, Any] = {}
        self._asked = False

    def latestOffset(  # the arguments are those of later versions
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Choose the end of the next micro-batch."""
        if not self._asked:
            self._asked = True
            self._warn()
            # It may be the only micro-batch, so it does not wait for a minimum.
            self.prepareForTriggerAvailableNow()
        end = super().latestOffset(
            self._reached if start is None else start,
            self.getDefaultReadLimit() if limit is None else limit,
        )
        self._target = None
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Divide a micro-batch into tasks, and remember its end."""
        self._reached = end
        return [] if start == end else super().partitions(start, end)

    def _warn(self) -> None:
        if self.options.max_offsets_per_trigger is not None:
            _LOGGER.warning(
                "with this version of Spark the trigger availableNow ends after one micro-batch of "
                "%d messages (maxOffsetsPerTrigger); leave that option out there, or take "
                "PySpark 4.2",
                self.options.max_offsets_per_trigger,
            )


class RowStreamWriter(DataSourceStreamWriter):
    """The writer for Spark that gives rows to the sink of a stream and no Arrow batches, 4.0.

    Args:
        writer: writes Arrow batches.
        schema: the columns of the rows.
    """

    def __init__(self, writer: StreamWriter, schema: StructType) -> None:
        self._writer = writer
        self._schema = schema

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Send the rows of one task."""
        return self._writer.write(self._batches(iterator))

    def _batches(self, rows: Iterator[Any]) -> Iterator[Any]:
        from pyspark.sql.conversion import LocalDataToArrowConversion

        while some := list(islice(rows, ROWS_PER_BATCH)):
            table = LocalDataToArrowConversion.convert(some, self._schema, False)
            yield from table.to_batches()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Pass on that a micro-batch is done."""
        self._writer.commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Pass on that a micro-batch failed."""
        self._writer.abort(messages, batchId)

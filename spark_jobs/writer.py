"""Writes rows to topics, in batch and in streaming queries: the part that plans a write.

Spark pickles a writer and sends it to its tasks, which is where ``write_task`` goes on.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from spark_jobs.errors import OptionError
from spark_jobs.schema import check_write_schema
from spark_jobs.spark_api import DataSourceStreamArrowWriter
from spark_jobs.write_task import TaskWriter, check_partition, prepare_topic, scope_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

    from spark_jobs.options import WriteOptions


@dataclass(frozen=True)
class TaskCommit(WriterCommitMessage):
    """The commit message of a task.

    Attributes:
        task: the number of the task.
        rows_count: how many rows.
    """

    task: int
    rows_count: int


class TopicWriter:
    """Sends the rows of tasks; it is pickled, so it holds no connection.

    Args:
        options: where and how.
        schema: the columns of the rows.
    """

    _is_only_write = False
    """Whether its micro-batch has no other write."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        columns = set(schema.fieldNames())
        check_write_schema(schema)
        if options.topic is None and "topic" not in columns:
            raise OptionError(
                'option topic is missing; add .option("topic", "orders"), or a column topic '
                "that names the topic of each row"
            )
        self._options = options
        self._partitioning = _partitioning(options, columns)
        self._partitions_count: int | None = None
        if options.topic is not None:
            self._partitions_count = prepare_topic(options, options.topic)
            check_partition(self._partitioning, options.topic, self._partitions_count)
        # No other write has this name, so that its messages are not taken for those of another.
        self._name = uuid.uuid4().hex

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Send the rows of one task."""
        context = TaskContext.get()
        assert context is not None, "Spark writes in tasks only"
        task = context.partitionId()
        scope = scope_of(context, self._options, self._name, is_only_write=self._is_only_write)
        writer = TaskWriter(self._options, self._partitioning, scope, task)
        writer.write(iterator)
        return TaskCommit(task, writer.rows_count)

    @property
    def partitioning(self) -> str | int:
        """How partitions are chosen."""
        return self._partitioning

    @property
    def partitions_count(self) -> int | None:
        """How many partitions the topic had when the write was planned; None if there are many."""
        return self._partitions_count


def _partitioning(options: WriteOptions, columns: set[str]) -> str | int:
    """Return the partitioning, from the option or else from the columns."""
    how = options.partitioning
    if how is None:
        return "key" if "key" in columns else "balanced"
    if isinstance(how, str) and how != "balanced" and how not in columns:
        raise OptionError(f"partitioning is {how}, and there is no column {how}; add it")
    return how


class BatchWriter(TopicWriter, DataSourceArrowWriter):
    """Writes the rows of ``df.write``.

    Args:
        options: where and how.
        schema: the columns of the rows.
        overwrite: whether the query wants to replace the topic, which is refused.
    """

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise OptionError(
                'a topic can only be appended to; use mode("append"), or delete the topic before'
            )
        super().__init__(options, schema)


class StreamWriter(TopicWriter, DataSourceStreamArrowWriter):
    """Writes the rows of ``df.writeStream``, in the output modes ``append`` and ``complete``.

    A topic keeps what it has: ``complete`` appends all rows of the result after each micro-batch,
    as Spark's Kafka sink does. Spark itself refuses ``update`` for sinks in Python.
    """

    _is_only_write = True

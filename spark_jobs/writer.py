"""Writes rows to a topic, in batch and in streaming queries.

Spark repeats tasks and whole micro-batches. What a task sends depends on its rows alone: their
ids, their order and their partitions. Servers look for duplicates in each partition separately, so
rows without a key or partition are distributed here and not by the server.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from spark_jobs.connections import connection
from spark_jobs.errors import OptionError
from spark_jobs.schema import check_write_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

    from iggy_sdk.blocking import Producer
    from spark_jobs.options import WriteOptions

__all__ = ["BatchWriter", "StreamWriter"]


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
        overwrite: whether the query wants to replace the topic, which is refused.
    """

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise OptionError(
                'a topic can only be appended to; use mode("append"), or outputMode("append") or '
                '"update" in a streaming query'
            )
        check_write_schema(schema)
        self._options = options
        self._partitioning = _partitioning(options, set(schema.fieldNames()))
        self._partitions_count = _prepare_topic(options)
        self._check_partition()
        # Without a writerId every batch write has different ids.
        self._writer_id = options.writer_id or uuid.uuid4().hex

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Send the rows of one task."""
        from spark_jobs.row_messages import RowMessageBuilder

        context = TaskContext.get()
        assert context is not None, "Spark writes in tasks only"
        maker = RowMessageBuilder(self._scope(context), has_keys=self._partitioning == "key")
        client = connection(self._options.server)
        options = self._options
        direct = {"batch_length": options.send_batch}
        with client.producer(options.stream, options.topic, direct=direct) as producer:
            sending = _TaskSender(producer, self, context.partitionId())
            for rows in iterator:
                if rows.num_rows:
                    sending.send(rows, maker.messages(rows))
            sending.finish()
        return TaskCommit(context.partitionId(), maker.rows_count)

    @property
    def partitioning(self) -> str | int:
        """How partitions are chosen."""
        return self._partitioning

    @property
    def partitions_count(self) -> int:
        """How many partitions the topic had when the write was planned."""
        return self._partitions_count

    @property
    def send_batch(self) -> int:
        """Messages of one request at most."""
        return self._options.send_batch

    def _scope(self, context: TaskContext) -> str | None:
        """Return a text that is the same when Spark repeats this task, and unique to it."""
        if not self._options.idempotent:
            return None
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        writer = f"{self._options.writer_id or ''}:{query}:{batch}" if query else self._writer_id
        return f"{writer}:{context.partitionId()}"

    def _check_partition(self) -> None:
        number = self._partitioning
        if isinstance(number, int) and number >= self._partitions_count:
            raise OptionError(
                f"partitioning is {number}, and topic {self._options.topic!r} has partitions 0 to "
                f"{self._partitions_count - 1}; choose one of these"
            )


class _TaskSender:
    """Sends the rows of one task: chooses partitions, with few requests."""

    def __init__(self, producer: Producer[Any], writer: TopicWriter, task: int) -> None:
        self._producer = producer
        self._writer = writer
        # Each task begins with another partition, so that small tasks do not all use the first.
        self._next_partition = task
        self._waiting: dict[int, list[Any]] = {}

    def send(self, rows: Any, messages: list[Any]) -> None:
        """Send the messages of some rows, or keep them for a larger request."""
        how = self._writer.partitioning
        if how == "key":
            self._send_keyed(messages)
        elif how == "partition":
            numbers = rows.column("partition").to_pylist()
            for number, message in zip(numbers, messages, strict=True):
                self._keep(self._next() if number is None else number, [message])
        elif isinstance(how, int):
            self._keep(how, messages)
        else:
            for start in range(0, len(messages), self._writer.send_batch):
                self._deliver(self._next(), messages[start : start + self._writer.send_batch])

    def finish(self) -> None:
        """Send what was kept."""
        for number, messages in self._waiting.items():
            self._deliver(number, messages)
        self._waiting.clear()

    def _send_keyed(self, messages: list[Any]) -> None:
        """Send rows with a key by key; rows without one rotate over the partitions."""
        self._producer.send_many([one for one in messages if one.key is not None])
        without_key = [one for one in messages if one.key is None]
        if without_key:
            self._deliver(self._next(), without_key)

    def _keep(self, number: int, messages: list[Any]) -> None:
        waiting = self._waiting.setdefault(number, [])
        waiting += messages
        if len(waiting) >= self._writer.send_batch:
            self._deliver(number, waiting)
            self._waiting[number] = []

    def _deliver(self, number: int, messages: list[Any]) -> None:
        if messages:
            self._producer.send_many(messages, partition_id=number)

    def _next(self) -> int:
        number = self._next_partition % self._writer.partitions_count
        self._next_partition += 1
        return number


def _partitioning(options: WriteOptions, columns: set[str]) -> str | int:
    """Return the partitioning, from the option or else from the columns."""
    how = options.partitioning
    if how is None:
        return "key" if "key" in columns else "balanced"
    if isinstance(how, str) and how != "balanced" and how not in columns:
        raise OptionError(f"partitioning is {how}, and there is no column {how}; add it")
    return how


def _prepare_topic(options: WriteOptions) -> int:
    """Create the topic if requested, and return how many partitions it has."""
    client = connection(options.server)
    if options.create_topic is not None:
        client.create_stream(options.stream, exist_ok=True)
        client.create_topic(options.stream, options.topic, options.create_topic, exist_ok=True)
    topic = client.get_topic(options.stream, options.topic)
    if topic is None:
        raise OptionError(
            f"there is no topic {options.topic!r} in stream {options.stream!r}; create it, or set "
            "createTopic to the number of partitions it shall have"
        )
    if not topic.partitions_count:
        raise OptionError(f"topic {options.topic!r} has no partitions; add one before the write")
    return topic.partitions_count


class BatchWriter(TopicWriter, DataSourceArrowWriter):
    """Writes the rows of ``df.write``."""


class StreamWriter(TopicWriter, DataSourceStreamArrowWriter):
    """Writes the rows of ``df.writeStream``."""

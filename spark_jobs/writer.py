"""Writes rows to a topic, in batch and in streaming queries.

Spark repeats tasks and whole micro-batches. What a task sends depends on its rows alone: their
ids, their order and their partitions. Servers look for duplicates in each partition separately, so
rows without a key or partition are distributed here and not by the server.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from hashlib import blake2b
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import pyarrow as pa  # type: ignore[import-untyped]  # it comes without types
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from iggy_sdk import DirectMode, HeaderKind, HeaderValue, Message
from spark_jobs.errors import OptionError, SchemaError
from spark_jobs.schema import check_write_schema
from spark_jobs.spark_api import DataSourceStreamArrowWriter
from spark_jobs.topics import connection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

    from iggy_sdk.blocking import Producer
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
        from spark_jobs.writer import RowMessageBuilder

        context = TaskContext.get()
        assert context is not None, "Spark writes in tasks only"
        maker = RowMessageBuilder(self._scope(context), has_keys=self._partitioning == "key")
        client = connection(self._options.server)
        options = self._options
        mode = DirectMode(batch_length=options.send_batch)
        with client.producer(options.stream, options.topic, mode=mode) as producer:
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


# From rows to messages: payloads, keys, ids and headers of what a sink sends.
#
# The id of a row depends on its writer, its task and its position in the task. So a task that
# Spark repeats sends the same ids, and a server with deduplication stores each row once.

ROW_BITS: Final = 32
"""Rows of a task that share the rest of their ids; after as many another rest is made."""

SCOPE_BYTES: Final = 16 - ROW_BITS // 8
_ROW_MASK: Final = (1 << ROW_BITS) - 1
_KINDS: Final = {kind.name.lower(): kind for kind in HeaderKind}


class RowMessageBuilder:
    """Builds messages from the rows of one task.

    Args:
        scope: a text that is unique to this task; None makes no ids.
        has_keys: whether the column ``key`` is used.
    """

    def __init__(self, scope: str | None, *, has_keys: bool) -> None:
        self._scope = scope
        self._has_keys = has_keys
        self._rows_count = 0

    @property
    def rows_count(self) -> int:
        """How many rows were converted."""
        return self._rows_count

    def messages(self, rows: Any) -> list[Any]:
        """Build the messages of a record batch, in order; plain bytes if there are only payloads.

        Raises:
            SchemaError: a payload is missing, or an id is invalid.
        """
        payloads = self._payloads(rows)
        names = set(rows.schema.names)
        headers = _read_headers(rows) if "headers" in names else None
        keys = rows.column("key").to_pylist() if self._has_keys else None
        origins = _read_origins(rows) if "origin_timestamp" in names else None
        ids = self._ids(len(payloads)) if self._scope is not None else None
        if "id" in names:
            given = _read_ids(rows)
            ids = given if ids is None else list(map(_given_or_made, given, ids))
        self._rows_count += len(payloads)
        if headers is keys is origins is ids is None:
            return payloads
        # A missing column has the same value in all rows.
        return list(
            map(
                Message,
                payloads,
                repeat(None) if headers is None else headers,
                repeat(0) if ids is None else ids,
                repeat(None) if keys is None else keys,
                repeat(None) if origins is None else origins,
            )
        )

    def _payloads(self, rows: Any) -> list[bytes]:
        column = rows.column("payload")
        if column.null_count:
            row = self._rows_count + column.is_null().index(True).as_py()
            raise SchemaError(
                f"row {row} of the task has no payload; filter such rows out with "
                'df.where("payload IS NOT NULL")'
            )
        payloads: list[bytes] = column.cast(pa.binary()).to_pylist()
        return payloads

    def _ids(self, count: int) -> list[int]:
        """Make the ids of the next rows."""
        first, after = self._rows_count, self._rows_count + count
        ids: list[int] = []
        while first < after:
            part = first >> ROW_BITS
            end = min(after, (part + 1) << ROW_BITS)
            start = self._prefix_of(part) | first & _ROW_MASK
            ids += range(start, start + end - first)
            first = end
        return ids

    def _prefix_of(self, part: int) -> int:
        digest = blake2b(f"{self._scope}:{part}".encode(), digest_size=SCOPE_BYTES).digest()
        return int.from_bytes(digest, "little") << ROW_BITS


def _given_or_made(given: int, made: int) -> int:
    return given or made


def _read_ids(rows: Any) -> list[int]:
    """Read the column ``id``; 0 where it is null."""
    return [0 if value is None else _id(value) for value in rows.column("id").to_pylist()]


def _id(value: bytes | str) -> int:
    try:
        raw = UUID(value).bytes if isinstance(value, str) else value
        if len(raw) != 16:
            raise ValueError
    except ValueError:
        raise SchemaError(
            f"the id {value!r} is invalid; give 16 bytes, the text of a UUID, or null"
        ) from None
    return int.from_bytes(raw, "little")


def _read_origins(rows: Any) -> list[int | None]:
    origins: list[int | None] = rows.column("origin_timestamp").cast(pa.int64()).to_pylist()
    return origins


def _read_headers(rows: Any) -> list[dict[str, Any] | None]:
    column = rows.column("headers")
    is_map = pa.types.is_map(column.type)
    return [_headers(pairs, is_map=is_map) if pairs else None for pairs in column.to_pylist()]


def _headers(pairs: list[Any], *, is_map: bool) -> dict[str, Any]:
    """Build headers from a map, or from a list with kinds as the source returns it."""
    if is_map:
        return {key: value for key, value in pairs if value is not None}
    return dict(_typed(pair) for pair in pairs if pair["value"] is not None)


def _typed(pair: dict[str, Any]) -> tuple[str, HeaderValue]:
    kind = _KINDS.get((pair["kind"] or "raw").lower())
    if kind is None:
        raise SchemaError(
            f"header {pair['key']!r} is of kind {pair['kind']!r}; kinds are {', '.join(_KINDS)}"
        )
    return pair["key"], HeaderValue(kind, pair["value"])

"""The part of a write that runs in a task of Spark: rows of Arrow become messages that are sent.

Spark runs a task again after an error, beside a slow one, or with a whole micro-batch, and its rows
may come in another order then. So the id of a message follows from what is in it, and its
partition from its key or its id: the same rows make the same messages, and no two rows of a task
make the same one.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa  # type: ignore[import-untyped]  # it comes without types
import pyarrow.compute as pc  # type: ignore[import-untyped]  # it comes without types

from iggy_sdk import BackgroundMode, IggyError, InvalidRequestError
from iggy_sdk.arrow import ArrowMessageBuilder
from spark_jobs.errors import OptionError, SchemaError
from spark_jobs.topics import connection

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark import TaskContext

    from iggy_sdk.arrow import ArrowMessages
    from iggy_sdk.blocking import Producer
    from spark_jobs.options import WriteOptions


COLLECTED_BYTES_MAX: Final = 8 << 20
"""Small record batches are put together up to this size, so that requests are not small."""

TOPICS_MAX: Final = 1_024
"""Topics whose partitions a task remembers; a producer remembers as many."""

CLOSING_SECONDS: Final = 0.001
"""How long a task that has failed waits for what it has sent."""


def scope_of(
    context: TaskContext, options: WriteOptions, name: str, *, is_only_write: bool
) -> bytes | None:
    """Return what sets the ids of this task apart, and is the same when Spark repeats the task.

    Args:
        context: the task.
        options: of the write.
        name: of the write; no other write has it, and neither has a repetition of this one.
        is_only_write: whether its micro-batch has no other write.

    Returns:
        None if there are no ids to be made.
    """
    if not options.idempotent:
        return None
    query = context.getLocalProperty("sql.streaming.queryId")
    of_write: list[str | int | None]
    if query is None:
        # A batch write is repeated by its user alone, who names it.
        of_write = [options.writer_id or name]
    else:
        batch = context.getLocalProperty("streaming.sql.batchId")
        number = None if is_only_write else _write_number(context) or name
        of_write = [options.writer_id, query, batch, number]
    return json.dumps([*of_write, options.stream, context.partitionId()]).encode()


def _write_number(context: TaskContext) -> str | None:
    """Tell apart the writes of one micro-batch; None if Spark does not say which one this is.

    Spark numbers what it executes, and says in which execution another one began: that of the
    micro-batch. The distance of the two is the same when the micro-batch is repeated, unless
    other queries execute something meanwhile. Several writes of one SQL statement are one
    execution; those alone have an RDD scope.
    """
    own = context.getLocalProperty("spark.sql.execution.id")
    root = context.getLocalProperty("spark.sql.execution.root.id")
    if own is None or root is None or context.getLocalProperty("spark.rdd.scope") is not None:
        return None
    return str(int(own) - int(root))


class TaskWriter:
    """Sends the rows of one task.

    Args:
        options: where and how.
        partitioning: how partitions are chosen.
        scope: what sets the ids of the task apart; None makes no ids.
        task: the number of the task.
    """

    def __init__(
        self, options: WriteOptions, partitioning: str | int, scope: bytes | None, task: int
    ) -> None:
        self._options = options
        self._partitioning = partitioning
        self._builder = ArrowMessageBuilder(scope, has_keys=partitioning == "key")
        self._spreads_by_id = scope is not None
        # Each task begins with another partition, so that small tasks do not all use the first.
        self._next_partition = task
        self._partitions: dict[str, int] = {}
        self._producer: Producer[Any] | None = None

    @property
    def rows_count(self) -> int:
        """How many rows were sent."""
        return self._builder.rows_count

    def write(self, batches: Iterable[Any]) -> None:
        """Send all rows, and return when the server has them."""
        try:
            for rows in self._collected(batches):
                for topic, part in self._by_topic(rows):
                    self._send(topic, part)
            if self._producer is not None:
                self._producer.flush()
        except BaseException:
            self._close(CLOSING_SECONDS)
            raise
        self._close(None)

    def _close(self, timeout: float | None) -> None:
        producer, self._producer = self._producer, None
        if producer is None:
            return
        if timeout is None:
            producer.close()
            return
        # The error of the task is the one to tell.
        with suppress(IggyError):
            producer.close(timeout=timeout)

    # Rows

    def _collected(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Put small record batches together."""
        waiting: list[Any] = []
        rows = size_bytes = 0
        for batch in batches:
            if not batch.num_rows:
                continue
            waiting.append(batch)
            rows, size_bytes = rows + batch.num_rows, size_bytes + batch.nbytes
            if rows >= self._rows_wanted() or size_bytes >= COLLECTED_BYTES_MAX:
                yield _joined(waiting)
                waiting, rows, size_bytes = [], 0, 0
        if waiting:
            yield _joined(waiting)

    def _rows_wanted(self) -> int:
        """How many rows fill a request to each partition."""
        topic = self._options.topic
        count = max(self._partitions.values(), default=1) if topic is None else self._count(topic)
        return self._options.send_batch * (1 if isinstance(self._partitioning, int) else count)

    def _by_topic(self, rows: Any) -> Iterator[tuple[str, Any]]:
        """Divide rows among topics: all go to that of the option, or each to that of its column."""
        topic = self._options.topic
        if topic is not None:
            yield topic, rows
            return
        column = rows.column("topic")
        if column.null_count:
            row = self.rows_count + column.is_null().index(True).as_py()
            raise SchemaError(
                f"row {row} of the task has no topic; give every row one, or all of them with the "
                "option topic"
            )
        names = pc.unique(column).to_pylist()
        for name in names:
            yield name, rows if len(names) == 1 else rows.filter(pc.equal(column, name))

    # Sending

    def _send(self, topic: str, rows: Any) -> None:
        try:
            messages = self._builder.messages(rows, place=topic)
            groups = self._groups(messages, rows, self._count(topic))
        except InvalidRequestError as error:
            raise SchemaError(f"{error.message}. {error.advice}") from error
        producer = self._open(topic)
        for number, group in groups:
            producer.send_to(self._options.stream, topic, group, partition_id=number)

    def _groups(self, messages: ArrowMessages, rows: Any, count: int) -> Iterable[tuple[int, Any]]:
        """Divide messages among partitions."""
        how = self._partitioning
        if isinstance(how, int):
            return [(how, messages.rows)]
        if how == "partition":
            numbers = rows.column("partition")
            return messages.by_number(numbers, count, otherwise=self._next(count))
        if how == "key" or self._spreads_by_id:
            return messages.by_key(count, otherwise=self._next(count))
        length = self._options.send_batch
        starts = range(0, len(messages.rows), length)
        return [(self._next(count), messages.rows[at : at + length]) for at in starts]

    def _next(self, count: int) -> int:
        number = self._next_partition % count
        self._next_partition += 1
        return number

    def _count(self, topic: str) -> int:
        """Return how many partitions a topic has; it is created if that was requested."""
        if topic not in self._partitions:
            if len(self._partitions) >= TOPICS_MAX:
                del self._partitions[next(iter(self._partitions))]
            count = prepare_topic(self._options, topic)
            check_partition(self._partitioning, topic, count)
            self._partitions[topic] = count
        return self._partitions[topic]

    def _open(self, topic: str) -> Producer[Any]:
        """Return the producer of the task; it sends to all topics."""
        if self._producer is None:
            options = self._options
            mode = BackgroundMode(
                batch_length=options.send_batch, max_in_flight=options.max_in_flight
            )
            client = connection(options.server)
            self._producer = client.producer(options.stream, topic, mode=mode).open()
        return self._producer


def _joined(batches: list[Any]) -> Any:
    if len(batches) == 1:
        return batches[0]
    (joined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined


def prepare_topic(options: WriteOptions, topic: str) -> int:
    """Create the topic if requested, and return how many partitions it has.

    Raises:
        OptionError: there is no such topic, or it has no partitions.
    """
    client = connection(options.server)
    if options.create_topic is not None:
        client.create_stream(options.stream, exist_ok=True)
        client.create_topic(options.stream, topic, options.create_topic, exist_ok=True)
    found = client.get_topic(options.stream, topic)
    if found is None:
        raise OptionError(
            f"there is no topic {topic!r} in stream {options.stream!r}; create it, or set "
            "createTopic to the number of partitions it shall have"
        )
    if not found.partitions_count:
        raise OptionError(f"topic {topic!r} has no partitions; add one before the write")
    return found.partitions_count


def check_partition(partitioning: str | int, topic: str, count: int) -> None:
    """Refuse the number of a partition that a topic does not have.

    Raises:
        OptionError: it is too large.
    """
    if isinstance(partitioning, int) and partitioning >= count:
        raise OptionError(
            f"partitioning is {partitioning}, and topic {topic!r} has partitions 0 to "
            f"{count - 1}; choose one of these"
        )

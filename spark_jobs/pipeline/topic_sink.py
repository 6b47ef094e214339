"""The sink that is a topic of Iggy: columns of messages, or rows as JSON objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.errors import OptionError
from spark_jobs.options import write_options
from spark_jobs.pipeline.connectors import ORIGIN, BatchContext, names_of
from spark_jobs.pipeline.reading import unknown_name
from spark_jobs.pipeline.secrets import SecretOrText, reveal
from spark_jobs.pipeline.sql_steps import quote
from spark_jobs.pipeline.topic_sources import SERVER_OF_ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame

SAME: Final = "same"
"""Partitioning by the partition that a message had, so that their order stays."""

QUERY_ID: Final = "sql.streaming.queryId"
"""The property in which Spark keeps the query that a thread works for."""

PAYLOAD: Final = "payload"
COPIED: Final = ("headers", "origin_timestamp")
"""What a message keeps when it is copied."""

_PAYLOAD_KINDS: Final = ("binary", "string")
WHOLE_ROW: Final = "*"
LINE: Final = "value"
"""The column of lines of files."""


@dataclass(frozen=True)
class IggySink:
    """A topic of Iggy.

    Attributes:
        stream: name of the stream.
        topic: the topic.
        server: the connection string; by default that of the environment.
        payload_column: the column that is sent, or ``*`` for the whole row as a JSON object. By
            default that is ``payload`` if it is text or bytes, with the headers and the time of
            the message, else the whole row.
        key_column: rows with equal keys go to one partition.
        header_columns: columns that become headers as well.
        partitioning: ``balanced``, ``key``, ``same`` as in the source, or a number.
        create_topic: how many partitions a missing topic gets.
        from_lines: whether columns are fields of JSON lines, as ``iggy-spark-from-files`` has them.
    """

    stream: str
    topic: str
    server: SecretOrText = SERVER_OF_ENVIRONMENT
    payload_column: str | None = None
    key_column: str | None = None
    header_columns: tuple[str, ...] = ()
    partitioning: str | None = None
    create_topic: int | None = None
    from_lines: bool = False

    needs_origin = True

    @property
    def guarantee(self) -> str:
        """Say what a repeated micro-batch does."""
        return (
            "each row at least once; once, if the server deduplicates: a repeated micro-batch "
            "sends messages with the same ids"
        )

    def options(self) -> dict[str, str]:
        """Return the options of ``format("iggy")``."""
        options = {"server": reveal(self.server), "stream": self.stream, "topic": self.topic}
        if self.create_topic is not None:
            options["createTopic"] = str(self.create_topic)
        if self.partitioning is not None:
            is_same = self.partitioning == SAME
            options["partitioning"] = "partition" if is_same else self.partitioning
        return options

    def check(self) -> None:
        """Validate the options, and ask the server for the topic."""
        write_options(self.options())
        if self._partitions_count() is None:
            raise OptionError(
                f"there is no topic {self.topic!r} in stream {self.stream!r}; create it, or add "
                "--create-topic N (in a file: create_topic = N)"
            )

    def _partitions_count(self) -> int | None:
        """Ask how many partitions the topic has, or will have; None if it is missing."""
        from spark_jobs.topics import connection

        found = connection(reveal(self.server)).get_topic(self.stream, self.topic)
        return self.create_topic if found is None else int(found.partitions_count)

    def prepare(self, rows: DataFrame, prefix: str) -> None:
        """Check that messages can be made of the rows."""
        self.messages(rows, prefix)

    def write(self, rows: DataFrame, context: BatchContext) -> None:
        """Send the rows of a micro-batch."""
        send_messages(self.messages(rows, context.prefix), self.options(), context)

    def messages(self, rows: DataFrame, prefix: str) -> DataFrame:
        """Make messages of rows."""
        from pyspark.sql import functions as F

        payload = self._payload(rows, prefix)
        columns = {PAYLOAD: payload, **self._keyed(rows, payload)}
        if self._is_copy(rows):
            columns |= {name: F.col(name) for name in COPIED if name in names_of(rows)}
        if self.partitioning == SAME:
            columns["partition"] = self._same_partition(rows, prefix)
        if self.header_columns:
            names = [part for name in self.header_columns for part in self._header(rows, name)]
            columns["headers"] = F.create_map(*names)
        made = rows.select(*(column.alias(name) for name, column in columns.items()))
        # A row without a payload, such as an empty line, is no message.
        return made.where(F.length(PAYLOAD) > 0) if _has_files(rows) else made

    def _payload(self, rows: DataFrame, prefix: str) -> Column:
        from pyspark.sql import functions as F

        if self._is_copy(rows):
            return F.col(PAYLOAD)
        if self.payload_column not in (None, WHOLE_ROW):
            return self._cell(rows, str(self.payload_column))
        present = names_of(rows)
        # What describes the message that was read is not part of what it says.
        sent = [name for name in present if not prefix or not name.startswith(prefix)]
        return F.to_json(F.struct(*map(quote, sent or present)))

    def _is_copy(self, rows: DataFrame) -> bool:
        """Tell whether rows are messages that go on as such."""
        return (
            self.payload_column is None
            and PAYLOAD in names_of(rows)
            and rows.schema[PAYLOAD].dataType.typeName() in _PAYLOAD_KINDS
        )

    def _same_partition(self, rows: DataFrame, prefix: str) -> Column:
        from pyspark.sql import functions as F

        count = self._partitions_count()
        assert count is not None, "check() has found the topic"
        name = "partition" if "partition" in names_of(rows) else f"{prefix}partition"
        return self._cell(rows, name) % F.lit(count)

    def _keyed(self, rows: DataFrame, payload: Column) -> dict[str, Column]:
        from pyspark.sql import functions as F

        key = None if self.key_column is None else self._cell(rows, self.key_column)
        if not _has_files(rows):
            return {} if key is None else {"key": key.cast("string")}
        # The place in a file and the content: files may be sent again, and a replaced file
        # gives other messages. A row without a key is partitioned by its id for the same reason.
        parts = [F.col(f"{ORIGIN}.{name}").cast("string") for name in ("file", "block", "row")]
        place = F.concat_ws("\n", *parts).cast("binary")
        made = F.unhex(F.md5(F.concat(place, F.lit(b"\n"), payload.cast("binary"))))
        given = F.lit(None) if key is None else key
        return {"id": made, "key": F.coalesce(given.cast("string").cast("binary"), made)}

    def _header(self, rows: DataFrame, name: str) -> tuple[Column, Column]:
        from pyspark.sql import functions as F

        return F.lit(name), self._cell(rows, name).cast("string")

    def _cell(self, rows: DataFrame, name: str) -> Column:
        """Return a column, or a field of a JSON line."""
        from pyspark.sql import functions as F

        known: Sequence[str] = names_of(rows)
        if self.from_lines and name != LINE:
            return F.get_json_object(LINE, f"$.{name}")
        if name not in known:
            raise OptionError(unknown_name(f"column {name!r}", name, known))
        return F.col(quote(name))

    def describe(self) -> str:
        """Say in words what is written."""
        return f"stream {self.stream}, topic {self.topic}"


def send_messages(messages: DataFrame, options: Mapping[str, str], context: BatchContext) -> None:
    """Send messages, with the same ids whenever the micro-batch is repeated.

    Within a query the ids would depend on what else was executed before in the micro-batch, which
    is less in a repetition: a sink that has its rows does nothing. So this write has a name.
    """
    named = {**options, "writerId": f"{context.sink_writer}-{context.batch_id}"}
    spark_context = messages.sparkSession.sparkContext
    query = spark_context.getLocalProperty(QUERY_ID)
    spark_context.setLocalProperty(QUERY_ID, None)  # type: ignore[arg-type]  # it clears
    try:
        messages.write.format("iggy").mode("append").options(**named).save()
    finally:
        spark_context.setLocalProperty(QUERY_ID, query)  # type: ignore[arg-type]  # None clears


def _has_files(rows: Any) -> bool:
    return ORIGIN in rows.columns and "row" in rows.schema[ORIGIN].dataType.fieldNames()

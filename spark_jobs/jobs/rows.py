"""Convert messages to rows: JSON payloads become columns, and invalid payloads are separated.

A payload is valid when it is UTF-8, one JSON object, and has the types of the schema, with all
fields that are NOT NULL. Fields that the schema does not name are dropped.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_jobs.errors import OptionError
from spark_jobs.options import read_topics

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType


SOURCE_COLUMNS: Final = (
    "stream STRING, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "origin_timestamp TIMESTAMP, payload BINARY"
)
ERROR: Final = "error"
CORRUPT: Final = "_corrupt_record"
"""The column of invalid payloads, if they are not sent elsewhere; the name is Spark's default."""

PREFIX: Final = "iggy_"
"""Before the columns of a message where a schema names the fields of its payload."""

_POSITION_COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "origin_timestamp")
_TEXT, _PARSED = "_iggy_text", "_iggy_parsed"


def add_json_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of rows."""
    group = parser.add_argument_group("rows")
    group.add_argument(
        "--json-schema",
        metavar="SCHEMA",
        help="read payloads as JSON objects with these fields, such as 'id BIGINT NOT NULL, item "
        "STRING', or the name of a file that holds such a text or Spark's JSON form of a schema",
    )
    group.add_argument(
        "--payload-as",
        choices=("binary", "text"),
        default="binary",
        help="type of the column payload where there is no schema",
    )
    group.add_argument(
        "--time-column",
        default="timestamp",
        metavar="NAME",
        help="where date and hour come from: timestamp, the server's (default), origin_timestamp, "
        "or a field of the schema",
    )
    group.add_argument(
        "--partition-by",
        default="date,hour",
        metavar="NAMES",
        help="columns of which folders are made (default date,hour); none for no folders",
    )


def read_json_schema(text: str) -> StructType:
    """Read a schema, or the file that holds one; a session has to run.

    Raises:
        OptionError: it is none.
    """
    import json

    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    path = Path(text)
    try:
        if path.suffix in (".json", ".ddl", ".sql", ".txt"):
            text = path.read_text(encoding="utf-8")
        if text.lstrip().startswith("{"):
            return StructType.fromJson(json.loads(text))
        schema = StructType.fromDDL(" ".join(text.split()))
        if not isinstance(schema, StructType):
            raise ValueError("it has no fields")
        return schema
    except (OSError, ValueError, KeyError, PySparkException) as error:
        reason = str(error).strip().partition("\n")[0]
        raise OptionError(
            f"--json-schema cannot be read ({reason}); give fields as 'id BIGINT, item STRING', or "
            "a file with such a text"
        ) from None


class RowLayout:
    """What the rows of a job look like.

    Args:
        schema: the fields of payloads; None keeps payloads as they are.
        payload_as: ``binary`` or ``text``.
        time_column: where date and hour come from.
        partition_by: columns of which folders are made.
        keeps_bad: whether payloads that do not fit stay, in a column of their own.
    """

    def __init__(
        self,
        schema: StructType | None,
        *,
        payload_as: str,
        time_column: str,
        partition_by: tuple[str, ...],
        keeps_bad: bool,
    ) -> None:
        self._schema = schema
        self._payload_as = payload_as
        self._time_column = time_column
        self._keeps_bad = keeps_bad
        self.partition_by = partition_by

    @classmethod
    def of(cls, given: argparse.Namespace, *, keeps_bad: bool) -> RowLayout:
        """Make it of the command line.

        Raises:
            OptionError: the schema cannot be read.
        """
        names = tuple(filter(None, (name.strip() for name in given.partition_by.split(","))))
        return cls(
            None if given.json_schema is None else read_json_schema(given.json_schema),
            payload_as=given.payload_as,
            time_column=given.time_column,
            partition_by=() if names == ("none",) else names,
            keeps_bad=keeps_bad,
        )

    def rows(self, messages: DataFrame) -> DataFrame:
        """Make the rows of messages, without those that do not fit unless they are kept.

        Raises:
            OptionError: a column that is to be used does not exist.
        """
        rows = self._plain(messages) if self._schema is None else self._parsed(messages)
        return self._with_time(rows)

    def bad(self, messages: DataFrame) -> DataFrame:
        """Return the messages that do not fit, with the reason in a column ``error``."""
        assert self._schema is not None, "without a schema everything fits"
        judged = self._judged(messages)
        return judged.where(f"{ERROR} IS NOT NULL").drop(_TEXT, _PARSED)

    def _plain(self, messages: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        payload = F.col("payload")
        if self._payload_as == "text":
            payload = F.expr("make_valid_utf8(CAST(payload AS STRING))")
        return messages.select(*_POSITION_COLUMNS, payload.alias("payload"))

    def _parsed(self, messages: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        assert self._schema is not None
        judged = self._judged(messages)
        place = [F.col(name).alias(f"{PREFIX}{name}") for name in _POSITION_COLUMNS]
        fields = [F.col(_PARSED)[name].alias(name) for name in self._schema.fieldNames()]
        if not self._keeps_bad:
            return judged.where(f"{ERROR} IS NULL").select(*fields, *place)
        corrupt = F.when(F.col(ERROR).isNotNull(), F.col("payload")).alias(CORRUPT)
        return judged.select(*fields, *place, corrupt)

    def _judged(self, messages: DataFrame) -> DataFrame:
        """Add the parsed payload, and the reason why it does not fit."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import StringType

        assert self._schema is not None
        fields = type(self._schema)([*self._schema.fields]).add(CORRUPT, StringType())
        text = F.expr("try_validate_utf8(CAST(payload AS STRING))")
        parsed = F.from_json(_TEXT, fields, {"columnNameOfCorruptRecord": CORRUPT})
        with_text = messages.withColumn(_TEXT, text)
        return with_text.withColumn(_PARSED, parsed).withColumn(ERROR, self._error())

    def _error(self) -> Column:
        from pyspark.sql import functions as F

        assert self._schema is not None
        # Spark's parser stops after the first value; within brackets anything more is an error.
        values = F.expr(f"json_array_length(concat('[', {_TEXT}, ']'))")
        parsed = F.col(_PARSED)
        error = (
            F.when(F.col(_TEXT).isNull(), "the payload is not UTF-8")
            .when(values.isNull() | (values != 1), "the payload is not one JSON value")
            .when(parsed.isNull() | parsed[CORRUPT].isNotNull(), "it does not fit the schema")
        )
        for field in self._schema.fields:
            if not field.nullable:
                error = error.when(parsed[field.name].isNull(), f"field {field.name} is missing")
        return error

    def _with_time(self, rows: DataFrame) -> DataFrame:
        """Add date and hour, if folders are made of them and no field has their name."""
        from pyspark.sql import functions as F

        makers = {"date": F.to_date, "hour": F.hour}
        for name in self.partition_by:
            if name in rows.columns:
                continue
            if name not in makers:
                known = ", ".join([*makers, *rows.columns])
                raise OptionError(f"--partition-by names {name!r}; there are {known}")
            rows = rows.withColumn(name, makers[name](self._time_of(rows)))
        return rows

    def _time_of(self, rows: DataFrame) -> Column:
        from pyspark.sql import functions as F

        for name in (self._time_column, f"{PREFIX}{self._time_column}"):
            if name in rows.columns:
                kind = rows.schema[name].dataType.typeName()
                if kind not in ("timestamp", "timestamp_ntz", "date"):
                    raise OptionError(
                        f"--time-column is {name}, which is {kind}; make it TIMESTAMP in the schema"
                    )
                return F.col(name)
        raise OptionError(
            f"--time-column is {self._time_column!r}; there are {', '.join(rows.columns)}"
        )


# Dead letters: messages that a job cannot process go to another topic, or to Parquet files.
#
# A second query reads the same topic and keeps only these. Each query has its own offsets, so
# neither loses or repeats anything when the job is killed between two writes.

HEADER_BYTES_MAX: Final = 255
TRUNCATION_MARK: Final = "..."
# The longest encoding of a character in UTF-8.
CHARACTER_BYTES_MAX: Final = 4


def add_dead_letter_options(parser: argparse.ArgumentParser, *, otherwise: str) -> None:
    """Add the options of dead letters."""
    group = parser.add_argument_group("dead letters")
    where = group.add_mutually_exclusive_group()
    where.add_argument(
        "--dead-letter-topic",
        metavar="TOPIC",
        help="send messages that cannot be processed to this topic of the same stream, with the "
        f"reason and their source in headers; without it {otherwise}",
    )
    where.add_argument(
        "--dead-letter-path", metavar="PATH", help="or write them to Parquet files there"
    )


@dataclass(frozen=True)
class DeadLetterWriter:
    """The destination of dead letters.

    Attributes:
        server: the connection string, never shown.
        stream: the stream of the topic.
        topic: the topic, or
        path: the folder.
    """

    server: str = dataclasses.field(repr=False)
    stream: str
    topic: str | None
    path: str | None

    @classmethod
    def of(cls, given: argparse.Namespace) -> DeadLetterWriter | None:
        """Make it from the command line; None without such options.

        Raises:
            OptionError: it is the topic that is read.
        """
        if given.dead_letter_topic is None and given.dead_letter_path is None:
            return None
        if given.dead_letter_topic in read_topics(given.topic):
            raise OptionError(
                f"--dead-letter-topic {given.dead_letter_topic} is the topic that is read; name "
                "another, or the job would read its own dead letters"
            )
        return cls(given.server, given.stream, given.dead_letter_topic, given.dead_letter_path)

    def __str__(self) -> str:
        return f"topic {self.topic}" if self.topic is not None else f"Parquet files in {self.path}"

    def writer(self, bad: DataFrame) -> DataStreamWriter:
        """Return the writer of messages that have a column ``error``."""
        from pyspark.sql import functions as F

        if self.path is not None:
            # With partition columns Spark writes no file for a micro-batch without rows.
            dated = bad.withColumn("date", F.to_date("timestamp"))
            writer = dated.writeStream.format("parquet").partitionBy("date")
            return writer.option("path", self.path)
        assert self.topic is not None
        places = ("stream", "topic", "partition", "offset")
        headers = [F.lit("error"), truncate_header(F.col("error"))]
        for name in places:
            headers += [F.lit(f"source_{name}"), F.col(name).cast("string")]
        letters = bad.select("payload", "origin_timestamp", F.create_map(*headers).alias("headers"))
        place = {"server": self.server, "stream": self.stream, "topic": self.topic}
        return letters.writeStream.format("iggy").options(**place, createTopic="1")


def truncate_header(text: Column) -> Column:
    """Truncate a text that is too long for a header."""
    from pyspark.sql import functions as F

    room = HEADER_BYTES_MAX - len(TRUNCATION_MARK)
    longest, safest = (F.substring(text, 1, n) for n in (room, room // CHARACTER_BYTES_MAX))
    shortened = F.when(F.octet_length(longest) <= room, longest).otherwise(safest)
    whole = F.octet_length(text) <= HEADER_BYTES_MAX
    return F.when(whole, text).otherwise(F.concat(shortened, F.lit(TRUNCATION_MARK)))

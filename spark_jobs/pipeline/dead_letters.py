"""Rows that cannot be processed: to a topic, to Parquet files, left out, or the end of the run."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from spark_jobs.errors import OptionError
from spark_jobs.pipeline.connectors import ERROR, ORIGIN, BatchContext
from spark_jobs.pipeline.file_sink import write_files
from spark_jobs.pipeline.secrets import SecretOrText, reveal
from spark_jobs.pipeline.topic_sink import send_messages
from spark_jobs.pipeline.topic_sources import SERVER_OF_ENVIRONMENT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

HEADER_BYTES_MAX: Final = 255
TRUNCATION_MARK: Final = "..."
CHARACTER_BYTES_MAX: Final = 4
"""The longest encoding of a character in UTF-8."""

NO_PLACES: Final = ("payload", "timestamp", "origin_timestamp")
"""Fields of an origin that do not say where a row was."""


@dataclass(frozen=True)
class DeadLetters:
    """The destination of rows that cannot be processed.

    Attributes:
        action: ``write`` to the topic or path, ``skip`` with a count, or ``fail``.
        topic: a topic; each letter has the payload that was read, the reason and its place.
        stream: the stream of the topic; by default that of the source.
        server: the connection string; by default that of the source.
        path: or a folder of Parquet files.
    """

    action: Literal["write", "skip", "fail"] | None = None
    topic: str | None = None
    stream: str | None = None
    server: SecretOrText | None = dataclasses.field(default=None, repr=False)
    path: str | None = None

    @property
    def writes(self) -> bool:
        """Whether letters are written somewhere."""
        return self.topic is not None or self.path is not None

    @property
    def fails(self) -> bool:
        """Whether the first bad row ends the run."""
        return not self.writes and self.action != "skip"

    def check_together(self) -> None:
        """Refuse keys that contradict each other.

        Raises:
            OptionError: they do.
        """
        if self.topic is not None and self.path is not None:
            raise OptionError("give topic or path, not both")
        if self.action == "write" and not self.writes:
            raise OptionError('action = "write" needs a topic or a path; add one')
        if self.action in ("skip", "fail") and self.writes:
            raise OptionError(f'action = "{self.action}" writes nothing; leave topic and path out')

    def describe(self) -> str:
        """Say in words what happens to them."""
        if self.topic is not None:
            return f"topic {self.topic}"
        if self.path is not None:
            return f"Parquet files in {self.path}"
        return "left out and counted" if self.action == "skip" else "none: the first fails the run"

    @property
    def guarantee(self) -> str:
        """Say what a repeated micro-batch does to what is there."""
        if self.topic is not None:
            return "each at least once; once, if the server deduplicates"
        return "each once" if self.path is not None else "counted again when repeated"

    def write(self, bad: DataFrame, context: BatchContext) -> None:
        """Write rows that have an origin and an error."""
        if self.path is not None:
            write_files(_dated(bad), self.path, context, partition_by=("date",))
        elif self.topic is not None:
            options = {
                "server": reveal(self.server or SERVER_OF_ENVIRONMENT),
                "stream": self.stream or "",
                "topic": self.topic,
                "createTopic": "1",
            }
            send_messages(_letters(bad), options, context)


def strict(rows: DataFrame, advice: str) -> DataFrame:
    """Fail at the first row with an error; Spark evaluates this where the row is used."""
    from pyspark.sql import functions as F

    error = F.concat(_place_text(rows), F.lit(": "), F.col(ERROR), F.lit(f"; {advice}"))
    is_good = F.when(F.col(ERROR).isNull(), F.lit(True)).otherwise(
        F.raise_error(error).cast("boolean")
    )
    return rows.where(is_good)


def _fields(rows: DataFrame) -> list[str]:
    kind: StructType = rows.schema[ORIGIN].dataType  # type: ignore[assignment]  # it is a struct
    return kind.fieldNames()


def _place_text(rows: DataFrame) -> Column:
    """Write the place of a row, such as ``topic orders partition 0 offset 7``."""
    from pyspark.sql import functions as F

    names = [name for name in _fields(rows) if name not in (*NO_PLACES, "stream", "block")]
    parts = [
        F.concat(F.lit(f"{name} "), F.col(f"{ORIGIN}.{name}").cast("string")) for name in names
    ]
    return F.concat_ws(" ", *parts)


def _letters(bad: DataFrame) -> DataFrame:
    """Make messages: the payload that was read, the reason and the place in headers."""
    from pyspark.sql import functions as F

    fields = _fields(bad)
    headers = [F.lit("error"), truncate_header(F.col(ERROR))]
    for name in fields:
        if name not in NO_PLACES:
            text = F.col(f"{ORIGIN}.{name}").cast("string")
            headers += [F.lit(f"source_{name}"), truncate_header(text)]
    payload = F.coalesce(F.col(f"{ORIGIN}.payload"), F.lit(b""))
    columns = [payload.alias("payload"), F.create_map(*headers).alias("headers")]
    if "origin_timestamp" in fields:
        columns.append(F.col(f"{ORIGIN}.origin_timestamp").alias("origin_timestamp"))
    return bad.select(*columns)


def _dated(bad: DataFrame) -> DataFrame:
    """Make rows of files: the origin, the reason, and the date of the message or of this day."""
    from pyspark.sql import functions as F

    time = f"{ORIGIN}.timestamp" if "timestamp" in _fields(bad) else None
    day = F.current_date() if time is None else F.to_date(time)
    return bad.select(f"{ORIGIN}.*", F.col(ERROR).alias("error"), day.alias("date"))


def truncate_header(text: Column) -> Column:
    """Truncate a text that is too long for a header."""
    from pyspark.sql import functions as F

    room = HEADER_BYTES_MAX - len(TRUNCATION_MARK)
    longest, safest = (F.substring(text, 1, n) for n in (room, room // CHARACTER_BYTES_MAX))
    shortened = F.when(F.octet_length(longest) <= room, longest).otherwise(safest)
    whole = F.octet_length(text) <= HEADER_BYTES_MAX
    return F.when(whole, text).otherwise(F.concat(shortened, F.lit(TRUNCATION_MARK)))

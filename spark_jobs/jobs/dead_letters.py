"""Dead letters: messages that a job cannot process go to another topic, or to Parquet files.

A second query reads the same topic and keeps only these. Each query has its own offsets, so neither
loses or repeats anything when the job is killed between two writes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from spark_jobs.errors import OptionError
from spark_jobs.options import read_topics

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


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

    server: str = field(repr=False)
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

"""The topic that a job reads: command line options, offsets, first rows, batch and stream."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from spark_jobs.errors import OptionError
from spark_jobs.jobs.command import SERVER_VARIABLE, add_topic_options, count
from spark_jobs.offsets import TopicPartition, write_offsets
from spark_jobs.options import QueryKind, read_options
from spark_jobs.topics import end_offsets, resolve

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import DataFrame, SparkSession


class PartitionSpan(NamedTuple):
    """The offsets that a run would read of one partition."""

    place: TopicPartition
    start: int
    end: int


def add_source_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of jobs that read a topic."""
    add_topic_options(parser, topic="a topic, or several separated by commas")
    group = parser.add_argument_group("reading")
    group.add_argument(
        "--starting-offsets",
        metavar="OFFSETS",
        help="where a first run begins: earliest (default), latest, or JSON for each partition",
    )
    group.add_argument("--starting-timestamp", metavar="TIME", help="instead: 2026-01-31T12:00:00Z")
    group.add_argument(
        "--max-offsets", type=count, metavar="N", help="messages of one micro-batch at most"
    )
    group.add_argument(
        "--consumer",
        metavar="NAME",
        help="store the offsets of the job on the server under this consumer name",
    )
    group.add_argument(
        "--skip-lost",
        action="store_true",
        help="continue when messages were deleted before they were read, instead of failing",
    )


def server_of(given: argparse.Namespace) -> str:
    """Return the connection string.

    Raises:
        OptionError: there is none.
    """
    if not given.server:
        raise OptionError(
            "no server is named; give --server iggy://user:password@host:8090, "
            f"or set {SERVER_VARIABLE}"
        )
    server: str = given.server
    return server


@dataclass(frozen=True)
class TopicSource:
    """A topic to be read.

    Attributes:
        options: those of ``format("iggy")`` that batches and streams share.
        stream_options: those that only streams have.
        columns: the schema, as DDL.
    """

    options: Mapping[str, str] = field(repr=False)
    stream_options: Mapping[str, str]
    columns: str

    @classmethod
    def of(cls, given: argparse.Namespace, columns: str) -> TopicSource:
        """Make it of the command line.

        Raises:
            OptionError: an option is wrong.
        """
        starting = given.starting_offsets
        if given.starting_timestamp is None and starting is None:
            starting = "earliest"
        shared = {
            "server": server_of(given),
            "stream": given.stream,
            "topic": given.topic,
            "startingOffsets": starting,
            "startingTimestamp": given.starting_timestamp,
            "failOnDataLoss": "false" if given.skip_lost else "true",
        }
        growing = {"maxOffsetsPerTrigger": given.max_offsets, "consumer": given.consumer}
        return cls.made(shared, growing, columns)

    @classmethod
    def made(
        cls, shared: Mapping[str, object], growing: Mapping[str, object], columns: str
    ) -> TopicSource:
        """Make it of options of ``format("iggy")``; those that are None are not given.

        Raises:
            OptionError: an option is wrong.
        """
        source = cls(_given(shared), _given(growing), columns)
        read_options({**source.options, **source.stream_options}, QueryKind.STREAM)
        return source

    def spans(self) -> list[PartitionSpan]:
        """Ask the server for the offsets of a first run.

        Raises:
            StreamNotFoundError: there is no such stream.
            TopicNotFoundError: there is no such topic.
        """
        place = read_options(self.options, QueryKind.STREAM)
        ends = end_offsets(place)
        starts = resolve(place, place.starting, ends, name="--starting-offsets")
        return [PartitionSpan(at, starts[at], ends[at]) for at in sorted(ends)]

    def load(self, spark: SparkSession) -> DataFrame:
        """Return what there is now, from the start on."""
        reader = spark.read.format("iggy").options(**self.options)
        return reader.schema(self.columns).load()

    def sample(self, spark: SparkSession, rows_count: int) -> DataFrame:
        """Return the first rows of each partition."""
        spans = self.spans()
        start = write_offsets({span.place: span.start for span in spans})
        end = write_offsets({one.place: min(one.end, one.start + rows_count) for one in spans})
        options = {
            **{
                name: text for name, text in self.options.items() if not name.startswith("starting")
            },
            "startingOffsets": json.dumps(start),
            "endingOffsets": json.dumps(end),
        }
        return spark.read.format("iggy").options(**options).schema(self.columns).load()

    def load_stream(self, spark: SparkSession) -> DataFrame:
        """Return the topic as a stream."""
        reader = spark.readStream.format("iggy").options(**self.options, **self.stream_options)
        return reader.schema(self.columns).load()


def _given(options: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in options.items() if value is not None}

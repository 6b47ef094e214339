"""What the rows of the Spark benchmark need: sessions, servers, topics, files and cached rows.

They are made when the first row needs them, and stay for the others. Measures nothing.
"""

from __future__ import annotations

import os
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.spark_rounds import MINE
from bench.spark_sources import PARTITIONS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from bench.spark_kafka import Broker, TopicAdmin
    from iggy_sdk.blocking import IggyClient

__all__ = ["KAFKA", "STREAM", "TUNED", "Bench", "Volume", "WrongCount", "with_body"]

STREAM = "bench"
KAFKA, TUNED = "kafka", "kafka, tuned"
SEND_BATCH = 1000
KEYS = 10_000

LARGE_BATCHES = {"kafka.batch.size": "524288", "kafka.linger.ms": "20"}
"""How Kafka's producer is told to send as many rows in one request as ours does."""


class WrongCount(Exception):
    """A query did not do what it was measured at."""


class Volume(NamedTuple):
    """So many rows, with payloads of so many bytes."""

    rows_count: int
    size_bytes: int


class Bench:
    """What all rows need: Spark, the servers, and their topics.

    Args:
        spark: with all sources.
        client: connected to our server.
        url: of our server.
        server: its process.
        folder: for files.
    """

    def __init__(
        self,
        spark: SparkSession,
        client: IggyClient,
        url: str,
        server: int,
        folder: Path,
    ) -> None:
        self.spark = spark
        self.client = client
        self.server = server
        self.broker: Broker | None = None
        self.kafka_admin: TopicAdmin | None = None
        self._url = url
        self._folder = folder
        self._made: set[str] = set()
        self._numbers = count()
        self._cached: dict[Volume, DataFrame] = {}

    # Sources

    def topic(self, volume: Volume) -> str:
        """Return a topic with such messages, in turn in both partitions; Kafka has a copy."""
        topic = f"t{volume.rows_count}-{volume.size_bytes}"
        if topic in self._made:
            return topic
        self._made.add(topic)
        self.client.create_topic(STREAM, topic, PARTITIONS)
        payloads = [os.urandom(volume.size_bytes) for _ in range(SEND_BATCH)]
        for number in range(volume.rows_count // SEND_BATCH):
            self.client.send_messages(STREAM, topic, payloads, partition_id=number % PARTITIONS)
        if self.kafka_admin is not None:
            self.kafka_admin.create(topic, PARTITIONS)
            rows = self.load(MINE, topic).selectExpr("payload AS value", "partition")
            rows.write.format("kafka").options(**self.options(TUNED, topic)).save()
            self.check(KAFKA, topic, volume.rows_count)
        return topic

    def options(self, label: str, topic: str) -> dict[str, str]:
        """Return what a source or a sink is told."""
        if label == MINE:
            return {"server": self._url, "stream": STREAM, "topic": topic}
        assert self.broker is not None
        return {
            "kafka.bootstrap.servers": self.broker.address,
            "topic": topic,
            **(LARGE_BATCHES if label == TUNED else {}),
        }

    def load(self, label: str, topic: str, *, streaming: bool = False, **options: Any) -> DataFrame:
        """Load a topic, as a batch or as a stream, from its beginning."""
        reader: Any = self.spark.readStream if streaming else self.spark.read
        given = {**self.options(label, topic), "startingOffsets": "earliest", **options}
        if label != MINE:
            given["subscribe"] = given.pop("topic")
        loaded: DataFrame = reader.format(self.format_of(label)).options(**given).load()
        return loaded

    def format_of(self, label: str) -> str:
        """Return the name of the format."""
        return "iggy" if label == MINE else "kafka"

    def prebuilt(self, volume: Volume) -> DataFrame:
        """Load rows from the source that makes its Arrow batches once."""
        options = {"rows": str(volume.rows_count), "size": str(volume.size_bytes)}
        return self.spark.read.format("prebuilt").options(**options).load()

    def parquet(self, volume: Volume) -> DataFrame:
        """Load the same rows from local files."""
        topic = self.topic(volume)
        path = self.path(topic)
        if path not in self._made:
            self._made.add(path)
            self.load(MINE, topic).write.parquet(path)
        return self.spark.read.parquet(path)

    def cached(self, volume: Volume) -> DataFrame:
        """Return rows to write, all different, that Spark holds in memory."""
        if volume not in self._cached:
            numbers = self.spark.range(0, volume.rows_count, 1, PARTITIONS)
            rows = with_body(numbers, "id", volume.size_bytes).cache()
            rows.count()
            self._cached[volume] = rows
        return self._cached[volume]

    # Targets

    def new_name(self) -> str:
        """Return the name of a topic that was not used before."""
        return f"out{next(self._numbers)}"

    def create(self, label: str, topic: str) -> None:
        """Create an empty topic on one of the servers."""
        if label == MINE:
            self.client.create_topic(STREAM, topic, PARTITIONS)
        else:
            assert self.kafka_admin is not None
            self.kafka_admin.create(topic, PARTITIONS)

    def check(self, label: str, topic: str, rows_count: int) -> None:
        """Check that all rows have arrived.

        Raises:
            WrongCount: there are more, or fewer.
        """
        if label == MINE:
            details = self.client.get_topic(STREAM, topic)
            found = details.messages_count if details is not None else 0
        else:
            assert self.kafka_admin is not None
            found = self.kafka_admin.messages_count(topic)
        if found != rows_count:
            raise WrongCount(f"{label}: {found} messages in {topic}, and not {rows_count}")

    def delete(self, label: str, topic: str) -> None:
        """Delete a topic."""
        if label == MINE:
            self.client.delete_topic(STREAM, topic)
        else:
            assert self.kafka_admin is not None
            self.kafka_admin.delete(topic)

    def path(self, name: str) -> str:
        """Return a path for files of this run."""
        return str(self._folder / name)

    def collect_garbage(self) -> None:
        """Have Java free what nobody uses."""
        jvm: Any = self.spark._jvm
        jvm.System.gc()

    def process_of(self, label: str) -> int | None:
        """Return the process of the server that one reads from or writes to."""
        if label == MINE:
            return self.server
        return self.broker.process_id if label in (KAFKA, TUNED) and self.broker else None


def with_body(numbers: DataFrame, name: str, size_bytes: int) -> DataFrame:
    """Make a payload and a key of each number."""
    return numbers.selectExpr(
        f"CAST(concat(lpad({name}, 16, '0'), repeat('x', {size_bytes - 16})) AS BINARY) AS body",
        f"CAST({name} % {KEYS} AS STRING) AS key",
    )

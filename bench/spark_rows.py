"""What Spark is measured at: each row, with the queries of ours and of those beside it.

Topics, files and cached rows are made when the first row needs them, and stay for the others.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.machine import touch_memory
from bench.spark_rounds import MINE, Bar, Contender, Row
from bench.spark_sources import PARTITIONS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from bench.spark_kafka import Broker, TopicAdmin
    from iggy_sdk.blocking import IggyClient

__all__ = ["KAFKA", "STREAM", "Bench", "PlannedRow", "Sizes", "WrongCount", "planned_rows"]

STREAM = "bench"
KAFKA, TUNED = "kafka", "kafka, tuned"
FIRST = "first"
FIRST_ROWS = 2_000
FIRST_ROW_SECONDS_MAX = 60.0
FIRST_ROW_ROUNDS = 3
"""So many times the rounds of other rows: they are short, and they scatter."""

SEND_BATCH = 1000
KEYS = 10_000
MICRO_BATCHES = 10

LARGE_BATCHES = {"kafka.batch.size": "524288", "kafka.linger.ms": "20"}
"""How Kafka's producer is told to send as many rows in one request as ours does."""


class WrongCount(Exception):
    """A query did not do what it was measured at."""


class Sizes:
    """How much is read and written, by the size of a payload in bytes."""

    def __init__(self, *, quick: bool) -> None:
        scale = 10 if quick else 1
        self.reads = {1000: 1_000_000 // scale, 100: 3_000_000 // scale}
        self.writes = {1000: 400_000 // scale, 100: 2_000_000 // scale}


class Bench:
    """What all rows need: Spark, the servers, and their topics.

    Args:
        spark: with all sources.
        client: connected to our server.
        url: of our server.
        server: its process.
        folder: for files.
        sizes: how much is read and written.
    """

    def __init__(
        self,
        spark: SparkSession,
        client: IggyClient,
        url: str,
        server: int,
        folder: Path,
        sizes: Sizes,
    ) -> None:
        self.spark = spark
        self.client = client
        self.server = server
        self.sizes = sizes
        self.broker: Broker | None = None
        self.kafka_admin: TopicAdmin | None = None
        self._url = url
        self._folder = folder
        self._made: set[str] = set()
        self._numbers = count()
        self._cached: dict[int, DataFrame] = {}

    # Sources

    def topic_of(self, size_bytes: int) -> str:
        """Return a topic with messages of this size."""
        name = f"t{size_bytes}"
        self._fill(name, self.sizes.reads[size_bytes], size_bytes)
        return name

    def first_topic(self) -> str:
        """Return a topic with few messages."""
        self._fill(FIRST, FIRST_ROWS, 100)
        return FIRST

    def _fill(self, topic: str, rows_count: int, size_bytes: int) -> None:
        """Send messages to both partitions in turn, and copy them to Kafka."""
        if topic in self._made:
            return
        self._made.add(topic)
        self.client.create_topic(STREAM, topic, PARTITIONS)
        payloads = [os.urandom(size_bytes) for _ in range(SEND_BATCH)]
        for number in range(rows_count // SEND_BATCH):
            self.client.send_messages(STREAM, topic, payloads, partition_id=number % PARTITIONS)
        if self.kafka_admin is not None:
            self.kafka_admin.create(topic, PARTITIONS)
            rows = self.load(MINE, topic).selectExpr("payload AS value", "partition")
            rows.write.format("kafka").options(**self.options(TUNED, topic)).save()
            self.check(KAFKA, topic, rows_count)

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

    def prebuilt(self, size_bytes: int) -> DataFrame:
        """Load rows from the source that makes its Arrow batches once."""
        options = {"rows": str(self.sizes.reads[size_bytes]), "size": str(size_bytes)}
        return self.spark.read.format("prebuilt").options(**options).load()

    def parquet(self, size_bytes: int) -> DataFrame:
        """Load the same rows from local files."""
        path = str(self._folder / f"rows{size_bytes}")
        if path not in self._made:
            self._made.add(path)
            self.load(MINE, self.topic_of(size_bytes)).write.parquet(path)
        return self.spark.read.parquet(path)

    def cached(self, size_bytes: int) -> DataFrame:
        """Return rows to write, all different, that Spark holds in memory."""
        if size_bytes not in self._cached:
            numbers = self.spark.range(0, self.sizes.writes[size_bytes], 1, PARTITIONS)
            rows = with_body(numbers, "id", size_bytes).cache()
            rows.count()
            self._cached[size_bytes] = rows
        return self._cached[size_bytes]

    # Targets

    def target(self) -> str:
        """Return a path, or the name of a topic, that was not used before."""
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
        """Have Java clear up, so that nobody pays for the turn of another."""
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


# Rows


class PlannedRow(NamedTuple):
    """A row that may be measured.

    Attributes:
        name: as it stands in the table.
        build: makes the row with those contenders that are wanted.
        rounds_factor: how many times as often as others it is measured.
    """

    name: str
    build: Callable[[Bench, Sequence[str]], Row]
    rounds_factor: int = 1


def planned_rows() -> list[PlannedRow]:
    """List all rows, in the order of the table."""
    rows = [
        PlannedRow(f"read {size} B to {target}", partial(_read_row, size_bytes=size, target=target))
        for size in (1000, 100)
        for target in ("noop", "parquet")
    ]
    rows += [
        PlannedRow(
            f"stream {size} B to {target}", partial(_stream_row, size_bytes=size, how=target)
        )
        for size, target in (
            (1000, "noop"),
            (1000, "noop in 10 micro-batches"),
            (1000, "foreachBatch count"),
            (100, "noop"),
        )
    ]
    rows.append(PlannedRow("first row of a stream", _first_row, FIRST_ROW_ROUNDS))
    rows += [
        PlannedRow(f"sink {size} B{how}", partial(_sink_row, size_bytes=size, how=how))
        for size, how in ((1000, ""), (100, ""), (100, " with keys"), (1000, " as a stream"))
    ]
    return rows


def _contender(bench: Bench, label: str, run: Callable[[], None], **steps: Any) -> Contender:
    before = steps.pop("prepare", None)

    def prepare() -> None:
        if before is not None:
            before()
        bench.collect_garbage()

    return Contender(label=label, run=run, prepare=prepare, server=bench.process_of(label), **steps)


def _read_row(bench: Bench, wanted: Sequence[str], *, size_bytes: int, target: str) -> Row:
    topic = bench.topic_of(size_bytes)
    sources: dict[str, Callable[[], DataFrame]] = {
        MINE: partial(bench.load, MINE, topic),
        KAFKA: partial(bench.load, KAFKA, topic),
        "arrow": partial(bench.prebuilt, size_bytes),
        "parquet": partial(bench.parquet, size_bytes),
    }
    if "parquet" in wanted:
        bench.parquet(size_bytes)
    path = bench.path("out")

    def run(load: Callable[[], DataFrame]) -> None:
        writer = load().write.format(target).mode("overwrite")
        writer.save(*([path] if target == "parquet" else []))

    return Row(
        name=f"read {size_bytes} B to {target}",
        contenders=[
            _contender(bench, label, partial(run, load))
            for label, load in sources.items()
            if label in wanted
        ],
        rows_count=bench.sizes.reads[size_bytes],
        size_bytes=size_bytes,
        bars=[Bar("arrow", 0.85)] if target == "noop" else [],
    )


def _stream_row(bench: Bench, wanted: Sequence[str], *, size_bytes: int, how: str) -> Row:
    topic, rows_count = bench.topic_of(size_bytes), bench.sizes.reads[size_bytes]
    limited = {"maxOffsetsPerTrigger": rows_count // MICRO_BATCHES} if "micro" in how else {}

    def run(label: str) -> None:
        source = bench.load(label, topic, streaming=True, **limited)
        counts: list[int] = []
        if how == "foreachBatch count":
            target = source.writeStream.foreachBatch(lambda rows, _: counts.append(rows.count()))
        else:
            target = source.writeStream.format("noop")
        query = target.trigger(availableNow=True).start()
        query.awaitTermination()
        read = sum(counts) or sum(progress["numInputRows"] for progress in query.recentProgress)
        if read != rows_count:
            raise WrongCount(f"{label}: {read} rows in a stream, and not {rows_count}")

    return Row(
        name=f"stream {size_bytes} B to {how}",
        contenders=[
            _contender(bench, label, partial(run, label))
            for label in (MINE, KAFKA)
            if label in wanted
        ],
        rows_count=rows_count,
        size_bytes=size_bytes,
        bars=[Bar(KAFKA, 1.3)],
    )


def _first_row(bench: Bench, wanted: Sequence[str]) -> Row:
    topic = bench.first_topic()
    sources: dict[str, Callable[[], DataFrame]] = {
        MINE: partial(bench.load, MINE, topic, streaming=True),
        KAFKA: partial(bench.load, KAFKA, topic, streaming=True),
        "idle": lambda: bench.spark.readStream.format("idle").load(),
    }

    def run(load: Callable[[], DataFrame]) -> None:
        is_seen = threading.Event()

        def see(rows: DataFrame, _: int) -> None:
            # All of them, because Spark ends Pythons that have not been read to the end.
            if rows.count():
                is_seen.set()

        load().writeStream.foreachBatch(see).start()
        if not is_seen.wait(FIRST_ROW_SECONDS_MAX):
            raise WrongCount("a stream gave no row")

    def stop() -> None:
        for query in bench.spark.streams.active:
            query.stop()

    return Row(
        name="first row of a stream",
        contenders=[
            _contender(bench, label, partial(run, load), clean_up=stop)
            for label, load in sources.items()
            if label in wanted
        ],
        bars=[Bar("idle", seconds_more=0.3)],
    )


class _SinkTurn:
    """Writes the same rows to a new topic in each turn."""

    def __init__(self, bench: Bench, label: str, size_bytes: int, how: str) -> None:
        self._bench = bench
        self._label = label
        self._size_bytes = size_bytes
        self._rows_count = bench.sizes.writes[size_bytes]
        self._is_stream = "stream" in how
        payload = "body AS payload" if label == MINE else "body AS value"
        self._columns = [payload, "key"] if "keys" in how else [payload]
        self._topic = ""

    def prepare(self) -> None:
        self._topic = self._bench.target()
        self._bench.create(self._label, self._topic)
        # Otherwise the machine would look for pages meanwhile, and longer for the first.
        touch_memory(self._rows_count * self._size_bytes)

    def run(self) -> None:
        bench, label = self._bench, self._label
        options = bench.options(label, self._topic)
        if self._is_stream:
            rows = self._generated().selectExpr(*self._columns)
            options["checkpointLocation"] = bench.path(f"{self._topic}-checkpoint")
            query = rows.writeStream.format(bench.format_of(label)).options(**options)
            query.trigger(availableNow=True).start().awaitTermination()
        else:
            rows = bench.cached(self._size_bytes).selectExpr(*self._columns)
            rows.write.format(bench.format_of(label)).mode("append").options(**options).save()

    def _generated(self) -> DataFrame:
        """Make the rows on the way: what Spark holds in memory is no stream."""
        source = self._bench.spark.readStream.format("rate-micro-batch")
        given = source.options(rowsPerBatch=self._rows_count, numPartitions=PARTITIONS)
        return with_body(given.load(), "value", self._size_bytes)

    def clean_up(self) -> None:
        self._bench.check(self._label, self._topic, self._rows_count)
        self._bench.delete(self._label, self._topic)
        shutil.rmtree(self._bench.path(f"{self._topic}-checkpoint"), ignore_errors=True)


def _sink_row(bench: Bench, wanted: Sequence[str], *, size_bytes: int, how: str) -> Row:
    bench.cached(size_bytes)
    turns = {
        label: _SinkTurn(bench, label, size_bytes, how)
        for label in (MINE, KAFKA, TUNED)
        if label in wanted
    }
    return Row(
        name=f"sink {size_bytes} B{how}",
        contenders=[
            _contender(bench, label, turn.run, prepare=turn.prepare, clean_up=turn.clean_up)
            for label, turn in turns.items()
        ],
        rows_count=bench.sizes.writes[size_bytes],
        size_bytes=size_bytes,
        bars=[Bar(KAFKA, 1.2)],
    )

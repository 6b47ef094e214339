"""How fast Spark reads topics, as ratios to what Spark can do with the same bytes, in one run.

    python bench/bench_spark.py [--quick] [--only TEXT] [--json FILE] [--directory DIRECTORY]

A topic of two partitions is read by Spark on two cores, into nothing and into Parquet files. Beside
it Spark reads the same rows from a source whose Arrow batches were made before (``arrow``), which
is the most that any source in Python can give, and from local Parquet files (``parquet``). They
take turns, after one round that does not count, and medians are shown.

Read it like this. ``of arrow`` and ``of parquet`` are ratios of ours to theirs; ``bar`` is what the
first should be. The server takes its share of the same cores. The last row is the time from the
start of a streaming query to its first row, in seconds, and beside it that of a source in Python
which does nothing at all: Spark starts a fresh Python for each query.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = next(path for path in Path(__file__).resolve().parents if (path / "Makefile").exists())
sys.path[:0] = [str(ROOT), str(ROOT / "protocol")]

from pyspark.sql import SparkSession  # noqa: E402  the path above comes first
from pyspark.sql.datasource import (  # noqa: E402  the path above comes first
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from iggy_sdk.blocking import IggyClient  # noqa: E402  the path above comes first
from iggy_sdk.testing import RunningServer  # noqa: E402  the path above comes first
from spark_jobs import prepare_java, register  # noqa: E402  the path above comes first
from spark_jobs.schema import read_schema  # noqa: E402  the path above comes first

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

STREAM = "bench"
PARTITIONS = 2
ARROW_ROWS = 4000
"""Rows of one batch that was made before; about those of a poll of 1000-byte messages."""

ARROW_BAR = 0.5
FIRST_ROW_SECONDS_BAR = 0.5
SEND_BATCH = 1000


class Sizes:
    """How much is read, and how often."""

    def __init__(self, *, quick: bool) -> None:
        self.rounds = 1 if quick else 3
        scale = 10 if quick else 1
        self.topics = {1000: 1_000_000 // scale, 100: 3_000_000 // scale}


class PrebuiltSource(DataSource):
    """Rows like those of a topic, from Arrow batches that each task makes once and repeats."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "prebuilt"

    def schema(self) -> Any:
        """Return the columns of a topic."""
        return read_schema(include_headers=False)

    def reader(self, schema: Any) -> PrebuiltReader:
        """Make the reader."""
        return PrebuiltReader(schema, int(self.options["rows"]), int(self.options["size"]))


class PrebuiltReader(DataSourceReader):
    """Repeats one batch."""

    def __init__(self, schema: Any, rows_count: int, size_bytes: int) -> None:
        self._schema = schema
        self._rows_count = rows_count
        self._size_bytes = size_bytes

    def partitions(self) -> list[InputPartition]:
        """Return one task for each partition of the topic."""
        return [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the batch until there are rows enough."""
        import pyarrow as pa  # type: ignore[import-untyped]  # it comes without types
        from pyspark.sql.pandas.types import to_arrow_schema

        values = {
            "stream": STREAM,
            "topic": "t",
            "partition": partition.value,
            "offset": 7,
            "timestamp": 1_700_000_000_000_000,
            "origin_timestamp": 1_700_000_000_000_000,
            "id": bytes(16),
            "payload": os.urandom(self._size_bytes),
        }
        kinds: Any = to_arrow_schema(self._schema, timezone="UTC")
        arrays = [pa.repeat(pa.scalar(values[kind.name], kind.type), ARROW_ROWS) for kind in kinds]
        batch = pa.RecordBatch.from_arrays(arrays, schema=kinds)
        left = self._rows_count // PARTITIONS
        while left > 0:
            yield batch.slice(0, min(left, ARROW_ROWS))
            left -= ARROW_ROWS


class IdleSource(DataSource):
    """One row for each partition, from nowhere: what every streaming source in Python costs."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "idle"

    def schema(self) -> str:
        """Return one column."""
        return "number INT"

    def streamReader(self, schema: Any) -> IdleReader:
        """Make the reader."""
        return IdleReader()


class IdleReader(DataSourceStreamReader):
    """Has one batch of rows at once, and never another."""

    def initialOffset(self) -> dict[str, int]:
        """Return where it begins."""
        return {"at": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        """Return where it ends."""
        return {"at": 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Return as many tasks as a topic has partitions."""
        return [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield one row."""
        yield (partition.value,)

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing."""


def start_spark(folder: Path) -> SparkSession:
    """Start Spark on two cores with nothing that would disturb."""
    prepare_java()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "protocol")])
    builder = SparkSession.builder.master("local[2]").appName("bench")
    for name, value in {
        "spark.driver.memory": "2g",
        "spark.log.level": "OFF",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.hadoop.parquet.enable.dictionary": "false",
        "spark.sql.parquet.compression.codec": "zstd",
    }.items():
        builder = builder.config(name, value)
    spark = register(builder.getOrCreate())
    spark.dataSource.register(PrebuiltSource)
    spark.dataSource.register(IdleSource)
    return spark


def fill(client: IggyClient, topic: str, rows_count: int, size_bytes: int) -> None:
    """Send messages of one size to both partitions in turn."""
    client.create_topic(STREAM, topic, PARTITIONS)
    payloads = [os.urandom(size_bytes) for _ in range(SEND_BATCH)]
    for number in range(rows_count // SEND_BATCH):
        client.send_messages(STREAM, topic, payloads, partition_id=number % PARTITIONS)


class Bench:
    """One run of everything that was asked for."""

    def __init__(self, spark: SparkSession, server: RunningServer, folder: Path) -> None:
        self._spark = spark
        self._url = server.direct_url
        self._folder = folder
        self.records: list[dict[str, Any]] = []

    def topic(self, name: str) -> DataFrame:
        """Load a topic."""
        options = {"server": self._url, "stream": STREAM, "topic": name}
        return self._spark.read.format("iggy").options(**options).load()

    def compare(self, rows_count: int, size_bytes: int, *, rounds: int, only: str) -> None:
        """Read one topic into nothing and into files, and the baselines likewise."""
        name, rival = f"t{size_bytes}", str(self._folder / f"rival{size_bytes}")
        given = {"rows": str(rows_count), "size": str(size_bytes)}
        sources: dict[str, Callable[[], DataFrame]] = {
            "topic": lambda: self.topic(name),
            "arrow": lambda: self._spark.read.format("prebuilt").options(**given).load(),
            "parquet": lambda: self._spark.read.parquet(rival),
        }
        sources["topic"]().write.mode("overwrite").parquet(rival)
        for target in ("noop", "parquet"):
            work = f"{rows_count} x {size_bytes} B to {target}"
            if only in work:
                seconds = self._rounds(sources, target, rounds)
                self._show(work, rows_count, size_bytes, seconds, has_bar=target == "noop")
        shutil.rmtree(rival)

    def _rounds(
        self, sources: dict[str, Callable[[], DataFrame]], target: str, rounds: int
    ) -> dict[str, float]:
        taken: dict[str, list[float]] = {name: [] for name in sources}
        for turn in range(rounds + 1):
            for name, load in sources.items():
                start = time.perf_counter()
                self._write(load(), target)
                if turn:
                    taken[name].append(time.perf_counter() - start)
        return {name: statistics.median(times) for name, times in taken.items()}

    def _write(self, df: DataFrame, target: str) -> None:
        writer = df.write.format(target).mode("overwrite")
        writer.save(*([str(self._folder / "out")] if target == "parquet" else []))

    def _show(
        self,
        work: str,
        rows_count: int,
        size_bytes: int,
        seconds: dict[str, float],
        *,
        has_bar: bool,
    ) -> None:
        rate = rows_count / seconds["topic"]
        of_arrow = seconds["arrow"] / seconds["topic"]
        of_parquet = seconds["parquet"] / seconds["topic"]
        verdict = "" if not has_bar else "good" if of_arrow >= ARROW_BAR else "SHORT"
        bar = f">{ARROW_BAR:.2f}" if has_bar else ""
        print(
            f"{work:<34}{rate / 1000:>10.0f} k{rate * size_bytes / 1e6:>9.0f} MB/s"
            f"{of_arrow:>10.2f}{bar:>7}{of_parquet:>12.2f}  {verdict}",
            flush=True,
        )
        self.records.append(
            {"work": work, "rows_per_s": rate, "of_arrow": of_arrow, "of_parquet": of_parquet}
        )

    def first_row(self, rounds: int) -> None:
        """Measure the time of a streaming query to its first row, beside one that does nothing."""
        options = {"server": self._url, "stream": STREAM, "topic": "first"}
        formats = {"iggy": {**options, "startingOffsets": "earliest"}, "idle": {}}
        taken: dict[str, list[float]] = {name: [] for name in formats}
        for _ in range(rounds + 2):
            for name, given in formats.items():
                start = time.perf_counter()
                source = self._spark.readStream.format(name).options(**given).load()
                query = source.writeStream.format("noop").start()
                query.processAllAvailable()
                taken[name].append(time.perf_counter() - start)
                query.stop()
        mine, idle = (statistics.median(taken[name][2:]) for name in ("iggy", "idle"))
        verdict = "good" if mine <= FIRST_ROW_SECONDS_BAR else "SHORT"
        print(
            f"{'start of a query to its first row':<34}{mine:>10.2f} s{'':<24}"
            f"{f'<{FIRST_ROW_SECONDS_BAR:.2f}':>7}{'':>12}  {verdict}, idle source {idle:.2f} s"
        )
        self.records.append({"work": "first row", "seconds": mine, "idle_seconds": idle})


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, one round")
    parser.add_argument("--only", default="", help="rows whose names contain this text")
    parser.add_argument("--json", type=Path, help="write the figures to a file as well")
    parser.add_argument("--directory", type=Path, help="where data go while it runs")
    given = parser.parse_args()
    sizes = Sizes(quick=given.quick)
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=given.directory) as folder,
        RunningServer(Path(folder) / "server") as server,
        IggyClient(server.direct_url) as client,
    ):
        client.create_stream(STREAM)
        fill(client, "first", 2 * SEND_BATCH, 100)
        spark = start_spark(Path(folder))
        bench = Bench(spark, server, Path(folder))
        print(
            f"{'work':<34}{'rows/s':>12}{'payload':>14}{'of arrow':>10}{'bar':>7}{'of parquet':>12}"
        )
        for size_bytes, rows_count in sizes.topics.items():
            if given.only in f"{rows_count} x {size_bytes} B to noop and to parquet":
                fill(client, f"t{size_bytes}", rows_count, size_bytes)
                bench.compare(rows_count, size_bytes, rounds=sizes.rounds, only=given.only)
        bench.first_row(sizes.rounds)
        spark.stop()
        if given.json is not None:
            given.json.write_text(json.dumps(bench.records, indent=1))


if __name__ == "__main__":
    main()

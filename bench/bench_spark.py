"""How fast Spark reads and writes topics, beside Kafka and beside what it can do at all.

    python bench/bench_spark.py [--quick] [--only TEXT] [--beside NAME] [--rounds N] [--list]
                                [--json FILE] [--directory DIRECTORY]

Spark runs on two cores, and the servers share them. A topic of two partitions is read into nothing
(``noop``) and into Parquet files, in batches and as a stream with ``availableNow``; rows that Spark
holds in memory are written to a new topic. Beside ours stand

- ``kafka``: Spark's own source and sink with their defaults, and a broker of one process, both
  from Maven; ``kafka, tuned`` is the sink with a producer that sends large batches. Where Maven
  cannot be reached they are left out, and a line says so.
- ``arrow``: a source in Python whose Arrow batches were made before, the most that any can give.
- ``parquet``: Spark reads the same rows from local files.
- ``idle``: a streaming source in Python that does nothing, because Spark starts a fresh Python for
  each query.

They take turns, and each round begins with another of them. A line has

- the median rate, the lowest and the highest, or the seconds of a query;
- the CPU seconds of a million rows, or of one query where seconds are shown: of the driver with all
  its Pythons, and of the server;
- how many times as fast ours was in the same round, median and range, and what that should be.

Compare ratios: rates differ from machine to machine and from minute to minute. CPU seconds are
steadier, and tell a source that waits from one that works.

Rows with ``few rows`` have next to nothing to do: they show what each query costs. ``first row`` is
the time from the start of a streaming query in a warm session to its first row in ``foreachBatch``.
Both servers acknowledge when messages are in the page cache, and keep their defaults. Sinks send
rows that all differ, without compression.

A single row, such as ``--only 'sink 1000 B' --beside kafka``, takes about a minute; ``--list`` has
the names.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

ROOT = next(path for path in Path(__file__).resolve().parents if (path / "Makefile").exists())
sys.path[:0] = [str(ROOT), str(ROOT / "protocol")]

from pyspark import __version__ as spark_version  # noqa: E402  the path above comes first
from pyspark.sql import SparkSession  # noqa: E402  the path above comes first

from bench.machine import descendants  # noqa: E402  the path above comes first
from bench.spark_kafka import (  # noqa: E402  the path above comes first
    BROKER_VERSION,
    Broker,
    KafkaJars,
    KafkaMissing,
    TopicAdmin,
    find_jars,
)
from bench.spark_rounds import (  # noqa: E402  the path above comes first
    MINE,
    lines,
    measure,
    record,
)
from bench.spark_rows import PlannedRow, planned_rows  # noqa: E402  the path above comes first
from bench.spark_sources import (  # noqa: E402  the path above comes first
    IdleSource,
    PrebuiltSource,
)
from bench.spark_topics import (  # noqa: E402  the path above comes first
    KAFKA,
    STREAM,
    TUNED,
    Bench,
)
from iggy_sdk.blocking import IggyClient  # noqa: E402  the path above comes first
from iggy_sdk.testing import RunningServer  # noqa: E402  the path above comes first
from spark_jobs import prepare_java, register  # noqa: E402  the path above comes first

BESIDE = (KAFKA, TUNED, "arrow", "parquet", "idle")
ROUNDS, WARM_UPS = 5, 2


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, one round")
    parser.add_argument(
        "--only", action="append", metavar="TEXT", help="rows whose names contain this; repeatable"
    )
    parser.add_argument(
        "--beside", action="append", choices=BESIDE, help="ours and this alone; repeatable"
    )
    parser.add_argument("--rounds", type=int, help=f"rounds that count, {ROUNDS} by default")
    parser.add_argument("--list", action="store_true", help="print the names of the rows, and end")
    parser.add_argument("--json", type=Path, help="write the figures to a file as well")
    parser.add_argument("--directory", type=Path, help="where data go while it runs")
    given = parser.parse_args()
    planned = [
        row
        for row in planned_rows(quick=given.quick)
        if any(text in row.name for text in given.only or [""])
    ]
    if given.list:
        print("\n".join(row.name for row in planned))
        return
    rounds = (1, 1) if given.quick else (given.rounds or ROUNDS, WARM_UPS)
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=given.directory) as folder,
        ExitStack() as stack,
    ):
        wanted = [MINE, *(given.beside or BESIDE)]
        bench = _start(stack, Path(folder), wanted)
        records = [_measured(bench, row, wanted, *rounds) for row in planned]
        if given.json is not None:
            given.json.write_text(json.dumps(records, indent=1))


def _measured(
    bench: Bench, planned: PlannedRow, wanted: list[str], rounds: int, warm_ups: int
) -> object:
    row = planned.build(planned.name, bench, wanted)
    measure(row, rounds=rounds * planned.rounds_factor, warm_ups=warm_ups)
    print("\n".join(lines(row)), flush=True)
    return record(row)


def _start(stack: ExitStack, folder: Path, wanted: list[str]) -> Bench:
    """Start the servers and Spark; take Kafka from what is wanted if it cannot be had."""
    jars, broker = _start_kafka(stack, folder, wanted)
    before = set(descendants(os.getpid()))
    server = stack.enter_context(RunningServer(folder / "server"))
    server_process = min(set(descendants(os.getpid())) - before)
    client = stack.enter_context(IggyClient(server.direct_url))
    client.create_stream(STREAM)
    spark = _start_spark(folder, "" if jars is None else jars.connector)
    stack.callback(spark.stop)
    bench = Bench(spark, client, server.direct_url, server_process, folder)
    if broker is not None:
        bench.broker = broker
        bench.kafka_admin = TopicAdmin(spark, broker.address)
        stack.callback(bench.kafka_admin.close)
    kafka = "" if jars is None else f", connector {jars.connector_version}, Kafka {BROKER_VERSION}"
    print(f"Spark {spark_version}{kafka}", flush=True)
    return bench


def _start_kafka(
    stack: ExitStack, folder: Path, wanted: list[str]
) -> tuple[KafkaJars | None, Broker | None]:
    if not any(label.startswith(KAFKA) for label in wanted):
        return None, None
    try:
        jars = find_jars(folder / "maven")
        return jars, stack.enter_context(Broker(jars.broker, folder / "broker"))
    except KafkaMissing as error:
        print(f"Kafka is left out: {error}", flush=True)
        wanted[:] = [label for label in wanted if not label.startswith(KAFKA)]
        return None, None


def _start_spark(folder: Path, class_path: str) -> SparkSession:
    """Start Spark on two cores with nothing that would disturb."""
    prepare_java()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "protocol")])
    builder = SparkSession.builder.master("local[2]").appName("bench")
    for name, value in {
        "spark.driver.memory": "4g",
        "spark.driver.extraClassPath": class_path,
        "spark.log.level": "OFF",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.hadoop.parquet.enable.dictionary": "false",
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
        "spark.sql.parquet.compression.codec": "zstd",
    }.items():
        builder = builder.config(name, value)
    spark = register(builder.getOrCreate())
    spark.dataSource.register(PrebuiltSource)
    spark.dataSource.register(IdleSource)
    return spark


if __name__ == "__main__":
    main()

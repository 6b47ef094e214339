"""``iggy-spark-metrics``: how much arrived in a topic, window by window, as a table and a plot.

Reads the topic once, or as a stream with a new table and plot after each micro-batch.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.errors import OptionError
from spark_jobs.jobs.command import (
    add_run_options,
    add_spark_options,
    count,
    duration,
    make_parser,
    run_command,
)
from spark_jobs.jobs.queries import run_batch, run_queries, start_query
from spark_jobs.jobs.terminal import (
    FIRST_ROWS,
    preview_plan,
    preview_rows,
    print_result,
    print_status,
)
from spark_jobs.jobs.topic_source import TopicSource, add_source_options, server_of
from spark_jobs.jobs.windows import (
    PartitionWindow,
    WindowTable,
    draw_windows,
    format_windows,
    write_csv,
)
from spark_jobs.offsets import TopicPartition

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from pyspark.sql import DataFrame, Row, SparkSession

    from spark_jobs.jobs.terminal import StopSignal


EXAMPLE = """
  iggy-spark-metrics --server iggy://iggy:iggy@127.0.0.1:8090 --stream shop --topic orders \\
      --window 1m --output metrics --lag-of lake
"""
COLUMNS: Final = (
    "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, origin_timestamp TIMESTAMP, "
    "payload BINARY"
)
UNITS_S: Final = {"milliseconds": 0.001, "seconds": 1.0, "minutes": 60.0, "hours": 3600.0}


def parser() -> argparse.ArgumentParser:
    """Make the parser of the command."""
    made = make_parser(
        "iggy-spark-metrics",
        "Count messages, bytes, delay and lag of a topic in windows of time, with a plot.",
        EXAMPLE,
    )
    made.add_argument("--window", type=duration, default="1m", metavar="TIME", help="default: 1m")
    made.add_argument(
        "--windows", type=count, default=240, metavar="N", help="newest windows to keep (240)"
    )
    made.add_argument(
        "--output", type=Path, default=Path("metrics"), help="folder of metrics.csv and metrics.svg"
    )
    made.add_argument("--no-plot", action="store_true", help="leave metrics.svg out")
    made.add_argument(
        "--lag-of",
        metavar="NAME",
        help="show how many messages of each window this consumer has not read; group:NAME for a "
        "consumer group",
    )
    made.add_argument("--follow", action="store_true", help="continue as a stream")
    made.add_argument("--checkpoint", help="folder of Spark's offsets, needed with --follow")
    add_source_options(made)
    add_run_options(made)
    add_spark_options(made)
    return made


def check(given: argparse.Namespace) -> None:
    """Validate the options, and ask the server for the topic."""
    if given.follow and given.checkpoint is None:
        raise OptionError("--follow needs --checkpoint FOLDER, where Spark stores its counts")
    if not given.follow and (given.once or given.consumer is not None):
        raise OptionError("--once and --consumer are for --follow; leave them out, or add that")
    TopicSource.of(given, COLUMNS).spans()


def windows_of(messages: DataFrame, window: str) -> DataFrame:
    """Count the messages of each window and partition."""
    from pyspark.sql import functions as F

    delay_us = F.unix_micros("timestamp") - F.unix_micros("origin_timestamp")
    return messages.groupBy(F.window("timestamp", window), "topic", "partition").agg(
        F.count("*").alias("messages"),
        F.sum(F.octet_length("payload")).alias("bytes"),
        (F.avg(delay_us) / 1000).alias("delay_ms"),
        F.min("offset").alias("first_offset"),
        F.max("offset").alias("last_offset"),
    )


def parts_of(rows: Iterable[Row]) -> list[PartitionWindow]:
    """Take the rows out of Spark."""
    return [
        PartitionWindow(
            int(row["start_ms"]),
            TopicPartition(row["topic"], row["partition"]),
            row["messages"],
            row["bytes"],
            row["delay_ms"],
            row["first_offset"],
            row["last_offset"],
        )
        for row in rows
    ]


def _collect(counted: DataFrame) -> list[PartitionWindow]:
    return parts_of(counted.selectExpr("*", "unix_millis(window.start) AS start_ms").collect())


class _Report:
    """Keeps the table and writes it down."""

    def __init__(self, given: argparse.Namespace) -> None:
        self._given = given
        self._table = WindowTable(windows_max=given.windows)

    def put(self, parts: list[PartitionWindow]) -> str:
        """Add what was counted, write the files, and return the table as text."""
        given = self._given
        self._table.put(parts)
        windows = self._table.windows(stored_offsets(given) if given.lag_of else None)
        given.output.mkdir(parents=True, exist_ok=True)
        write_csv(windows, given.output / "metrics.csv")
        if windows and not given.no_plot:
            number, unit = given.window.split()
            title = f"{given.stream} / {given.topic}, windows of {given.window}"
            draw_windows(
                windows,
                given.output / "metrics.svg",
                title=title,
                window_s=int(number) * UNITS_S[unit],
            )
        return format_windows(windows)


def stored_offsets(given: argparse.Namespace) -> dict[TopicPartition, int | None]:
    """Ask the server how far the consumer of ``--lag-of`` has come."""
    from iggy_sdk import Consumer
    from spark_jobs.connections import connection

    kind, colon, name = given.lag_of.rpartition(":")
    if colon and kind != "group":
        raise OptionError(f"--lag-of is {given.lag_of!r}; give NAME or group:NAME")
    consumer = Consumer.group(name) if colon else Consumer.single(name)
    client = connection(server_of(given))
    stored: dict[TopicPartition, int | None] = {}
    for span in TopicSource.of(given, COLUMNS).spans():
        found = client.get_consumer_offset(
            given.stream, span.place.topic, consumer=consumer, partition_id=span.place.partition
        )
        stored[span.place] = None if found is None else found.stored_offset
    return stored


def work(given: argparse.Namespace, spark: SparkSession, stop: StopSignal) -> None:
    """Count, or show what would be counted."""
    source = TopicSource.of(given, COLUMNS)
    if given.dry_run:
        plan = {
            "read": f"stream {given.stream}, topic {given.topic}",
            "windows": f"of {given.window}, the newest {given.windows}",
            "write": f"metrics.csv and metrics.svg in {given.output}",
        }
        preview_plan(source, plan)
        counted = windows_of(source.sample(spark, FIRST_ROWS), given.window)
        preview_rows("windows", counted.selectExpr("window.start", "* EXCEPT (window)"))
        return
    report = _Report(given)
    if given.follow:
        _follow(given, spark, stop, report)
        return
    parts = run_batch(spark, stop, lambda: _collect(windows_of(source.load(spark), given.window)))
    if parts is None:
        print_status("stopped before the end; nothing was written")
        return
    print_result(report.put(parts))
    _print_paths(given)


def _follow(
    given: argparse.Namespace, spark: SparkSession, stop: StopSignal, report: _Report
) -> None:
    messages = TopicSource.of(given, COLUMNS).load_stream(spark)
    counted = windows_of(messages, given.window)

    def put(batch: Any, number: int) -> None:
        table = report.put(_collect(batch))
        print_result(f"after batch {number}\n{table}\n")

    # Complete mode returns all windows each time, so the table is complete after a restart.
    writer = counted.writeStream.outputMode("complete").foreachBatch(put)
    start = partial(start_query, writer, given, "windows", checkpoint=given.checkpoint)
    run_queries({"windows": start}, stop)
    _print_paths(given)


def _print_paths(given: argparse.Namespace) -> None:
    files = ["metrics.csv"] if given.no_plot else ["metrics.csv", "metrics.svg"]
    print_status(f"written: {' and '.join(str(given.output / name) for name in files)}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_command(parser(), work, arguments, check=check)


if __name__ == "__main__":
    sys.exit(main())

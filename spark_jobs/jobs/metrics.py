"""``iggy-spark-metrics``: how much arrived in a topic, window by window, as a table and a plot.

Reads the topic once, or as a stream with a new table and plot after each micro-batch.
"""

from __future__ import annotations

import csv
import sys
from dataclasses import dataclass, fields
from datetime import UTC, datetime
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
from spark_jobs.jobs.queries import run_batch, run_query, start_query
from spark_jobs.jobs.terminal import (
    FIRST_ROWS,
    StopSignal,
    format_table,
    preview_plan,
    preview_rows,
    print_result,
    print_status,
)
from spark_jobs.jobs.topic_source import TopicSource, add_source_options, server_of
from spark_jobs.offsets import TopicPartition

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, Row, SparkSession


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
    from iggy_sdk import ConsumerIdentity
    from spark_jobs.topics import connection

    kind, colon, name = given.lag_of.rpartition(":")
    if colon and kind != "group":
        raise OptionError(f"--lag-of is {given.lag_of!r}; give NAME or group:NAME")
    consumer = ConsumerIdentity.group(name) if colon else ConsumerIdentity.single(name)
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
        preview_plan(source.spans(), plan)
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
    run_query("windows", start, stop)
    _print_paths(given)


def _print_paths(given: argparse.Namespace) -> None:
    files = ["metrics.csv"] if given.no_plot else ["metrics.csv", "metrics.svg"]
    print_status(f"written: {' and '.join(str(given.output / name) for name in files)}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_command(parser(), work, arguments, check=check)


if __name__ == "__main__":
    sys.exit(main())


# Time windows: messages, bytes, delay, and the lag of a consumer in each.


@dataclass(frozen=True)
class PartitionWindow:
    """What one partition got in one window.

    Attributes:
        start_ms: the beginning of the window, in milliseconds since 1970.
        place: the partition.
        messages_count: messages that arrived.
        payload_bytes: bytes of their payloads.
        delay_ms: from the producer's clock to the server's, on average.
        first_offset: the first of them.
        last_offset: the last of them.
    """

    start_ms: int
    place: TopicPartition
    messages_count: int
    payload_bytes: int
    delay_ms: float
    first_offset: int
    last_offset: int

    def behind(self, stored: int | None) -> int:
        """Count the messages that a consumer with this stored offset has not read."""
        read_up_to = self.first_offset - 1 if stored is None else stored
        return min(self.messages_count, max(0, self.last_offset - read_up_to))


@dataclass(frozen=True)
class Window:
    """What all partitions got in one window.

    Attributes:
        start: its beginning.
        messages: messages that arrived.
        bytes: bytes of their payloads.
        delay_ms: from the producer's clock to the server's, on average.
        behind: messages that the consumer has not read; None without a consumer.
    """

    start: str
    messages: int
    bytes: int
    delay_ms: float
    behind: int | None


HEADS: Final = tuple(field.name for field in fields(Window))


class WindowTable:
    """The newest windows, bounded.

    Args:
        windows_max: how many are kept; the oldest go first.
    """

    def __init__(self, *, windows_max: int) -> None:
        self._windows_max = windows_max
        self._parts: dict[tuple[int, TopicPartition], PartitionWindow] = {}

    def put(self, parts: Iterable[PartitionWindow]) -> None:
        """Add parts, or replace those of the same window and partition."""
        self._parts.update({(part.start_ms, part.place): part for part in parts})
        kept = set(sorted({start for start, _ in self._parts})[-self._windows_max :])
        self._parts = {key: part for key, part in self._parts.items() if key[0] in kept}

    def windows(self, stored: Mapping[TopicPartition, int | None] | None) -> list[Window]:
        """Sum up over partitions, oldest first.

        Args:
            stored: what the server has stored for the consumer, if there is one.
        """
        by_start: dict[int, list[PartitionWindow]] = {}
        for (start, _), part in sorted(self._parts.items()):
            by_start.setdefault(start, []).append(part)
        return [_sum(start, parts, stored) for start, parts in by_start.items()]


def _sum(
    start_ms: int, parts: list[PartitionWindow], stored: Mapping[TopicPartition, int | None] | None
) -> Window:
    messages = sum(part.messages_count for part in parts)
    delays = sum(part.delay_ms * part.messages_count for part in parts)
    return Window(
        _format_start(start_ms),
        messages,
        sum(part.payload_bytes for part in parts),
        delays / messages if messages else 0.0,
        None if stored is None else sum(part.behind(stored.get(part.place)) for part in parts),
    )


def _format_start(start_ms: int) -> str:
    """Write the beginning of a window, with its milliseconds where it has some."""
    start = datetime.fromtimestamp(start_ms // 1000, UTC).replace(
        microsecond=start_ms % 1000 * 1000
    )
    timespec = "milliseconds" if start.microsecond else "seconds"
    return start.replace(tzinfo=None).isoformat(sep=" ", timespec=timespec)


def _cells(window: Window) -> list[object]:
    return [getattr(window, name) for name in HEADS]


def format_windows(windows: list[Window]) -> str:
    """Write windows as a table for people."""
    return format_table(HEADS, [_cells(window) for window in windows])


def write_csv(windows: list[Window], path: Path) -> None:
    """Write windows as a table for programs."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HEADS)
        writer.writerows(_cells(window) for window in windows)


# Plot windows as SVG: messages, bytes and lag over time. Needs no display.


BAR_COLOR, PANEL_INCHES = "#2b5797", 1.9


def draw_windows(windows: Sequence[Window], path: Path, *, title: str, window_s: float) -> None:
    """Draw windows to a file.

    Raises:
        OptionError: there is no matplotlib.
    """
    try:
        import matplotlib
    except ImportError:
        raise OptionError(
            "the plot needs matplotlib; pip install 'iggy-python[spark]', or add --no-plot"
        ) from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels: dict[str, list[float]] = {
        "messages": [one.messages for one in windows],
        "KiB": [one.bytes / 1024 for one in windows],
        "delay, ms": [one.delay_ms for one in windows],
    }
    if any(one.behind is not None for one in windows):
        panels["not read yet"] = [one.behind or 0 for one in windows]
    starts = [datetime.fromisoformat(one.start) for one in windows]
    size = (9.0, 0.8 + PANEL_INCHES * len(panels))
    figure, axes = pyplot.subplots(
        len(panels), sharex=True, figsize=size, squeeze=False, layout="constrained"
    )
    for axis, (name, values) in zip(axes[:, 0], panels.items(), strict=True):
        axis.bar(starts, values, width=0.9 * window_s / 86_400, align="edge", color=BAR_COLOR)
        axis.set_ylabel(name)
        axis.grid(axis="y", alpha=0.3)
        axis.set_ylim(bottom=0)
    axes[0, 0].set_title(title)
    axes[-1, 0].tick_params(axis="x", rotation=20)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None})
    pyplot.close(figure)

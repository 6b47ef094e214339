"""Runs the streaming queries of a job until they end or a stop is requested.

They are started and stopped together; when one fails, the others are stopped.
"""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import uuid4

from spark_jobs.jobs.terminal import StopSignal, print_status
from spark_jobs.offsets import read_offsets

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


# Format Spark's progress reports (``recentProgress``): rows, rows per second, and lag.


class ProgressReport:
    """Turns the reports of one query into lines, each report once.

    Args:
        name: the name of the query.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._seen = -1
        self.rows_count = 0

    def lines(self, reports: Iterable[Mapping[str, Any]]) -> Iterator[str]:
        """Return a line for each micro-batch that was not reported yet."""
        for report in reports:
            # While nothing arrives, Spark reports the number of the next batch again and again.
            if report["batchId"] <= self._seen or not report["numInputRows"]:
                continue
            self._seen = report["batchId"]
            self.rows_count += report["numInputRows"]
            yield self._line(report)

    def _line(self, report: Mapping[str, Any]) -> str:
        line = (
            f"{self._name}: batch {report['batchId']}, {report['numInputRows']:,} rows, "
            f"{report.get('processedRowsPerSecond') or 0:,.0f} rows/s"
        )
        lag = lag_of(report)
        return line if lag is None else f"{line}, {lag:,} behind"


def lag_of(report: Mapping[str, Any]) -> int | None:
    """Count the messages that the topics of a query held beyond this batch; None if unknown."""
    lag = None
    for source in report["sources"]:
        latest, end = (_offsets(source.get(name)) for name in ("latestOffset", "endOffset"))
        if latest is not None and end is not None:
            ahead = sum(max(0, offset - end.get(at, 0)) for at, offset in latest.items())
            lag = (lag or 0) + ahead
    return lag


def _offsets(written: object) -> Mapping[Any, int] | None:
    """Read offsets of a topic; None for those of other sources, such as files."""
    try:
        value = json.loads(written) if isinstance(written, str) else written
        return read_offsets(value) if isinstance(value, dict) else None
    except ValueError:
        return None


POLL_INTERVAL_S: Final = 0.2
"""How often a query is polled; short enough for a prompt stop."""

STOP_TIMEOUT_S: Final = 15.0
"""How long a stop waits for the current micro-batch; an unfinished one is repeated next time."""

T = TypeVar("T")


STARTS_MAX: Final = 3
"""How often a query is started whose Python process was not there in time."""

SLOW_START: Final = "Python worker failed to connect back"
"""What Spark says when a Python process of its own took longer than ten seconds to start."""


class _WatchedQuery:
    """A query and its printed progress."""

    def __init__(self, name: str, start: Callable[[], StreamingQuery]) -> None:
        self.report = ProgressReport(name)
        self._name = name
        self._start = start
        self._starts_count = 1
        self.query = start()
        print_status(f"{name}: started")

    def is_running(self) -> bool:
        """Say whether there is more to come; start again what a busy machine was too slow for."""
        if self.query.isActive:
            return True
        if not self._may_start_again(self.query.exception()):
            return False
        self._starts_count += 1
        print_status(f"{self._name}: the Python process of Spark was too slow; starting again")
        self.query = self._start()
        return True

    def _may_start_again(self, error: Exception | None) -> bool:
        # Its checkpoint tells where it goes on, so a second start neither skips nor repeats.
        return self._starts_count < STARTS_MAX and SLOW_START in str(error)

    def print_progress(self) -> None:
        for line in self.report.lines(self.query.recentProgress):
            print_status(line)

    def is_busy(self) -> bool:
        return bool(self.query.isActive and self.query.status["isDataAvailable"])

    def check(self) -> None:
        error = self.query.exception()
        if error is not None and not self._may_start_again(error):
            raise error


def start_query(
    writer: DataStreamWriter,
    given: argparse.Namespace,
    name: str,
    *,
    checkpoint: str,
    table: str | None = None,
) -> StreamingQuery:
    """Start a query of a job, once or with a trigger interval, with its own checkpoint."""
    writer = writer.option("checkpointLocation", f"{checkpoint.rstrip('/')}/{name}")
    if given.once:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=given.every)
    return writer.start() if table is None else writer.toTable(table)


def run_queries(
    starters: Mapping[str, Callable[[], StreamingQuery]], stop: StopSignal
) -> dict[str, int]:
    """Start queries, report their progress, and return how many rows each has read.

    Args:
        starters: for each query its name and what starts it.
        stop: requests the stop; each query then finishes its micro-batch, or drops it if that
            takes too long.

    Raises:
        StreamingQueryException: a query failed; the others are stopped.
    """
    watched: list[_WatchedQuery] = []
    try:
        for name, start in starters.items():
            watched.append(_WatchedQuery(name, start))
        while any(one.is_running() for one in watched):
            for one in watched:
                one.print_progress()
                one.check()
            if stop.wait(POLL_INTERVAL_S):
                _finish_batches(watched)
                break
        for one in watched:
            one.print_progress()
            one.check()
    finally:
        for one in watched:
            one.query.stop()
    return {name: one.report.rows_count for name, one in zip(starters, watched, strict=True)}


def _finish_batches(watched: list[_WatchedQuery]) -> None:
    """Wait for the current micro-batches, but not for the next ones."""
    deadline = time.monotonic() + STOP_TIMEOUT_S
    for one in watched:
        batch = _batch_of(one.query)
        while one.is_busy() and _batch_of(one.query) == batch and time.monotonic() < deadline:
            # Spark takes fractions, whatever its annotation says.
            one.query.awaitTermination(POLL_INTERVAL_S)  # type: ignore[arg-type]


def _batch_of(query: StreamingQuery) -> int:
    report = query.lastProgress
    return -1 if report is None else int(report["batchId"])


def run_batch(spark: SparkSession, stop: StopSignal, work: Callable[[], T]) -> T | None:
    """Run a Spark job, and interrupt it when a stop is requested; then return None."""
    tag = f"iggy-{uuid4().hex}"
    is_over = threading.Event()

    def interrupt() -> None:
        while not is_over.is_set():
            # Repeated, because a job that has not started yet cannot be interrupted.
            if stop.wait(POLL_INTERVAL_S):
                spark.interruptTag(tag)
                is_over.wait(POLL_INTERVAL_S)

    watcher = threading.Thread(target=interrupt, name="iggy-stop")
    spark.addTag(tag)
    watcher.start()
    try:
        return work()
    except Exception:
        if stop.requested:
            return None
        raise
    finally:
        is_over.set()
        watcher.join()
        spark.removeTag(tag)

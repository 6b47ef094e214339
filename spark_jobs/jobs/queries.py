"""Runs streaming queries side by side until they end or a stop is requested.

A query that fails may be started again from its checkpoint; the others go on meanwhile.
"""

from __future__ import annotations

import json
import re
import threading
import time
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from uuid import uuid4

from spark_jobs.errors import DataLossError, OptionError, SchemaError, StaleBatchError
from spark_jobs.jobs.terminal import StopSignal, print_status
from spark_jobs.offsets import read_offsets

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


class RunningQuery(Protocol):
    """What a streaming query of Spark offers, as far as it is used here."""

    @property
    def isActive(self) -> bool:
        """Whether it runs."""

    @property
    def status(self) -> Mapping[str, Any]:
        """What it does at the moment."""

    @property
    def lastProgress(self) -> Any:
        """The report of the last micro-batch; None before the first."""

    @property
    def recentProgress(self) -> Sequence[Any]:
        """The reports of the last micro-batches."""

    def exception(self) -> Exception | None:
        """Return why it ended; None if it did not fail."""

    def awaitTermination(self, timeout: Any = None) -> bool | None:
        """Wait for its end."""

    def stop(self) -> None:
        """Stop it, and wait until it has stopped."""


# Format Spark's progress reports (``recentProgress``): rows, rows per second, and lag.


BAD_ROWS: Final = "bad_rows"
"""The name of an observed metric."""


class ProgressReport:
    """Turns the reports of one query into lines, each report once.

    Args:
        name: the name of the query.

    Attributes:
        rows_count: rows read so far.
        batch_id: the last micro-batch with rows; None before the first.
        rows_per_second: how fast that was.
        lag: messages that the topics held beyond it; None if unknown.
        bad_rows_count: rows that could not be processed, where the query counts them itself.
        late_rows_count: rows that Spark dropped because they were late.
    """

    def __init__(self, name: str) -> None:
        self.rows_count = 0
        self.batch_id: int | None = None
        self.rows_per_second: float | None = None
        self.lag: int | None = None
        self.bad_rows_count = 0
        self.late_rows_count = 0
        self._name = name
        self._seen = -1
        self._rows = 0

    def lines(self, reports: Iterable[Mapping[str, Any]]) -> Iterator[str]:
        """Return a line for each micro-batch that was not reported yet."""
        for report in reports:
            # While nothing arrives, Spark reports the number of the next batch again and again.
            if report["batchId"] <= self._seen or not report["numInputRows"]:
                continue
            self._seen = self.batch_id = report["batchId"]
            self._rows = report["numInputRows"]
            self.rows_count += self._rows
            self.rows_per_second = report.get("processedRowsPerSecond") or 0.0
            self.lag = lag_of(report)
            for numbers in report.get("observedMetrics", {}).values():
                self.bad_rows_count += numbers[BAD_ROWS]
            for operator in report.get("stateOperators", ()):
                self.late_rows_count += operator.get("numRowsDroppedByWatermark", 0)
            yield self._line()

    def _line(self) -> str:
        line = (
            f"{self._name}: batch {self.batch_id}, {self._rows:,} rows, "
            f"{self.rows_per_second:,.0f} rows/s"
        )
        return line if self.lag is None else f"{line}, {self.lag:,} behind"


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


RESTART_DELAY_S: Final = 1.0
RESTART_DELAY_MAX_S: Final = 60.0
"""Delays double with each restart, up to this one."""

# Errors that stay until someone does something, by what Spark writes of them.
_PERMANENT: Final = re.compile(
    r"spark_jobs\.(?:\w+\.)+"
    r"(?:OptionError|SchemaError|DataLossError|StaleBatchError|PipelineFileError)\b"
    r"|\[USER_RAISED_EXCEPTION\]"
)


def is_permanent(error: Exception) -> bool:
    """Tell whether starting a query again can be of no use."""
    return (
        isinstance(error, OptionError | SchemaError | DataLossError | StaleBatchError)
        # Spark cannot make a plan of it; this module shall not load Spark to name the class.
        or type(error).__name__ in ("AnalysisException", "ParseException")
        or _PERMANENT.search(str(error)) is not None
    )


class QueryRun:
    """A query, its printed progress, and its restarts.

    Args:
        name: what its lines of progress begin with.
        start: starts the query, or starts it again from its checkpoint.
        restarts_max: how often in a row it is started again after an error.

    Attributes:
        state: ``running``, ``waiting`` for a restart, ``done``, ``stopped`` or ``failed``.
        error: the last error.
        restarts_count: how often it was started again, all in all.
    """

    def __init__(
        self, name: str, start: Callable[[], RunningQuery], *, restarts_max: int = 0
    ) -> None:
        self.report = ProgressReport(name)
        self.state = "waiting"
        self.error: Exception | None = None
        self.restarts_count = 0
        self._name = name
        self._start = start
        self._restarts_max = restarts_max
        self._failures_in_a_row = 0
        self._slow_starts = 0
        self._restart_at = 0.0
        self._query: RunningQuery | None = None

    @property
    def is_over(self) -> bool:
        """Whether there is nothing more to come."""
        return self.state in ("done", "stopped", "failed")

    @property
    def failure(self) -> Exception | None:
        """The error that ended it; None if none did."""
        return self.error if self.state == "failed" else None

    def advance(self) -> None:
        """Start the query if it is time, report its progress, and see whether it has ended."""
        if self.state == "waiting" and time.monotonic() >= self._restart_at:
            self._begin()
        if self.state != "running":
            return
        assert self._query is not None, "it runs"
        is_active = self._query.isActive
        error = None if is_active else self._query.exception()
        self._print_progress()
        if error is not None:
            self._on_error(error)
        elif not is_active:
            self.state = "done"

    def _begin(self) -> None:
        try:
            self._query = self._start()
        except Exception as error:
            self._on_error(error)
            return
        is_first = not self._failures_in_a_row and not self._slow_starts
        self.state = "running"
        if is_first:
            print_status(f"{self._name}: started")

    def _on_error(self, error: Exception) -> None:
        self.error = error
        if SLOW_START in str(error) and self._slow_starts < STARTS_MAX - 1:
            # Its checkpoint tells where it goes on, so a second start neither skips nor repeats.
            self._slow_starts += 1
            print_status(f"{self._name}: the Python process of Spark was too slow; starting again")
            self._wait(0.0)
        elif is_permanent(error) or self._failures_in_a_row >= self._restarts_max:
            self.state = "failed"
        else:
            self._failures_in_a_row += 1
            exponent = min(self._failures_in_a_row - 1, 10)
            delay = min(RESTART_DELAY_MAX_S, RESTART_DELAY_S * 2**exponent)
            print_status(f"{self._name}: failed, restart in {delay:g} s")
            self._wait(delay)

    def _wait(self, delay_s: float) -> None:
        self.restarts_count += 1
        self.state = "waiting"
        self._restart_at = time.monotonic() + delay_s

    def _print_progress(self) -> None:
        assert self._query is not None, "it was started"
        for line in self.report.lines(self._query.recentProgress):
            # A micro-batch is done, so what failed before it is over.
            self._failures_in_a_row = self._slow_starts = 0
            print_status(line)

    def finish_batch(self, deadline: float) -> None:
        """Wait for the current micro-batch, but not for the next one."""
        query = self._query
        if query is None or self.state != "running":
            return
        batch = _batch_of(query)
        while _is_busy(query) and _batch_of(query) == batch and time.monotonic() < deadline:
            query.awaitTermination(POLL_INTERVAL_S)

    def stop(self) -> None:
        """Stop the query."""
        query = self._query
        if query is not None:
            if self.state == "running" and not query.isActive:
                self.advance()
            query.stop()
            self._print_progress()
        if not self.is_over:
            self.state = "stopped"


def start_query(
    writer: DataStreamWriter, given: argparse.Namespace, name: str, *, checkpoint: str
) -> StreamingQuery:
    """Start a query of a job, once or with a trigger interval, with its own checkpoint."""
    writer = writer.option("checkpointLocation", f"{checkpoint.rstrip('/')}/{name}")
    if given.once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=given.every).start()


def run_query(name: str, start: Callable[[], StreamingQuery], stop: StopSignal) -> int:
    """Run a query until it ends or a stop is requested, and return how many rows it has read.

    Raises:
        StreamingQueryException: it failed.
    """
    run = QueryRun(name, start)
    supervise([run], stop)
    if run.failure is not None:
        raise run.failure
    return run.report.rows_count


def supervise(
    runs: Sequence[QueryRun], stop: StopSignal, *, on_change: Callable[[], None] | None = None
) -> None:
    """Run queries side by side until all are over; one that fails leaves the others alone.

    Args:
        runs: the queries.
        stop: requests the stop; each query then finishes its micro-batch, or drops it if that
            takes too long.
        on_change: is called after each round.
    """
    notify = on_change or (lambda: None)
    try:
        while not stop.requested:
            for run in runs:
                run.advance()
            notify()
            if all(run.is_over for run in runs):
                break
            stop.wait(POLL_INTERVAL_S)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        for run in runs:
            run.finish_batch(deadline)
    finally:
        for run in runs:
            run.stop()
        notify()


def _is_busy(query: RunningQuery) -> bool:
    return bool(query.isActive and query.status["isDataAvailable"])


def _batch_of(query: RunningQuery) -> int:
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

"""Runs the streaming queries of a job until they end or a stop is requested.

They are started and stopped together; when one fails, the others are stopped.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import uuid4

from spark_jobs.jobs.progress import ProgressReport
from spark_jobs.jobs.terminal import say

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from spark_jobs.jobs.stopping import Stopping

__all__ = ["run_batch", "run_queries", "start_query"]

LOOK_S: Final = 0.2
"""How often a query is polled; short enough for a prompt stop."""

GRACE_S: Final = 15.0
"""How long a stop waits for the current micro-batch; an unfinished one is repeated next time."""

T = TypeVar("T")


class _Watched:
    """A query and its printed progress."""

    def __init__(self, name: str, query: StreamingQuery) -> None:
        self.query = query
        self.report = ProgressReport(name)

    def tell(self) -> None:
        for line in self.report.lines(self.query.recentProgress):
            say(line)

    def is_busy(self) -> bool:
        return bool(self.query.isActive and self.query.status["isDataAvailable"])

    def check(self) -> None:
        error = self.query.exception()
        if error is not None:
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
    starters: Mapping[str, Callable[[], StreamingQuery]], stop: Stopping
) -> dict[str, int]:
    """Start queries, report their progress, and return how many rows each has read.

    Args:
        starters: for each query its name and what starts it.
        stop: requests the stop; each query then finishes its micro-batch, or drops it if that
            takes too long.

    Raises:
        StreamingQueryException: a query failed; the others are stopped.
    """
    watched: list[_Watched] = []
    try:
        for name, start in starters.items():
            watched.append(_Watched(name, start()))
            say(f"{name}: started")
        while any(one.query.isActive for one in watched):
            for one in watched:
                one.tell()
                one.check()
            if stop.wait(LOOK_S):
                _end_batches(watched)
                break
        for one in watched:
            one.tell()
            one.check()
    finally:
        for one in watched:
            one.query.stop()
    return {name: one.report.rows_count for name, one in zip(starters, watched, strict=True)}


def _end_batches(watched: list[_Watched]) -> None:
    """Wait for the current micro-batches, but not for the next ones."""
    deadline = time.monotonic() + GRACE_S
    for one in watched:
        batch = _batch_of(one.query)
        while one.is_busy() and _batch_of(one.query) == batch and time.monotonic() < deadline:
            one.query.awaitTermination(LOOK_S)  # type: ignore[arg-type]  # fractions are taken


def _batch_of(query: StreamingQuery) -> int:
    report = query.lastProgress
    return -1 if report is None else int(report["batchId"])


def run_batch(spark: SparkSession, stop: Stopping, work: Callable[[], T]) -> T | None:
    """Run a Spark job, and interrupt it when a stop is requested; then return None."""
    tag = f"iggy-{uuid4().hex}"
    is_over = threading.Event()

    def interrupt() -> None:
        while not is_over.is_set():
            # Repeated, because a job that has not started yet cannot be interrupted.
            if stop.wait(LOOK_S):
                spark.interruptTag(tag)
                is_over.wait(LOOK_S)

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

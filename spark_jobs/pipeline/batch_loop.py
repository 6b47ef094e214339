"""Micro-batches of a source that is no stream of Spark, with the promises of a streaming query.

The checkpoint has the plan of each micro-batch before it begins, and a mark after it is done. So a
restart repeats the micro-batch that was not done, with the same plan under the same number.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from spark_jobs.pipeline.hadoop_files import HadoopFolder
from spark_jobs.pipeline.topic_sink import QUERY_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from spark_jobs.pipeline.jdbc_source import JdbcSource

PLANS, DONE, IDENTITY = "plans", "done", "identity.json"
PLANS_KEPT: Final = 100
PROGRESS_KEPT: Final = 100
STOP_TIMEOUT_S: Final = 30.0
BATCH_ID: Final = "streaming.sql.batchId"
"""The property in which Spark keeps the micro-batch that a thread works for."""


class BatchLoop:
    """Runs micro-batches in a thread of its own; it offers what a streaming query does.

    Args:
        spark: the session.
        source: plans micro-batches and reads them.
        process: writes one.
        folder: the folder of the checkpoint.
        every_s: how often a micro-batch starts.
        once: whether it ends when there is nothing new.
        max_rows: rows of one micro-batch at most.
        pool: the scheduler pool of its jobs.
    """

    def __init__(
        self,
        spark: SparkSession,
        source: JdbcSource,
        process: Callable[[DataFrame, int], None],
        *,
        folder: str,
        every_s: float,
        once: bool,
        max_rows: int | None,
        pool: str,
    ) -> None:
        self._spark = spark
        self._source = source
        self._process = process
        self._folder = HadoopFolder(spark, folder)
        self._every_s = every_s
        self._once = once
        self._max_rows = max_rows
        self._pool = pool
        self._tag = f"iggy-{uuid4().hex}"
        self._stopping = threading.Event()
        self._is_working = False
        self._error: Exception | None = None
        self._progress: deque[Mapping[str, Any]] = deque(maxlen=PROGRESS_KEPT)
        self._thread = threading.Thread(target=self._run, name=f"iggy-{pool}", daemon=True)
        self._thread.start()

    @property
    def isActive(self) -> bool:
        """Whether it runs."""
        return self._thread.is_alive()

    @property
    def status(self) -> Mapping[str, Any]:
        """What it does at the moment."""
        return {"isDataAvailable": self._is_working}

    @property
    def lastProgress(self) -> Mapping[str, Any] | None:
        """The report of the last micro-batch."""
        return self._progress[-1] if self._progress else None

    @property
    def recentProgress(self) -> Sequence[Mapping[str, Any]]:
        """The reports of the last micro-batches."""
        return list(self._progress)

    def exception(self) -> Exception | None:
        """Return why it ended."""
        return self._error

    def awaitTermination(self, timeout: float | None = None) -> bool:
        """Wait for its end."""
        self._thread.join(timeout)
        return not self.isActive

    def stop(self) -> None:
        """Stop it; a micro-batch that is not done is repeated next time."""
        self._stopping.set()
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while self.isActive and time.monotonic() < deadline:
            # Repeated, because a job that has not started yet cannot be interrupted.
            self._spark.interruptTag(self._tag)
            self._thread.join(0.2)

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:
            if not self._stopping.is_set():
                self._error = error

    def _work(self) -> None:
        context = self._spark.sparkContext
        context.setLocalProperty("spark.scheduler.pool", self._pool)
        context.setLocalProperty(QUERY_ID, self._identity())
        self._spark.addTag(self._tag)
        number = self._first_batch()
        while not self._stopping.is_set():
            began = time.monotonic()
            plan = self._plan(number)
            if plan is not None:
                context.setLocalProperty(BATCH_ID, str(number))
                self._batch(number, plan, began)
                number += 1
            whole_table = plan is not None and "until" not in plan
            if self._once and (plan is None or whole_table):
                return
            if plan is None or not self._once:
                rest_s = self._every_s - (time.monotonic() - began)
                self._stopping.wait(max(0.0, rest_s))

    def _identity(self) -> str:
        """Return the name of the checkpoint, which is made with it."""
        text = self._folder.read_text(IDENTITY)
        if text is None:
            text = json.dumps({"id": str(uuid4())})
            self._folder.write_text(IDENTITY, text)
        return str(json.loads(text)["id"])

    def _first_batch(self) -> int:
        done = [int(name) for name in self._folder.names(DONE) if name.isdigit()]
        return max(done, default=-1) + 1

    def _plan(self, number: int) -> Mapping[str, Any] | None:
        """Return the plan of a micro-batch: that of an interrupted attempt, or a new one."""
        text = self._folder.read_text(f"{PLANS}/{number}")
        if text is not None:
            known: Mapping[str, Any] = json.loads(text)
            return known
        before = self._folder.read_text(f"{PLANS}/{number - 1}")
        last = None if before is None else json.loads(before)
        plan = self._source.plan(self._spark, last, self._max_rows)
        if plan is not None:
            self._folder.write_text(f"{PLANS}/{number}", json.dumps(plan))
        return plan

    def _batch(self, number: int, plan: Mapping[str, Any], began: float) -> None:
        self._is_working = True
        # All outputs see the same rows, whatever the database does meanwhile.
        rows = self._source.rows(self._spark, plan).persist()
        try:
            count = rows.count()
            self._process(rows, number)
            self._folder.write_text(f"{DONE}/{number}", "{}")
        finally:
            rows.unpersist()
            self._is_working = False
        for folder in (PLANS, DONE):
            self._folder.delete(f"{folder}/{number - PLANS_KEPT}")
        elapsed_s = max(time.monotonic() - began, 1e-6)
        report = {"batchId": number, "numInputRows": count, "sources": ()}
        self._progress.append({**report, "processedRowsPerSecond": count / elapsed_s})

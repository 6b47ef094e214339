"""A program with a Spark session of its own, whose tasks fail after they have written.

    python -m tests.spark.retried_write MASTER SERVER STREAM

Each attempt of a task sees its rows in another order, and all but the last one fail after some of
them. With a master of several processes a task that is slow is run twice at the same time instead.
"""

from __future__ import annotations

import random
import sys
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.fix_spark import start_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession


ROWS = 4_000
CONTENTS = 1_500
"""Fewer than rows, so that some are there several times."""

ATTEMPTS = 3
BATCH_ROWS = 50
SLOW_SECONDS = 60.0


def content(number: int) -> str:
    """Return the payload of a row."""
    return f"content {number % CONTENTS}"


def in_another_order(batches: Iterator[Any]) -> Iterator[Any]:
    """Hand on rows in an order that depends on the attempt, and fail in all but the last one."""
    import pyarrow as pa  # type: ignore[import-untyped]  # it comes without types
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    table = pa.Table.from_batches(list(batches))
    attempt = context.attemptNumber()
    order = list(range(table.num_rows))
    random.Random(attempt).shuffle(order)
    is_last = attempt == ATTEMPTS - 1
    kept = order if is_last else order[: table.num_rows * 2 // 3]
    yield from table.take(kept).to_batches(max_chunksize=BATCH_ROWS)
    if not is_last:
        raise RuntimeError(f"attempt {attempt} was to fail")


def slow_at_first(folder: str, batches: Iterator[Any]) -> Iterator[Any]:
    """Hand on rows, and be slow after half of them in the first attempt of the first task."""
    import pyarrow as pa
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    table = pa.Table.from_batches(list(batches))
    order = list(range(table.num_rows))
    random.Random(context.attemptNumber()).shuffle(order)
    pieces = table.take(order).to_batches(max_chunksize=BATCH_ROWS)
    yield from pieces[: len(pieces) // 2]
    if context.partitionId() == 0:
        (Path(folder) / f"attempt-{context.attemptNumber()}").touch()
    if context.partitionId() == 0 and context.attemptNumber() == 0:
        threading.Event().wait(SLOW_SECONDS)  # Spark kills it once the other attempt is done
    yield from pieces[len(pieces) // 2 :]


def rows_of(spark: SparkSession) -> DataFrame:
    """Make rows, and shuffle them."""
    rows = spark.range(ROWS).selectExpr(
        f"concat('content ', cast(id % {CONTENTS} as string)) as payload",
        "cast(id % 17 as string) as key",
    )
    return rows.repartition(3)


def main(master: str, server: str, stream: str, folder: str) -> None:
    """Write with and without keys."""
    with pytest.MonkeyPatch.context() as environment:
        spark = start_session(
            environment,
            folder,
            master=master,
            settings={
                "spark.executor.memory": "512m",
                "spark.speculation": "true",
                "spark.speculation.interval": "100ms",
                "spark.speculation.minTaskRuntime": "500ms",
                "spark.speculation.multiplier": "1.2",
                "spark.speculation.quantile": "0.5",
                "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_ROWS),
            },
        )
    from spark_jobs import register

    register(spark)
    disturb: Any = in_another_order
    if master.startswith("local-cluster"):
        disturb = partial(slow_at_first, folder)
    for topic, columns in (("balanced", ["payload"]), ("keyed", ["payload", "key"])):
        rows = rows_of(spark).select(*columns)
        rows.mapInArrow(disturb, rows.schema).write.format("iggy").mode("append").options(
            server=server, stream=stream, topic=topic, createTopic=3, sendBatch=20
        ).save()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

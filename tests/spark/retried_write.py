"""A program with a Spark session of its own, whose tasks fail after they have written.

    python -m tests.spark.retried_write MASTER SERVER STREAM

Each attempt of a task sees its rows in another order, and all but the last one fail after some of
them.
"""

from __future__ import annotations

import random
import sys
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
                "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_ROWS),
            },
        )
    from spark_jobs import register

    register(spark)
    for topic, columns in (("balanced", ["payload"]), ("keyed", ["payload", "key"])):
        rows = rows_of(spark).select(*columns)
        rows.mapInArrow(in_another_order, rows.schema).write.format("iggy").mode("append").options(
            server=server, stream=stream, topic=topic, createTopic=3, sendBatch=20
        ).save()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

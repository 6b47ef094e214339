"""A query that copies a topic and is killed after it has written a batch that Spark forgets.

usage: python -m tests.spark.killed_query SERVER STREAM CHECKPOINT

It prints a line when the second batch is written, and then waits for its end.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs import register
from tests.fix_spark import start_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ROWS_PER_BATCH = 20


def start_copy(
    spark: SparkSession, options: dict[str, str], checkpoint: str, *, stuck_at: int | None
) -> StreamingQuery:
    """Copy topic ``t`` to ``out``, batch by batch; get stuck after one of them was written."""

    def copy(rows: DataFrame, batch: int) -> None:
        rows.select("payload").write.format("iggy").mode("append").options(
            **{**options, "topic": "out", "createTopic": "2"}
        ).save()
        if batch == stuck_at:
            sys.stdout.write("written\n")
            sys.stdout.flush()
            sys.stdin.read()

    return (
        spark.readStream.format("iggy")
        .options(**options, startingOffsets="earliest", maxOffsetsPerTrigger=str(ROWS_PER_BATCH))
        .load()
        .writeStream.foreachBatch(copy)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )


def main(server: str, stream: str, checkpoint: str) -> None:
    """Run until killed."""
    with pytest.MonkeyPatch.context() as environment:
        spark = register(start_session(environment, Path(checkpoint) / "warehouse"))
    options = {"server": server, "stream": stream, "topic": "t"}
    start_copy(spark, options, checkpoint, stuck_at=1).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A process that copies a topic to tables of all kinds, and kills itself between two steps.

    python -m tests.lake.killed_query URL STREAM FOLDER DATABASE [BATCH STEP]

Micro-batches have two messages. Without BATCH and STEP it runs until it has read the topic. The
steps are those of ``STEPS``; each is a moment at which a crash could lose or repeat rows.
"""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark

from spark_jobs import jdbc, register, tables
from spark_jobs.jdbc.place import TablePlace
from tests.lake.conftest import formats
from tests.lake.session import lake_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

STEPS = ("delta", "iceberg", "staged", "moved", "upserted", "merged")
"""After: a commit of each format; rows staged, moved, upserted; a merge."""


def kill(wanted: str, step: str) -> None:
    """End the process as a crash would, if this is the step."""
    if step == wanted:
        os.kill(os.getpid(), signal.SIGKILL)


def watch(place: type, name: str, die: Callable[[], None]) -> None:
    """Kill after each call of a method."""
    method = getattr(place, name)

    def watched(*arguments: Any) -> Any:
        result = method(*arguments)
        die()
        return result

    setattr(place, name, watched)


def sinks(database: str) -> list[tuple[str, Callable[..., None]]]:
    """Return a writer for each kind of table, and the step after it."""
    found: list[tuple[str, Callable[..., None]]] = []
    names = {"delta": "default.copies", "iceberg": "lake.db.copies"}
    for kind in formats():
        append = tables.TableTarget(names[kind], kind, evolve_schema=True)
        merge = tables.TableTarget(f"{names[kind]}_merged", kind, "merge", ("id",))
        found.append((kind, partial(_write_table, append)))
        found.append(("merged", partial(_write_table, merge)))
    for target, step in (
        (jdbc.JdbcTarget(database, "copies"), "moved"),
        (jdbc.JdbcTarget(database, "copies_latest", "upsert", ("id",)), "upserted"),
    ):
        found.append((step, partial(_write_jdbc, target)))
    return found


def _write_table(target: tables.TableTarget, rows: DataFrame, writer: str, batch: int) -> None:
    tables.write_batch(rows, target, writer=writer, batch_id=batch)


def _write_jdbc(target: jdbc.JdbcTarget, rows: DataFrame, writer: str, batch: int) -> None:
    jdbc.write_batch(rows, target, writer=writer, batch_id=batch)


def main() -> None:
    """Run the query."""
    url, stream, place, database, *when = sys.argv[1:]
    folder = Path(place)
    needed = [one for kind in formats() for one in tables.packages(kind, pyspark.__version__)]
    spark = lake_session(folder, formats(), [*needed, *jdbc.packages(database)])
    register(spark)
    source = spark.readStream.format("iggy").options(
        server=url, stream=stream, topic="orders", startingOffsets="earliest"
    )
    messages = source.option("maxOffsetsPerTrigger", 2).load()
    rows = messages.selectExpr("CAST(CAST(payload AS STRING) AS BIGINT) AS id", "offset")
    batch_of_death, step_of_death = (int(when[0]), when[1]) if when else (-1, "")
    now = [0]

    def die(step: str) -> None:
        if now[0] == batch_of_death:
            kill(step_of_death, step)

    watch(TablePlace, "repeated_rows", partial(die, "staged"))

    def write(batch: DataFrame, number: int) -> None:
        now[0] = number
        writer = tables.query_id(batch)
        if number >= 1:
            batch = batch.selectExpr("*", "id + 1 AS more")
        for step, sink in sinks(database):
            given = batch if step in formats() else batch.select("id", "offset")
            sink(given, writer, number)
            die(step)

    query = rows.writeStream.foreachBatch(write).option("checkpointLocation", f"{folder}/state")
    query.trigger(availableNow=True).start().awaitTermination()
    show(spark, database)


def show(spark: Any, database: str) -> None:
    """Print the ids of each table."""
    names = {"delta": "default.copies", "iceberg": "lake.db.copies"}
    found = {}
    for kind in formats():
        for table in (names[kind], f"{names[kind]}_merged"):
            found[table] = spark.table(table)
    for table in ("copies", "copies_latest"):
        options = {"url": database, "dbtable": table, "driver": "org.postgresql.Driver"}
        found[table] = spark.read.format("jdbc").options(**options).load()
    for table, rows in found.items():
        ids = sorted(row["id"] for row in rows.select("id").collect())
        sys.stdout.write(f"RESULT {table} {ids}\n")


if __name__ == "__main__":
    main()

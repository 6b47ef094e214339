"""``iggy-spark-to-parquet``: a topic becomes Parquet files in folders by date and hour.

Spark's file sink remembers which files belong, so each message is there once, whatever was killed.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

from spark_jobs.errors import OptionError
from spark_jobs.jobs.command import add_run_options, add_spark_options, make_parser, run_command
from spark_jobs.jobs.queries import run_queries, start_query
from spark_jobs.jobs.rows import (
    SOURCE_COLUMNS,
    DeadLetterWriter,
    RowLayout,
    add_dead_letter_options,
    add_json_options,
)
from spark_jobs.jobs.terminal import (
    FIRST_ROWS,
    StopSignal,
    preview_plan,
    preview_rows,
    preview_schema_guess,
    print_status,
)
from spark_jobs.jobs.topic_source import TopicSource, add_source_options

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


EXAMPLE = """
  iggy-spark-to-parquet --server iggy://iggy:iggy@127.0.0.1:8090 --stream shop --topic orders \\
      --path lake/orders --json-schema 'id BIGINT NOT NULL, item STRING, cups INT' \\
      --dead-letter-topic orders-dead --consumer lake --every 30s
"""


def parser() -> argparse.ArgumentParser:
    """Make the parser of the command."""
    made = make_parser(
        "iggy-spark-to-parquet",
        "Write a topic to Parquet files, partitioned by date and hour, as it grows or once.",
        EXAMPLE,
    )
    made.add_argument("--path", required=True, help="folder of the files; any path or URL of Spark")
    made.add_argument("--checkpoint", help="folder of Spark's offsets (default PATH/_checkpoint)")
    add_source_options(made)
    add_json_options(made)
    add_dead_letter_options(made, otherwise="their payload is kept in the column _corrupt_record")
    add_run_options(made)
    add_spark_options(made)
    return made


def check(given: argparse.Namespace) -> None:
    """Find mistakes, and ask the server for the topic."""
    if DeadLetterWriter.of(given) is not None and given.json_schema is None:
        raise OptionError("dead letters need --json-schema; without one every message fits")
    TopicSource.of(given, SOURCE_COLUMNS).spans()


def work(given: argparse.Namespace, spark: SparkSession, stop: StopSignal) -> None:
    """Write, or show what would be written."""
    source = TopicSource.of(given, SOURCE_COLUMNS)
    letters = DeadLetterWriter.of(given)
    shape = RowLayout.of(given, keeps_bad=letters is None)
    if given.dry_run:
        preview(given, spark, source, shape)
        return
    checkpoint = given.checkpoint or f"{given.path.rstrip('/')}/_checkpoint"
    rows = shape.rows(source.load_stream(spark))
    writer = rows.writeStream.format("parquet").option("path", given.path)
    if shape.partition_by:
        writer = writer.partitionBy(*shape.partition_by)
    starters: dict[str, Callable[[], StreamingQuery]] = {
        "rows": partial(start_query, writer, given, "rows", checkpoint=checkpoint)
    }
    if letters is not None:
        bad = letters.writer(shape.bad(source.named("dead-letters").load_stream(spark)))
        starters["dead letters"] = partial(
            start_query, bad, given, "dead-letters", checkpoint=checkpoint
        )
    done = run_queries(starters, stop)
    print_status(f"{done['rows']:,} messages read, Parquet files in {given.path}")


def preview(
    given: argparse.Namespace, spark: SparkSession, source: TopicSource, shape: RowLayout
) -> None:
    """Show what would be done."""
    letters = DeadLetterWriter.of(given)
    plan = {
        "read": f"stream {given.stream}, topic {given.topic}",
        "write": f"Parquet files in {given.path}",
        "folders": ", ".join(shape.partition_by) or "none",
        "dead letters": letters or "none",
        "run": "once, what is there" if given.once else f"every {given.every}, until stopped",
    }
    preview_plan(source, plan)
    sample = source.sample(spark, FIRST_ROWS)
    preview_rows("rows", shape.rows(sample))
    if letters is not None:
        preview_rows("dead letters", shape.bad(sample).select("partition", "offset", "error"))
    if given.json_schema is None:
        preview_schema_guess(sample)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_command(parser(), work, arguments, check=check)


if __name__ == "__main__":
    sys.exit(main())

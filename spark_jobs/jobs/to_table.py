"""``iggy-spark-to-table``: a topic becomes rows of a table: Delta, Iceberg, or one of Spark's own.

With ``--merge-key`` the newest message of each key is the row that stays.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

from spark_jobs import tables
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
    print_status,
)
from spark_jobs.jobs.topic_source import TopicSource, add_source_options
from spark_jobs.tables import FORMATS, OWN_FORMATS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


EXAMPLE = """
  iggy-spark-to-table --server iggy://iggy:iggy@127.0.0.1:8090 --stream shop --topic orders \\
      --table lake.orders --format delta --packages io.delta:delta-spark_4.2_2.13:4.4.0 \\
      --json-schema 'id BIGINT NOT NULL, item STRING' --merge-key id --checkpoint state/orders
"""


def parser() -> argparse.ArgumentParser:
    """Make the parser of the command."""
    made = make_parser(
        "iggy-spark-to-table",
        "Write a topic to a table of Delta, Iceberg or Spark itself, as it grows or once.",
        EXAMPLE,
    )
    made.add_argument("--table", required=True, help="name of the table; it is created if missing")
    made.add_argument(
        "--format", choices=(*FORMATS, *OWN_FORMATS), default="delta", help="default: delta"
    )
    made.add_argument(
        "--merge-key",
        metavar="NAMES",
        help="replace rows with the same values in these columns instead of appending",
    )
    made.add_argument(
        "--evolve-schema",
        action="store_true",
        help="let a table of Delta or Iceberg take new columns, and wider types where it can",
    )
    made.add_argument("--checkpoint", required=True, help="folder of Spark's offsets")
    add_source_options(made)
    add_json_options(made)
    add_dead_letter_options(made, otherwise="their payload is kept in the column _corrupt_record")
    add_run_options(made)
    add_spark_options(made)
    made.set_defaults(partition_by="date")
    return made


def check(given: argparse.Namespace) -> None:
    """Find mistakes, and ask the server for the topic."""
    if DeadLetterWriter.of(given) is not None and given.json_schema is None:
        raise OptionError("dead letters need --json-schema; without one every message fits")
    if given.format in OWN_FORMATS and (given.merge_key is not None or given.evolve_schema):
        raise OptionError(
            f"tables of {given.format} can only be appended to; leave --merge-key and "
            f"--evolve-schema out, or choose --format {' or '.join(FORMATS)}"
        )
    TopicSource.of(given, SOURCE_COLUMNS).spans()


def settings(given: argparse.Namespace) -> Mapping[str, str]:
    """Return what a session needs for the format."""
    return tables.settings(given.format)


def work(given: argparse.Namespace, spark: SparkSession, stop: StopSignal) -> None:
    """Write, or show what would be written."""
    tables.check_format(spark, given.format)
    source = TopicSource.of(given, SOURCE_COLUMNS)
    letters = DeadLetterWriter.of(given)
    shape = RowLayout.of(given, keeps_bad=letters is None)
    if given.dry_run:
        preview(given, spark, source, shape)
        return
    rows = shape.rows(source.load_stream(spark))
    writer, table = _writer(given, rows, shape.partition_by)
    starters: dict[str, Callable[[], StreamingQuery]] = {
        "rows": partial(
            start_query, writer, given, "rows", checkpoint=given.checkpoint, table=table
        )
    }
    if letters is not None:
        bad = letters.writer(shape.bad(source.named("dead-letters").load_stream(spark)))
        starters["dead letters"] = partial(
            start_query, bad, given, "dead-letters", checkpoint=given.checkpoint
        )
    done = run_queries(starters, stop)
    print_status(f"{done['rows']:,} messages read, {given.format} table {given.table}")


def _writer(
    given: argparse.Namespace, rows: DataFrame, folders: tuple[str, ...]
) -> tuple[DataStreamWriter, str | None]:
    """Return the writer, and the table unless the writer has it."""
    if given.format in OWN_FORMATS:
        writer = rows.writeStream.format(given.format).outputMode("append")
        return (writer.partitionBy(*folders) if folders else writer), given.table
    target = _target(given, rows, folders)

    def write(batch: DataFrame, number: int) -> None:
        tables.write_batch(batch, target, writer=tables.query_id(batch), batch_id=number)

    return rows.writeStream.foreachBatch(write), None


def _target(
    given: argparse.Namespace, rows: DataFrame, folders: tuple[str, ...]
) -> tables.TableTarget:
    keys: tuple[str, ...] = ()
    if given.merge_key is not None:
        keys = tuple(name.strip() for name in given.merge_key.split(","))
    known = {name.lower() for name in rows.columns}
    missing = [name for name in keys if name.lower() not in known]
    if missing:
        raise OptionError(f"--merge-key names {missing[0]!r}; there are {', '.join(rows.columns)}")
    return tables.TableTarget(
        given.table,
        given.format,
        mode="merge" if keys else "append",
        keys=keys,
        partition_by=folders,
        evolve_schema=given.evolve_schema,
    )


def preview(
    given: argparse.Namespace, spark: SparkSession, source: TopicSource, shape: RowLayout
) -> None:
    """Show what would be done."""
    how = "append" if given.merge_key is None else f"merge by {given.merge_key}"
    plan = {
        "read": f"stream {given.stream}, topic {given.topic}",
        "write": f"{given.format} table {given.table}, {how}",
        "dead letters": DeadLetterWriter.of(given) or "none",
        "run": "once, what is there" if given.once else f"every {given.every}, until stopped",
    }
    preview_plan(source, plan)
    preview_rows("rows", shape.rows(source.sample(spark, FIRST_ROWS)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_command(parser(), work, arguments, check=check, settings=settings)


if __name__ == "__main__":
    sys.exit(main())

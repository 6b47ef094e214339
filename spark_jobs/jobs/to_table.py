"""``iggy-spark-to-table``: a topic becomes rows of a table: Delta, Iceberg, or one of Spark's own.

With ``--merge-key`` the newest message of each key is the row that stays.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from spark_jobs.errors import OptionError
from spark_jobs.jobs.command import (
    add_dead_letter_options,
    add_json_options,
    add_run_options,
    add_spark_options,
    make_parser,
    run_command,
)
from spark_jobs.jobs.presets import (
    check_preset,
    folders_of,
    letters_of,
    row_steps,
    run_options,
    run_preset,
    topic_of,
)
from spark_jobs.jobs.terminal import StopSignal, print_status
from spark_jobs.jobs.topic_source import add_source_options
from spark_jobs.pipeline.specification import PipelineSpec
from spark_jobs.pipeline.table_sink import TableSink
from spark_jobs.tables import FORMATS, OWN_FORMATS
from spark_jobs.tables import settings as settings_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession


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


def pipeline(given: argparse.Namespace) -> PipelineSpec:
    """Make the pipeline of the command line.

    Raises:
        OptionError: options contradict each other.
    """
    letters = letters_of(given)
    if letters.writes and given.json_schema is None:
        raise OptionError("dead letters need --json-schema; without one every message fits")
    keys = () if given.merge_key is None else tuple(map(str.strip, given.merge_key.split(",")))
    sink = TableSink(
        given.table,
        given.format,
        keys=keys,
        partition_by=folders_of(given),
        time_column=given.time_column,
        evolve_schema=given.evolve_schema,
    )
    return PipelineSpec(
        run=run_options(given, "rows", given.checkpoint),
        source=topic_of(given),
        steps=row_steps(given),
        sinks=(sink,),
        dead_letters=letters,
    )


def check(given: argparse.Namespace) -> None:
    """Find mistakes, and ask the server for the topic."""
    check_preset(pipeline(given))


def settings(given: argparse.Namespace) -> Mapping[str, str]:
    """Return what a session needs for the format."""
    return settings_of(given.format)


def work(given: argparse.Namespace, spark: SparkSession, stop: StopSignal) -> None:
    """Write, or show what would be written."""
    read = run_preset(pipeline(given), given, spark, stop)
    if read is not None:
        print_status(f"{read} messages read, {given.format} table {given.table}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_command(parser(), work, arguments, check=check, settings=settings)


if __name__ == "__main__":
    sys.exit(main())

"""``iggy-spark-to-parquet``: a topic becomes Parquet files in folders by date and hour.

Spark's file sink remembers which files belong, so each message is there once, whatever was killed.
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
from spark_jobs.pipeline.file_sink import ParquetSink
from spark_jobs.pipeline.specification import PipelineSpec

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pyspark.sql import SparkSession


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


def pipeline(given: argparse.Namespace) -> PipelineSpec:
    """Make the pipeline of the command line.

    Raises:
        OptionError: options contradict each other.
    """
    letters = letters_of(given)
    if letters.writes and given.json_schema is None:
        raise OptionError("dead letters need --json-schema; without one every message fits")
    checkpoint = given.checkpoint or f"{given.path.rstrip('/')}/_checkpoint"
    return PipelineSpec(
        run=run_options(given, "rows", checkpoint),
        source=topic_of(given),
        steps=row_steps(given),
        sinks=(ParquetSink(given.path, folders_of(given), given.time_column),),
        dead_letters=letters,
    )


def check(given: argparse.Namespace) -> None:
    """Find mistakes, and ask the server for the topic."""
    check_preset(pipeline(given))


def work(given: argparse.Namespace, spark: SparkSession, stop: StopSignal) -> None:
    """Write, or show what would be written."""
    read = run_preset(pipeline(given), given, spark, stop)
    if read is not None:
        print_status(f"{read} messages read, Parquet files in {given.path}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_command(parser(), work, arguments, check=check)


if __name__ == "__main__":
    sys.exit(main())

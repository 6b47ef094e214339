"""``iggy-spark-from-files``: rows of JSON, CSV, Parquet or text files become messages.

The id and the partition of a message depend on the row and its position in its file. So files may
be sent again: a server with deduplication stores each row once.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from spark_jobs.errors import OptionError
from spark_jobs.jobs.command import (
    add_dead_letter_options,
    add_run_options,
    add_spark_options,
    add_topic_options,
    count,
    make_parser,
    run_command,
)
from spark_jobs.jobs.presets import (
    check_preset,
    given_server,
    letters_of,
    run_options,
    run_preset,
)
from spark_jobs.jobs.terminal import StopSignal, print_status
from spark_jobs.pipeline.file_source import FILES_PER_BATCH, FilesSource, split_settings
from spark_jobs.pipeline.specification import PipelineSpec
from spark_jobs.pipeline.topic_sink import LINE, WHOLE_ROW, IggySink

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pyspark.sql import SparkSession


EXAMPLE = """
  iggy-spark-from-files --server iggy://iggy:iggy@127.0.0.1:8090 --stream shop --topic orders \\
      --path incoming/ --format csv --key-column customer --header-columns country,channel \\
      --create-topic 4
"""
FORMATS: Final = ("json", "csv", "parquet", "text")


def parser() -> argparse.ArgumentParser:
    """Make the parser of the command."""
    made = make_parser(
        "iggy-spark-from-files",
        "Send the rows of files to a topic, once or as files arrive in a folder. Lines of JSON and "
        "text files\nare sent as they are; rows of CSV and Parquet files as JSON objects.",
        EXAMPLE,
    )
    made.add_argument("--path", required=True, help="a file or folder; any path or URL of Spark")
    made.add_argument("--format", required=True, choices=FORMATS, help="format of the files")
    made.add_argument(
        "--follow", action="store_true", help="continue with files that arrive in the folder"
    )
    made.add_argument("--checkpoint", help="folder of Spark's offsets, needed with --follow")
    made.add_argument(
        "--max-files",
        type=count,
        default=FILES_PER_BATCH,
        metavar="N",
        help=f"files of one micro-batch at most (default {FILES_PER_BATCH})",
    )
    add_topic_options(made, topic="the topic that is written")
    add_row_options(made)
    add_dead_letter_options(made, otherwise="the first such line ends the job", can_skip=True)
    add_run_options(made)
    add_spark_options(made)
    return made


def add_row_options(made: argparse.ArgumentParser) -> None:
    """Add the options of messages."""
    group = made.add_argument_group("messages")
    group.add_argument(
        "--key-column", metavar="NAME", help="rows with equal keys go to one partition, in order"
    )
    group.add_argument(
        "--header-columns", default="", metavar="NAMES", help="columns that become headers as well"
    )
    group.add_argument(
        "--payload-column", metavar="NAME", help="send this column instead of the whole row"
    )
    group.add_argument(
        "--schema",
        metavar="SCHEMA",
        help="columns of CSV files as 'id BIGINT, item STRING' (default: guessed from the files)",
    )
    group.add_argument("--no-header", action="store_true", help="CSV files have no line of names")
    group.add_argument(
        "--create-topic", type=count, metavar="N", help="create what is missing, with N partitions"
    )


def pipeline(given: argparse.Namespace, checkpoint: str) -> PipelineSpec:
    """Make the pipeline of the command line."""
    has_lines = given.format in ("json", "text")
    headers = (name.strip() for name in given.header_columns.split(","))
    sink = IggySink(
        stream=given.stream,
        topic=given.topic,
        server=given_server(given),
        payload_column=given.payload_column or (LINE if has_lines else WHOLE_ROW),
        key_column=given.key_column,
        header_columns=tuple(filter(None, headers)),
        partitioning="key",
        create_topic=given.create_topic,
        from_lines=has_lines,
    )
    files = FilesSource(
        given.path, given.format, given.schema, not given.no_header, given.max_files
    )
    run = run_options(given, "files", checkpoint)
    return PipelineSpec(
        run=run if given.follow else replace(run, once=True),
        source=files,
        sinks=(sink,),
        dead_letters=letters_of(given),
    )


def check(given: argparse.Namespace) -> None:
    """Validate the options, and connect to the server."""
    if given.follow and given.checkpoint is None:
        raise OptionError("--follow needs --checkpoint FOLDER, where Spark records what is sent")
    if given.format == "text" and (given.header_columns or given.key_column):
        raise OptionError("text files have no columns; leave --key-column and the like out")
    if given.schema is not None and given.format in ("json", "text"):
        raise OptionError("lines are sent as they are; leave --schema out")
    check_preset(pipeline(given, ""))


def work(given: argparse.Namespace, spark: SparkSession, stop: StopSignal) -> None:
    """Send, or show what would be sent."""
    with split_settings(spark):
        if given.checkpoint is not None and given.follow:
            _send(given, spark, stop, given.checkpoint)
            return
        # Without --follow nothing is remembered: the next run sends all files again.
        with TemporaryDirectory(prefix="iggy-files-") as folder:
            _send(given, spark, stop, Path(folder).as_uri())


def _send(
    given: argparse.Namespace, spark: SparkSession, stop: StopSignal, checkpoint: str
) -> None:
    read = run_preset(pipeline(given, checkpoint), given, spark, stop)
    if read is None:
        return
    print_status(f"{read} rows of {given.path} read, topic {given.topic} written")
    if stop.requested and not given.follow:
        print_status("stopped; run it again: a server with deduplication skips what it has")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_command(parser(), work, arguments, check=check)


if __name__ == "__main__":
    sys.exit(main())

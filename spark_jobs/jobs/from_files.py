"""``iggy-spark-from-files``: rows of JSON, CSV, Parquet or text files become messages.

The id and the partition of a message depend on the row and its position in its file. So files may
be sent again: a server with deduplication stores each row once.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.errors import OptionError
from spark_jobs.jobs.command import (
    add_run_options,
    add_spark_options,
    add_topic_options,
    count,
    make_parser,
    run_command,
)
from spark_jobs.jobs.queries import run_batch, run_queries, start_query
from spark_jobs.jobs.rows import read_json_schema
from spark_jobs.jobs.terminal import StopSignal, preview_rows, print_result, print_status
from spark_jobs.jobs.topic_source import server_of
from spark_jobs.options import write_options

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession


EXAMPLE = """
  iggy-spark-from-files --server iggy://iggy:iggy@127.0.0.1:8090 --stream shop --topic orders \\
      --path incoming/ --format csv --key-column customer --header-columns country,channel \\
      --create-topic 4
"""
FORMATS: Final = ("json", "csv", "parquet", "text")
SETTINGS: Final = {
    # Together they make one task of each file, or of each part of this size, whatever else is in
    # the folder. So the position of a row does not depend on other files.
    "spark.sql.files.maxPartitionBytes": "134217728",
    "spark.sql.files.openCostInBytes": "134217728",
}
ROW_MASK: Final = (1 << 33) - 1
"""The part of Spark's increasing ids that counts the rows of a task."""

_FILE, _BLOCK = "_iggy_file", "_iggy_block"


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
    add_topic_options(made, topic="the topic that is written")
    add_row_options(made)
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


def sink_options(given: argparse.Namespace) -> dict[str, str]:
    """Return the options of the sink."""
    options = {"server": server_of(given), "stream": given.stream, "topic": given.topic}
    if given.create_topic is not None:
        options["createTopic"] = str(given.create_topic)
    return {**options, "partitioning": "key"}


def check(given: argparse.Namespace) -> None:
    """Validate the options, and connect to the server."""
    from spark_jobs.topics import connection

    options = write_options(sink_options(given))
    if given.follow and given.checkpoint is None:
        raise OptionError("--follow needs --checkpoint FOLDER, where Spark records what is sent")
    if given.format == "text" and (given.header_columns or given.key_column):
        raise OptionError("text files have no columns; leave --key-column and the like out")
    client = connection(options.server)
    if given.create_topic is None and client.get_topic(given.stream, given.topic) is None:
        raise OptionError(
            f"there is no topic {given.topic!r} in stream {given.stream!r}; create it, or add "
            "--create-topic N"
        )


def read(given: argparse.Namespace, reader: Any, spark: SparkSession) -> DataFrame:
    """Read files with ``spark.read`` or ``spark.readStream``, their places included."""
    if given.format in ("json", "text"):
        rows = reader.format("text").load(given.path)
    else:
        options = {"header": str(not given.no_header).lower()} if given.format == "csv" else {}
        if given.schema is not None:
            schema = read_json_schema(given.schema)
        else:
            schema = spark.read.format(given.format).options(**options).load(given.path).schema
        rows = reader.format(given.format).options(**options).schema(schema).load(given.path)
    place = ("_metadata.file_path", "_metadata.file_block_start")
    placed: DataFrame = rows.selectExpr("*", f"{place[0]} AS {_FILE}", f"{place[1]} AS {_BLOCK}")
    return placed


def messages_of(given: argparse.Namespace, rows: DataFrame) -> DataFrame:
    """Build messages from rows with their positions, which must not have been shuffled."""
    from pyspark.sql import functions as F

    number = F.monotonically_increasing_id().bitwiseAND(F.lit(ROW_MASK))
    columns = [name for name in rows.columns if name not in (_FILE, _BLOCK)]
    payload = _payload(given, columns)
    place = F.concat_ws("\n", F.col(_FILE), F.col(_BLOCK), number.cast("string"))
    # The id includes the content: a replaced file gives other messages.
    digest = F.unhex(F.md5(F.concat(place.cast("binary"), F.lit(b"\n"), payload.cast("binary"))))
    made = rows.select("*", payload.alias("_iggy_payload"), digest.alias("_iggy_id"))
    key = _cell(given, columns, given.key_column) if given.key_column else F.lit(None)
    chosen = [
        F.col("_iggy_payload").alias("payload"),
        F.col("_iggy_id").alias("id"),
        # A row without a key is partitioned by its id, so that sending it again gives the same.
        F.coalesce(key.cast("string").cast("binary"), F.col("_iggy_id")).alias("key"),
    ]
    headers = [name.strip() for name in given.header_columns.split(",") if name.strip()]
    if headers:
        pairs = [(F.lit(name), _cell(given, columns, name).cast("string")) for name in headers]
        chosen.append(F.create_map(*(part for pair in pairs for part in pair)).alias("headers"))
    return made.where("length(_iggy_payload) > 0").select(*chosen)


def _payload(given: argparse.Namespace, columns: Sequence[str]) -> Any:
    from pyspark.sql import functions as F

    if given.payload_column is not None:
        return _cell(given, columns, given.payload_column)
    if given.format == "text":
        return F.col("value")
    if given.format != "json":
        return F.to_json(F.struct(*(F.col(f"`{name}`") for name in columns)))
    is_json = F.expr("trim(value) = '' OR json_array_length(concat('[', value, ']')) = 1")
    problem = F.concat(
        F.col(_FILE),
        F.lit(" has a line that is not JSON: "),
        F.substring("value", 1, 80),
        F.lit("; correct it, or send lines unchanged with --format text"),
    )
    return F.when(is_json, F.trim("value")).otherwise(F.raise_error(problem).cast("string"))


def _cell(given: argparse.Namespace, columns: Sequence[str], name: str) -> Any:
    """Return a column, or a field of a JSON line."""
    from pyspark.sql import functions as F

    if given.format == "json":
        return F.get_json_object("value", f"$.{name}")
    if name not in columns:
        raise OptionError(f"the files have no column {name!r}; there are {', '.join(columns)}")
    return F.col(f"`{name}`")


@contextmanager
def one_task_per_file(spark: SparkSession) -> Iterator[None]:
    """Make Spark split files in the same way whenever they are read."""
    before = {name: spark.conf.get(name) for name in SETTINGS}
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, known in before.items():
            assert known is not None
            spark.conf.set(name, known)


def work(given: argparse.Namespace, spark: SparkSession, stop: StopSignal) -> None:
    """Send, or show what would be sent."""
    options = sink_options(given)
    with one_task_per_file(spark):
        if given.dry_run:
            preview(given, spark)
        elif given.follow:
            _follow(given, spark, stop, options)
        else:
            messages = messages_of(given, read(given, spark.read, spark))
            writer = messages.write.format("iggy").mode("append").options(**options)
            run_batch(spark, stop, writer.save)
            if stop.requested:
                print_status("stopped; run it again: a server with deduplication skips what it has")
            else:
                print_status(f"the rows of {given.path} are in topic {given.topic}")


def _follow(
    given: argparse.Namespace, spark: SparkSession, stop: StopSignal, options: dict[str, str]
) -> None:
    rows = read(given, spark.readStream, spark)

    def send(batch: DataFrame, number: int) -> None:
        # Rows can be numbered in a batch only; foreachBatch gives one, with the tasks of the read.
        messages = messages_of(given, batch)
        messages.write.format("iggy").mode("append").options(**options).save()

    writer = rows.writeStream.foreachBatch(send)
    start = partial(start_query, writer, given, "files", checkpoint=given.checkpoint)
    done = run_queries({"files": start}, stop)
    print_status(f"{done['files']:,} rows sent to topic {given.topic}")


def preview(given: argparse.Namespace, spark: SparkSession) -> None:
    """Show what would be done."""
    print_result("Nothing is written: this is a dry run.\n")
    rows = read(given, spark.read, spark)
    files = rows.select(_FILE).distinct().count()
    run = f"every {given.every}, until stopped" if given.follow else "once"
    print_result(f"read:         {given.format} files in {given.path}: {files} with rows")
    print_result(f"write:        stream {given.stream}, topic {given.topic}\nrun:          {run}")
    messages = messages_of(given, rows).drop("id")
    preview_rows("messages", messages if given.key_column else messages.drop("key"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_command(parser(), work, arguments, check=check)


if __name__ == "__main__":
    sys.exit(main())

"""``iggy-spark-to-table``: a topic becomes rows of a table: Delta, Iceberg, or one of Spark's own.

With ``--merge-key`` the newest message of each key is the row that stays.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from spark_jobs.errors import OptionError
from spark_jobs.jobs.command import add_run_options, add_spark_options, make_parser, run_command
from spark_jobs.jobs.queries import run_queries, start_query
from spark_jobs.jobs.rows import (
    CORRUPT,
    PREFIX,
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

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


EXAMPLE = """
  iggy-spark-to-table --server iggy://iggy:iggy@127.0.0.1:8090 --stream shop --topic orders \\
      --table lake.orders --format delta --packages io.delta:delta-spark_2.13:VERSION \\
      --json-schema 'id BIGINT NOT NULL, item STRING' --merge-key id --checkpoint state/orders
"""


class TableFormat(NamedTuple):
    """A table format that needs a package.

    Attributes:
        needs: a Java class of the package, to detect it.
        package: the Maven package.
        settings: what a session needs for it.
    """

    needs: str
    package: str
    settings: Mapping[str, str]


FORMATS: Final = {
    "delta": TableFormat(
        "io.delta.sql.DeltaSparkSessionExtension",
        "io.delta:delta-spark_2.13",
        {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        },
    ),
    "iceberg": TableFormat(
        "org.apache.iceberg.spark.SparkCatalog",
        "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13",
        {
            "spark.sql.extensions": (
                "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
            )
        },
    ),
}
OWN_FORMATS: Final = ("parquet", "orc", "json", "csv")


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
    if given.merge_key is not None and given.format not in FORMATS:
        raise OptionError(
            f"tables of {given.format} can only be appended to; leave --merge-key out, or choose "
            f"--format {' or '.join(FORMATS)}"
        )
    TopicSource.of(given, SOURCE_COLUMNS).spans()


def settings(given: argparse.Namespace) -> Mapping[str, str]:
    """Return what a session needs for the format."""
    wanted = FORMATS.get(given.format)
    return {} if wanted is None else wanted.settings


def check_format(spark: SparkSession, name: str) -> None:
    """Check that Spark has the package of the format.

    Raises:
        OptionError: it is missing; the message names what to add.
    """
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it has no types

    wanted = FORMATS.get(name)
    if wanted is None:
        return
    jvm = spark._jvm
    assert jvm is not None
    try:
        jvm.org.apache.spark.util.Utils.classForName(wanted.needs, True, False)
    except Py4JJavaError:
        raise OptionError(
            f"Spark {spark.version} has no {name} here; add --packages {wanted.package}:VERSION, "
            f"with the version that is made for it (or its jar with --conf spark.jars=FILE), or "
            "choose --format parquet"
        ) from None


def work(given: argparse.Namespace, spark: SparkSession, stop: StopSignal) -> None:
    """Write, or show what would be written."""
    check_format(spark, given.format)
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
    if given.merge_key is None:
        writer = rows.writeStream.format(given.format).outputMode("append")
        return (writer.partitionBy(*folders) if folders else writer), given.table
    keys = [name.strip() for name in given.merge_key.split(",")]
    missing = [name for name in keys if name not in rows.columns]
    if missing:
        raise OptionError(f"--merge-key names {missing[0]!r}; there are {', '.join(rows.columns)}")

    def merge(batch: DataFrame, number: int) -> None:
        newest_of(batch, keys).createOrReplaceTempView(UPDATES)
        session = batch.sparkSession
        if not session.catalog.tableExists(given.table):
            creator = batch.limit(0).write.format(given.format)
            (creator.partitionBy(*folders) if folders else creator).saveAsTable(given.table)
        session.sql(merge_statement(given.table, batch.columns, keys))

    return rows.writeStream.foreachBatch(merge), None


UPDATES: Final = "iggy_updates"
AGE: Final = ("timestamp", "partition", "offset")
"""The columns that decide which of two messages is newer."""


def newest_of(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Keep the newest row of each key, because a merge accepts only one."""
    from pyspark.sql import functions as F

    groups = [
        F.expr(text).alias(f"_iggy_key_{number}")
        for number, text in enumerate(_key_expressions(rows.columns, keys))
    ]
    age = F.expr(_position(rows.columns, AGE))
    newest = rows.groupBy(*groups).agg(F.max_by(F.struct(*rows.columns), age).alias("newest"))
    return newest.select("newest.*")


def merge_statement(table: str, columns: Sequence[str], keys: Sequence[str]) -> str:
    """Write the statement that replaces older rows with equal keys and adds new ones."""
    return (
        f"MERGE INTO {table} AS target USING {UPDATES} AS source ON {is_same(columns, keys)} "
        f"WHEN MATCHED AND {is_newer(columns)} THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


def is_same(columns: Sequence[str], keys: Sequence[str]) -> str:
    """Write the test whether a row of the source has the key of one of the target."""
    sides = (_key_expressions(columns, keys, side=f"{name}.") for name in ("target", "source"))
    return " AND ".join(f"{stored} <=> {come}" for stored, come in zip(*sides, strict=True))


def is_newer(columns: Sequence[str]) -> str:
    """Write the test whether a row of the source is not older than one of the target.

    Partitions are read independently, so what comes later need not be newer.
    """
    return f"{_position(columns, AGE, 'source.')} >= {_position(columns, AGE, 'target.')}"


def _key_expressions(columns: Sequence[str], keys: Sequence[str], side: str = "") -> list[str]:
    """Return the key expressions of a row; an invalid payload is identified by its position."""
    identity = [f"{side}`{key}`" for key in keys]
    if CORRUPT in columns:
        place = _position(columns, ("topic", "partition", "offset"), side)
        identity.append(f"CASE WHEN {side}`{CORRUPT}` IS NOT NULL THEN {place} END")
    return identity


def _position(columns: Sequence[str], names: Sequence[str], side: str = "") -> str:
    """Return a struct expression of columns of the message, such as its position."""
    prefix = PREFIX if f"{PREFIX}offset" in columns else ""
    return f"struct({', '.join(f'{side}`{prefix}{name}`' for name in names)})"


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

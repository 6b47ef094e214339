"""The sink that is a table: of Delta, of Iceberg, or one that Spark itself keeps in files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from spark_jobs.errors import OptionError
from spark_jobs.pipeline.connectors import BatchContext, public_columns
from spark_jobs.pipeline.file_sink import with_time, write_files
from spark_jobs.pipeline.sql_steps import CORRUPT
from spark_jobs.pipeline.topic_sources import IggySource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

PREFIX: Final = IggySource.prefix


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


@dataclass(frozen=True)
class TableSink:
    """A table.

    Attributes:
        table: its name; it is created if missing.
        format: ``delta``, ``iceberg``, or a format of Spark itself.
        keys: replace rows with the same values in these columns instead of appending.
        partition_by: columns by which it is divided; ``date`` and ``hour`` are made of the time.
        time_column: where date and hour come from.
    """

    table: str
    format: Literal["delta", "iceberg", "parquet", "orc", "json", "csv"]
    keys: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    time_column: str = "timestamp"

    needs_origin = False

    @property
    def guarantee(self) -> str:
        """Say what a repeated micro-batch does."""
        return "each row once"

    def check(self) -> None:
        """Refuse a merge into files."""
        if self.keys and self.format in OWN_FORMATS:
            raise OptionError(
                f"tables of {self.format} can only be appended to; leave --merge-key out, or "
                f"choose --format {' or '.join(FORMATS)}"
            )

    def prepare(self, spark: SparkSession) -> None:
        """Check that Spark has the package of the format."""
        check_format(spark, self.format)

    def write(self, rows: DataFrame, context: BatchContext) -> None:
        """Write the rows of a micro-batch."""
        timed = with_time(public_columns(rows), self.partition_by, self.time_column, context.prefix)
        self._create(timed)
        if self.keys:
            self._merge(timed)
        elif self.format in OWN_FORMATS:
            self._append_files(timed, context)
        else:
            timed.writeTo(self.table).append()

    def _create(self, rows: DataFrame) -> None:
        if rows.sparkSession.catalog.tableExists(self.table):
            return
        creator = rows.limit(0).write.format(self.format)
        (creator.partitionBy(*self.partition_by) if self.partition_by else creator).saveAsTable(
            self.table
        )

    def _append_files(self, rows: DataFrame, context: BatchContext) -> None:
        """Put files where the table has its own, and have Spark look for them."""
        spark = rows.sparkSession
        described = spark.sql(f"DESCRIBE TABLE EXTENDED {self.table}").collect()
        (place,) = (row["data_type"] for row in described if row["col_name"] == "Location")
        write_files(rows, place, context, partition_by=self.partition_by, file_format=self.format)
        if self.partition_by:
            spark.catalog.recoverPartitions(self.table)
        spark.catalog.refreshTable(self.table)

    def _merge(self, rows: DataFrame) -> None:
        missing = [name for name in self.keys if name not in rows.columns]
        if missing:
            raise OptionError(
                f"--merge-key names {missing[0]!r}; there are {', '.join(rows.columns)}"
            )
        newest_of(rows, self.keys).createOrReplaceTempView(UPDATES)
        rows.sparkSession.sql(merge_statement(self.table, rows.columns, self.keys))

    def describe(self) -> str:
        """Say in words what is written."""
        how = f"merge by {', '.join(self.keys)}" if self.keys else "append"
        return f"{self.format} table {self.table}, {how}"


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

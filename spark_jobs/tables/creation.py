"""Finds the table of a target, or makes one with the columns of the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spark_jobs.errors import OptionError
from spark_jobs.tables.schema import is_void, quote, type_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from spark_jobs.tables.target import TableTarget


def open_or_create(batch: DataFrame, table: TableTarget) -> StructType:
    """Return the columns of the table, which is made of those of the rows if it is missing.

    Raises:
        OptionError: there is a table of another format.
    """
    spark = batch.sparkSession
    stored = _columns(spark, table)
    if stored is None:
        if not (table.format == "delta" and table.name and _register(spark, table)):
            spark.sql(_creation(batch, table))
        stored = spark.table(table.identifier).schema
    if table.name:
        _check_provider(spark, table)
    return stored


_NOT_FOUND: Final = frozenset(
    {
        "DELTA_MISSING_DELTA_TABLE",
        "DELTA_PATH_DOES_NOT_EXIST",
        "DELTA_TABLE_NOT_FOUND",
        "PATH_NOT_FOUND",
        "TABLE_OR_VIEW_NOT_FOUND",
    }
)


def _columns(spark: SparkSession, table: TableTarget) -> StructType | None:
    """Return the columns of the table; None if there is none."""
    from pyspark.errors import AnalysisException

    try:
        if table.format == "iceberg":
            # Its catalogs keep what they know of a table for a while.
            spark.sql(f"REFRESH TABLE {table.identifier}")
        return spark.table(table.identifier).schema
    except AnalysisException as error:
        if error.getCondition() in _NOT_FOUND:
            return None
        raise


def _register(spark: SparkSession, table: TableTarget) -> bool:
    """Tell a catalog of a table of Delta whose files are there already.

    The catalog of a Spark without Hive is gone with the session, and the files are not.
    """
    from pyspark.errors import AnalysisException

    place = table.path or _default_location(spark, table.name)
    if place is None:
        return False
    try:
        # Spark reads nothing yet, and finds out whether it could.
        if not spark.read.format("delta").load(place).columns:
            return False
    except AnalysisException as error:
        if error.getCondition() in _NOT_FOUND:
            return False
        raise
    spark.sql(f"CREATE TABLE IF NOT EXISTS {table.name} USING delta LOCATION {_literal(place)}")
    return True


def _default_location(spark: SparkSession, name: str) -> str | None:
    """Return where the catalog of a session without Hive has a table; None for other catalogs."""
    if spark.conf.get("spark.sql.catalogImplementation") != "in-memory":
        return None
    *spaces, last = name.replace("`", "").split(".")
    if spaces[:1] == ["spark_catalog"]:
        del spaces[0]
    if len(spaces) > 1:
        return None
    space = spaces[0] if spaces else spark.catalog.currentDatabase()
    described = spark.sql(f"DESCRIBE NAMESPACE {quote(space)}").where("info_name = 'Location'")
    found = [row["info_value"] for row in described.collect()]
    return f"{found[0]}/{last.lower()}" if found else None


def _check_provider(spark: SparkSession, table: TableTarget) -> None:
    described = spark.sql(f"DESCRIBE TABLE EXTENDED {table.name}").where("col_name = 'Provider'")
    found = [row["data_type"].lower() for row in described.collect()]
    if found and found[-1] != table.format:
        raise OptionError(
            f"{table.name} is a table of {found[-1]}, and not of {table.format}; name another "
            "table, or its format"
        )


def _creation(batch: DataFrame, table: TableTarget) -> str:
    kept = [field for field in batch.schema.fields if not is_void(field.dataType)]
    columns = ", ".join(f"{quote(field.name)} {type_text(field.dataType)}" for field in kept)
    parts = [f"CREATE TABLE IF NOT EXISTS {table.identifier} ({columns}) USING {table.format}"]
    if table.partition_by:
        parts.append(f"PARTITIONED BY ({', '.join(map(quote, table.partition_by))})")
    if table.path is not None and table.name:
        parts.append(f"LOCATION {_literal(table.path)}")
    return " ".join(parts)


def _literal(text: str) -> str:
    """Write a text as SQL does."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"

"""Writes micro-batches to a table of Delta or Iceberg, each of them once.

A commit carries the name of its writer and the number of the micro-batch, so that a replay finds
them and changes nothing. Delta keeps them as a transaction of the table, Iceberg in the summary of
the snapshot: rows and marker are one commit.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from spark_jobs.errors import OptionError, StaleBatchError
from spark_jobs.tables.creation import open_or_create
from spark_jobs.tables.markers import MARKERS
from spark_jobs.tables.merge import merge_statement, newest_of
from spark_jobs.tables.schema import SchemaRules, align, plan_changes, quote
from spark_jobs.tables.versions import explain_incompatible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from spark_jobs.tables.markers import Marker
    from spark_jobs.tables.target import TableTarget


def query_id(batch: DataFrame) -> str:
    """Return the id of the query whose ``foreachBatch`` is running: the name of its checkpoint.

    Raises:
        RuntimeError: none is running.
    """
    found = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    if found is None:
        raise RuntimeError("no streaming query is running here; call it within foreachBatch")
    return str(found)


def write_batch(batch: DataFrame, table: TableTarget, *, writer: str, batch_id: int) -> None:
    """Write a micro-batch; a replay of the last one changes nothing.

    Args:
        batch: the rows.
        table: where they go; the table is created if it is missing.
        writer: who writes. It must be another one when a checkpoint starts anew, because numbers
            of micro-batches then do as well; ``query_id`` is such a name.
        batch_id: the number of the micro-batch, which only grows.

    Raises:
        OptionError: Spark lacks the package of the format, or has one that does not work with it.
        SchemaError: the table cannot take the rows; the message says what to do.
        StaleBatchError: the writer has written a later micro-batch.
    """
    try:
        _write(batch, table, writer, batch_id)
    except Exception as error:
        explained = explain_incompatible(error, batch.sparkSession.version, table.format)
        if explained is None:
            raise
        raise OptionError(explained) from error


def _write(batch: DataFrame, table: TableTarget, writer: str, batch_id: int) -> None:
    spark = batch.sparkSession
    stored = open_or_create(batch, table)
    marker = MARKERS[table.format](writer, batch_id)
    last = marker.last_batch(spark, table.identifier)
    if last is not None and last >= batch_id:
        if last == batch_id:
            return
        raise StaleBatchError(
            f"table {table.identifier} holds micro-batch {last} of {writer}, and now comes "
            f"{batch_id}: its checkpoint was deleted or restored; give the new checkpoint another "
            "writer, and remove from the table what it will read again"
        )
    rules = _rules(spark, table)
    changes = plan_changes(stored, batch.schema, rules)
    for change in changes:
        spark.sql(change.statement(table.identifier))
    if changes:
        stored = spark.table(table.identifier).schema
    rows = _aligned(batch, stored, rules)
    if table.mode == "merge":
        _merge(rows, table, stored, rules, marker)
        return
    appender = rows.writeTo(table.identifier)
    for name, value in marker.options().items():
        appender = appender.option(name, value)
    appender.append()


def _rules(spark: SparkSession, table: TableTarget) -> SchemaRules:
    name = table.identifier
    widens = True
    if table.format == "delta":
        found = spark.sql(f"SHOW TBLPROPERTIES {name}").where("key = 'delta.enableTypeWidening'")
        widens = [row["value"] for row in found.collect()] == ["true"]
    return SchemaRules(
        table=name,
        evolve=table.evolve_schema,
        widens=widens,
        widening_advice=(
            f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"
        ),
        is_case_sensitive=_is_case_sensitive(spark),
    )


def _is_case_sensitive(spark: SparkSession) -> bool:
    return spark.conf.get("spark.sql.caseSensitive") == "true"


def _aligned(batch: DataFrame, stored: StructType, rules: SchemaRules) -> DataFrame:
    """Give the rows the names and types of the table; columns that they lack stay away."""
    from pyspark.sql import functions as F

    known = {rules.same(field.name): field for field in batch.schema.fields}
    columns = []
    for field in stored.fields:
        given = known.get(rules.same(field.name))
        if given is not None:
            made = align(F.col(quote(given.name)), given.dataType, field.dataType, rules)
            columns.append(made.alias(field.name))
    return batch.select(*columns)


# Merging.

_SETTINGS_LOCK: Final = threading.Lock()
"""A merge has no options of its own: they are settings of the session meanwhile."""


def _merge(
    rows: DataFrame,
    table: TableTarget,
    stored: StructType,
    rules: SchemaRules,
    marker: Marker,
) -> None:
    spark = rows.sparkSession
    names = {rules.same(name): name for name in rows.columns}
    missing = [key for key in table.keys if rules.same(key) not in names]
    if missing:
        raise OptionError(
            f"the merge key {missing[0]!r} is no column; there are {', '.join(rows.columns)}"
        )
    keys = [names[rules.same(key)] for key in table.keys]
    view = f"iggy_rows_{uuid4().hex}"
    newest_of(rows, keys).createOrReplaceTempView(view)
    statement = merge_statement(table.identifier, view, rows.columns, keys, stored.fieldNames())
    try:
        with _session_settings(spark, marker.settings()):
            spark.sql(statement)
    finally:
        spark.catalog.dropTempView(view)


@contextmanager
def _session_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    with _SETTINGS_LOCK:
        try:
            for name, value in settings.items():
                spark.conf.set(name, value)
            yield
        finally:
            for name in settings:
                spark.conf.unset(name)

"""Writes micro-batches to a table of a database, each of them once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spark_jobs.errors import OptionError, SchemaError
from spark_jobs.jdbc.place import (
    STAGED_ROW,
    WRITER_MAX,
    TablePlace,
    column_named,
    open_connection,
    write_rows,
)
from spark_jobs.jdbc.statements import RowMove, quote_name
from spark_jobs.tables.merge import AGE, newest_of, position_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from spark_jobs.jdbc.target import JdbcTarget

STAGINGS_MAX: Final = 3
"""How often the staging table is filled, until no task of Spark was repeated after its commit."""


def write_batch(batch: DataFrame, target: JdbcTarget, *, writer: str, batch_id: int) -> None:
    """Write a micro-batch; a replay of the last one changes nothing.

    Args:
        batch: the rows.
        target: where they go; the table is created if it is missing.
        writer: who writes; another one for each checkpoint, as for ``tables.write_batch``.
        batch_id: the number of the micro-batch, which only grows.

    Raises:
        OptionError: Spark lacks the driver, or the database cannot be reached.
        SchemaError: the table cannot take the rows; the message says what to do.
        StaleBatchError: the writer has written a later micro-batch.
    """
    if max(len(writer), len(target.table)) > WRITER_MAX:
        raise OptionError(f"the writer or the table has more than {WRITER_MAX} characters")
    with open_connection(batch.sparkSession, target) as connection:
        place = TablePlace(connection, target, writer)
        if place.is_written(batch_id):
            return
        place.create(batch)
        columns, rows = _aligned(batch, target, place.columns())
        keys = [column_named(columns, key, target) for key in target.keys]
        age = position_columns(columns, AGE) or ()
        statement = RowMove(target.table, place.staging, columns, keys, age)
        staged = newest_of(rows, keys) if keys and age else rows
        for _ in range(STAGINGS_MAX):
            place.make_staging(statement)
            _fill(staged, target, place.staging)
            if not place.repeated_rows():
                break
        place.move(statement, batch_id)


def _aligned(
    batch: DataFrame, target: JdbcTarget, stored: Sequence[str]
) -> tuple[list[str], DataFrame]:
    """Give the columns of the rows the names that they have in the table."""
    from pyspark.sql import functions as F

    known = {name.lower(): name for name in stored}
    missing = [name for name in batch.columns if name.lower() not in known]
    if missing:
        raise SchemaError(
            f"table {target.table} has no column {missing[0]}; ALTER TABLE {target.table} ADD "
            f"COLUMN {quote_name(missing[0])}, or leave it out of the rows"
        )
    names = [known[name.lower()] for name in batch.columns]
    if len(set(names)) < len(names):
        raise SchemaError(f"the rows for {target.table} have two columns of one name; rename one")
    pairs = zip(batch.columns, names, strict=True)
    aliases = [F.col(f"`{given.replace('`', '``')}`").alias(name) for given, name in pairs]
    return names, batch.select(*aliases)


def _fill(rows: DataFrame, target: JdbcTarget, staging: str) -> None:
    """Fill the staging table; each row gets a number, which tells whether a task came twice."""
    from pyspark.sql import functions as F

    numbered = rows.withColumn(STAGED_ROW, F.monotonically_increasing_id())
    write_rows(numbered, target, staging, tasks_max=target.database.connections)

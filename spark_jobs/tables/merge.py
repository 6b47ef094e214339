"""Replaces rows of a table by newer rows with the same key.

Messages carry their position: topic, partition, offset, and the server's time. With it the newest
row of a key wins, within a micro-batch and against the table. Rows without a position replace what
is there, and must not have a key twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spark_jobs.errors import SchemaError
from spark_jobs.tables.schema import quote

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyspark.sql import DataFrame

CORRUPT: Final = "_corrupt_record"
"""The column of a payload that could not be read; the name is Spark's default."""

PREFIX: Final = "iggy_"
"""Before the columns of a message where others are the fields of its payload."""

AGE: Final = ("timestamp", "partition", "offset")
"""The columns that decide which of two messages is newer."""

PLACE: Final = ("topic", "partition", "offset")
"""The columns that tell two messages apart."""


def newest_of(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Keep the newest row of each key, because a merge accepts only one.

    A payload that could not be read, and a row whose keys are all null, is told apart from others
    by its position.

    Raises:
        SchemaError: the rows have no position, and a key is missing or there twice.
    """
    from pyspark.sql import functions as F

    age = position(rows.columns, AGE)
    if age is None:
        _check_single(rows, keys)
        return rows
    groups = [
        F.expr(text).alias(f"_iggy_key_{number}")
        for number, text in enumerate(identity(rows.columns, keys))
    ]
    row = F.struct(*(F.col(quote(name)) for name in rows.columns))
    newest = rows.groupBy(*groups).agg(F.max_by(row, F.expr(age)).alias("newest"))
    return newest.select("newest.*")


def _check_single(rows: DataFrame, keys: Sequence[str]) -> None:
    """Check that a merge without positions has one row for each key."""
    columns = ", ".join(map(quote, keys))
    no_key = " AND ".join(f"{quote(key)} IS NULL" for key in keys)
    counted = rows.groupBy(*map(quote, keys)).count()
    wrong = counted.where(f"count > 1 OR ({no_key})").limit(1).collect()
    if wrong:
        found = "no key" if all(wrong[0][key] is None for key in keys) else "one key"
        raise SchemaError(
            f"{wrong[0]['count']} rows of a micro-batch have {found} in {columns}, and nothing "
            f"says which is the newest; keep the columns {', '.join(AGE)} of the messages, or "
            "leave one row for each key (deduplicate, or filter)"
        )


def merge_statement(
    table: str, rows: str, columns: Sequence[str], keys: Sequence[str], stored: Collection[str]
) -> str:
    """Write the statement that replaces older rows with equal keys and adds new ones.

    Args:
        table: the table, as SQL writes it.
        rows: the view of the new rows.
        columns: their columns, by the names that they have in the table.
        keys: those that make the key.
        stored: the columns of the table.
    """
    newer = is_newer(columns, stored)
    sets = ", ".join(f"target.{quote(name)} = source.{quote(name)}" for name in columns)
    names = ", ".join(map(quote, columns))
    values = ", ".join(f"source.{quote(name)}" for name in columns)
    return (
        f"MERGE INTO {table} AS target USING {rows} AS source "
        f"ON {is_same(columns, keys, stored)} "
        f"WHEN MATCHED{'' if newer is None else f' AND {newer}'} THEN UPDATE SET {sets} "
        f"WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({values})"
    )


def is_same(columns: Sequence[str], keys: Sequence[str], stored: Collection[str]) -> str:
    """Write the test whether a row of the source has the key of one of the target."""
    if position(columns, PLACE) is None:
        tests = [f"target.{quote(key)} <=> source.{quote(key)}" for key in keys]
        if CORRUPT in stored:
            tests.append(f"target.{quote(CORRUPT)} IS NULL")
        return " AND ".join(tests)
    sides = (
        identity(names, keys, side) for names, side in ((stored, "target."), (columns, "source."))
    )
    return " AND ".join(f"{there} <=> {come}" for there, come in zip(*sides, strict=True))


def is_newer(columns: Sequence[str], stored: Collection[str]) -> str | None:
    """Write the test whether a row of the source is not older than one of the target.

    Partitions are read independently, so what comes later need not be newer. None if rows have no
    position.
    """
    come, there = position(columns, AGE, "source."), position(stored, AGE, "target.")
    return None if come is None or there is None else f"{come} >= {there}"


def identity(columns: Collection[str], keys: Sequence[str], side: str = "") -> list[str]:
    """Return what tells a row apart: its keys, and its position where those say nothing."""
    parts = [f"{side}{quote(key)}" for key in keys]
    place = position(columns, PLACE, side)
    if place is None:
        return parts
    lacks = " AND ".join(f"{part} IS NULL" for part in parts)
    if CORRUPT in columns:
        lacks = f"({lacks}) OR {side}{quote(CORRUPT)} IS NOT NULL"
    return [*parts, f"CASE WHEN {lacks} THEN {place} END"]


def position(columns: Collection[str], names: Sequence[str], side: str = "") -> str | None:
    """Return a struct expression of columns of the message; None if the rows have not got them."""
    found = position_columns(columns, names)
    if found is None:
        return None
    return f"struct({', '.join(f'{side}{quote(name)}' for name in found)})"


def position_columns(columns: Collection[str], names: Sequence[str]) -> tuple[str, ...] | None:
    """Return the names that columns of the message have in rows; None if some are not there."""
    prefix = PREFIX if f"{PREFIX}offset" in columns else ""
    found = tuple(f"{prefix}{name}" for name in names)
    return found if all(name in columns for name in found) else None

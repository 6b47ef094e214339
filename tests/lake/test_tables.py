"""Micro-batches in tables of Delta and Iceberg: replays, schemas that change, merges."""

from __future__ import annotations

import datetime

import pytest

from spark_jobs import OptionError, SchemaError, StaleBatchError
from spark_jobs.tables import TableTarget, check_format, write_batch

NOON = datetime.datetime(2026, 3, 4, 12, tzinfo=datetime.UTC)
MESSAGES = (
    "id INT, item STRING, day INT, iggy_topic STRING, iggy_partition INT, iggy_offset BIGINT, "
    "iggy_timestamp TIMESTAMP"
)


@pytest.fixture
def messages(spark):
    """Return a function that makes messages of keys, items, days and offsets."""

    def make(*values):
        rows = [(key, item, day, "t", 0, offset, NOON) for key, item, day, offset in values]
        return spark.createDataFrame(rows, MESSAGES)

    return make


def rows_of(spark, name, *columns):
    """Read a table."""
    return sorted(map(tuple, spark.table(name).select(*columns).collect()), key=str)


def test_package_when_it_is_that_of_the_table_in_code_then_it_is_found(spark, table_format):
    check_format(spark, table_format)


def test_append_when_a_batch_is_repeated_then_its_rows_are_there_once(
    spark, messages, name, table_format
):
    target = TableTarget(name, table_format, partition_by=("day",))

    for batch_id, rows in ((0, [(1, "a", 1, 0), (2, "b", 2, 1)]), (1, [(3, "c", None, 2)])):
        for _ in range(2):
            write_batch(messages(*rows), target, writer="w", batch_id=batch_id)
    write_batch(messages((4, "d", 1, 3)), target, writer="other", batch_id=0)
    with pytest.raises(StaleBatchError, match=f"{name} holds micro-batch 1 of w, and now comes 0"):
        write_batch(messages((1, "a", 1, 0)), target, writer="w", batch_id=0)

    assert [row[0] for row in rows_of(spark, name, "id")] == [1, 2, 3, 4]


def test_append_when_the_rows_have_more_then_the_table_takes_it_if_it_may(
    spark, name, table_format
):
    fixed = TableTarget(name, table_format)
    target = TableTarget(name, table_format, evolve_schema=True)
    first = spark.sql("SELECT 1 AS id, named_struct('a', 1) AS part, array(named_struct('a', 1)) l")
    more = spark.sql(
        "SELECT 2 AS ID, named_struct('b', 'x', 'a', 2) AS part, "
        "array(named_struct('a', 2, 'b', 1.5D)) AS l, map('k', named_struct('z', 1)) AS m, "
        "NULL AS nothing, CAST(1 AS SMALLINT) AS small"
    )
    write_batch(first, fixed, writer="w", batch_id=0)

    with pytest.raises(SchemaError, match=r"has no column part\.b; let the table take new columns"):
        write_batch(more, fixed, writer="w", batch_id=1)
    for _ in range(2):
        write_batch(more, target, writer="w", batch_id=1)
    write_batch(spark.sql("SELECT 3 AS id"), target, writer="w", batch_id=2)

    assert rows_of(spark, name, "id", "part.a", "part.b", "l.b", "m.k.z", "small") == [
        (1, 1, None, [None], None, None),
        (2, 2, "x", [1.5], 1, 1),
        (3, None, None, None, None, None),
    ]
    assert "nothing" not in spark.table(name).columns


def test_append_when_a_type_is_wider_then_the_table_is_widened_or_says_how(
    spark, name, table_format
):
    target = TableTarget(name, table_format, evolve_schema=True)
    write_batch(spark.sql("SELECT 1 AS id, 1 AS cups"), target, writer="w", batch_id=0)
    wider = spark.sql("SELECT 2 AS id, 5000000000 AS cups")
    if table_format == "delta":
        with pytest.raises(SchemaError, match=r"'delta\.enableTypeWidening' = 'true'\), or cast"):
            write_batch(wider, target, writer="w", batch_id=1)
        spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")

    write_batch(wider, target, writer="w", batch_id=1)
    with pytest.raises(SchemaError, match=r"cups is BIGINT in table .* STRING in the rows"):
        write_batch(spark.sql("SELECT 'many' AS cups"), target, writer="w", batch_id=2)

    assert rows_of(spark, name, "id", "cups") == [(1, 1), (2, 5_000_000_000)]


def test_merge_when_keys_come_again_then_the_newest_row_stays(spark, messages, name, table_format):
    target = TableTarget(name, table_format, "merge", ("ID",), ("day",), evolve_schema=True)
    first = messages((1, "old", 1, 0), (1, "b", 2, 5), (2, "c", 1, 1), (None, "x", 1, 2))
    second = messages((1, "late", 1, 3), (2, "d", None, 6), (3, "e", 1, 7), (None, "y", 1, 8))

    write_batch(first, target, writer="w", batch_id=0)
    write_batch(second.selectExpr("*", "7 AS more"), target, writer="w", batch_id=1)

    assert rows_of(spark, name, "id", "item", "day", "more") == [
        (1, "b", 2, None),
        (2, "d", None, 7),
        (3, "e", 1, 7),
        (None, "x", 1, None),
        (None, "y", 1, 7),
    ]
    assert not [row["key"] for row in spark.sql("SET").collect() if "txn" in row["key"]]


def test_merge_when_a_batch_is_repeated_then_later_changes_of_others_stay(
    spark, messages, name, table_format
):
    target = TableTarget(name, table_format, "merge", ("id",))
    write_batch(messages((1, "a", 1, 0)), target, writer="w", batch_id=0)
    spark.sql(f"UPDATE {name} SET item = 'by hand'")

    write_batch(messages((1, "a", 1, 0)), target, writer="w", batch_id=0)

    assert rows_of(spark, name, "item") == [("by hand",)]


def test_merge_when_rows_have_fewer_columns_then_those_of_the_table_stay(
    spark, messages, name, table_format
):
    target = TableTarget(name, table_format, "merge", ("id",))
    write_batch(messages((1, "a", 1, 0)), target, writer="w", batch_id=0)

    write_batch(spark.sql("SELECT 1 AS id, 'b' AS item"), target, writer="w", batch_id=1)
    with pytest.raises(SchemaError, match="2 rows of a micro-batch have one key"):
        write_batch(spark.sql("SELECT explode(array(1, 1)) AS id"), target, writer="w", batch_id=2)
    with pytest.raises(OptionError, match="merge key 'id' is no column; there are item"):
        write_batch(spark.sql("SELECT 'b' AS item"), target, writer="w", batch_id=2)

    assert rows_of(spark, name, "id", "item", "day") == [(1, "b", 1)]


def test_batch_when_the_table_is_of_another_format_then_says_which(spark, table_format):
    spark.sql("CREATE TABLE IF NOT EXISTS default.files (id INT) USING parquet")

    with pytest.raises(OptionError, match="files is a table of parquet, and not of"):
        write_batch(
            spark.range(1), TableTarget("default.files", table_format), writer="w", batch_id=0
        )


def test_delta_when_the_table_has_a_path_and_no_name_then_it_is_found_again(spark, tmp_path):
    if "delta" not in str(spark.conf.get("spark.sql.extensions")):
        pytest.skip("Delta has no package for this Spark")
    target = TableTarget("", "delta", path=f"{tmp_path}/it's here")

    for batch_id in (0, 0, 1):
        write_batch(spark.range(2), target, writer="w", batch_id=batch_id)

    assert spark.table(target.identifier).count() == 4

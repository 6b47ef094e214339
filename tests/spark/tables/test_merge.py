"""Which rows of a micro-batch stay, and which rows of a table they replace."""

from __future__ import annotations

import datetime

import pytest
from pyspark.sql import functions as F

from spark_jobs import SchemaError
from spark_jobs.tables.merge import is_newer, is_same, merge_statement, newest_of

NOON = datetime.datetime(2026, 3, 4, 12, tzinfo=datetime.UTC)
LATER = NOON + datetime.timedelta(seconds=1)
STORED = (
    "id INT, item STRING, iggy_topic STRING, iggy_partition INT, iggy_offset BIGINT, "
    "iggy_timestamp TIMESTAMP, _corrupt_record BINARY"
)


def test_newest_when_a_key_comes_twice_then_the_newest_row_is_taken(spark):
    rows = spark.createDataFrame(
        [(1, "old", 0, 1, NOON), (1, "new", 0, 2, NOON), (2, "only", 0, 3, NOON)],
        "id INT, item STRING, partition INT, offset BIGINT, timestamp TIMESTAMP",
    )

    newest = newest_of(rows, ["id"])

    assert newest.columns == rows.columns
    assert sorted((row["id"], row["item"]) for row in newest.collect()) == [(1, "new"), (2, "only")]


def test_newest_when_payloads_do_not_fit_then_none_takes_the_place_of_another(spark):
    bad = [(None, None, "t", 0, at, NOON, b"bad %d" % at) for at in range(3)]
    rows = spark.createDataFrame([*bad, (1, "tea", "t", 0, 3, NOON, None)], STORED)

    newest = newest_of(rows, ["id"])

    assert sorted(row["iggy_offset"] for row in newest.collect()) == [0, 1, 2, 3]


def test_newest_when_rows_have_no_key_then_each_is_kept(spark):
    rows = spark.createDataFrame(
        [(None, "a", "t", 0, 1, NOON, None), (None, "b", "t", 0, 2, NOON, None)], STORED
    )

    for columns in (rows.columns, rows.columns[:-1]):
        newest = newest_of(rows.select(*columns), ["id"])

        assert sorted(row["item"] for row in newest.collect()) == ["a", "b"]


def test_newest_when_a_part_of_the_key_is_null_then_it_is_a_key_like_others(spark):
    rows = spark.createDataFrame(
        [(1, None, "t", 0, 1, NOON, None), (1, None, "t", 0, 2, NOON, None)], STORED
    )

    newest = newest_of(rows, ["id", "item"])

    assert [row["iggy_offset"] for row in newest.collect()] == [2]


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([(1, "a"), (1, "b")], r"2 rows .* have one key in `id`, .* keep the columns timestamp"),
        ([(None, "a")], r"1 rows .* have no key in `id`"),
    ],
)
def test_newest_when_nothing_says_which_row_is_newer_then_it_is_refused(spark, values, found):
    rows = spark.createDataFrame(values, "id INT, item STRING")

    with pytest.raises(SchemaError, match=found):
        newest_of(rows, ["id"])


def test_newest_when_rows_without_a_position_have_keys_of_their_own_then_all_stay(spark):
    rows = spark.createDataFrame([(1, "a"), (2, "b")], "id INT, item STRING")

    assert newest_of(rows, ["id"]).count() == 2


def test_merge_when_the_table_has_a_newer_row_then_that_stays(spark):
    there = [
        (1, "newer", "t", 1, 5, LATER, None),
        (2, "older", "t", 0, 5, NOON, None),
        (3, "again", "t", 0, 6, NOON, None),
        (None, None, "t", 0, 7, NOON, b"bad"),
    ]
    come = [
        (1, "late", "t", 0, 8, NOON, None),
        (2, "newer", "t", 1, 9, LATER, None),
        (3, "again", "t", 0, 6, NOON, None),
        (None, None, "t", 0, 7, NOON, b"bad"),
        (None, None, "t", 0, 9, NOON, b"worse"),
    ]
    target = spark.createDataFrame(there, STORED).alias("target")
    source = spark.createDataFrame(come, STORED).alias("source")

    met = target.join(source, F.expr(is_same(source.columns, ["id"], target.columns)))
    newer = is_newer(source.columns, target.columns)
    assert newer is not None
    replaced = met.where(newer).select("source.id", "source.item")

    assert met.count() == 4
    assert sorted(replaced.collect(), key=str) == [(2, "newer"), (3, "again"), (None, None)]


def test_merge_when_rows_lack_columns_then_those_of_the_table_stay_as_they_are(spark):
    statement = merge_statement("t", "rows", ["id", "item"], ["id"], ["id", "item", "more"])

    assert "UPDATE SET target.`id` = source.`id`, target.`item` = source.`item` WHEN" in statement
    assert "more" not in statement


def test_merge_when_written_as_a_statement_then_spark_can_read_it(spark):
    for columns in (["id", "odd `name", "iggy_offset", "_corrupt_record"], ["id", "odd `name"]):
        statement = merge_statement("lake.o", "r", columns, ["id", "odd `name"], [*columns, "x"])

        plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(statement)

        assert "MergeIntoTable" in plan.toString()

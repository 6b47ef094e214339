"""Micro-batches in PostgreSQL: its types, its keys, and two drivers at a time."""

from __future__ import annotations

import datetime
import threading

import pytest

from spark_jobs import SchemaError, StaleBatchError, jdbc
from spark_jobs.jdbc.place import open_connection

NOON = datetime.datetime(2026, 3, 4, 12, tzinfo=datetime.UTC)
MESSAGES = (
    "id BIGINT, item STRING, iggy_topic STRING, iggy_partition INT, iggy_offset BIGINT, "
    "iggy_timestamp TIMESTAMP"
)


@pytest.fixture
def messages(spark):
    """Return a function that makes messages of keys, items and offsets."""

    def make(*values):
        rows = [(key, item, "t", 0, offset, NOON) for key, item, offset in values]
        return spark.createDataFrame(rows, MESSAGES)

    return make


@pytest.fixture
def stored(spark, postgres):
    """Return a function that reads columns of a table."""

    def read(table, *columns):
        options = {"url": postgres, "dbtable": table, "driver": "org.postgresql.Driver"}
        rows = spark.read.format("jdbc").options(**options).load()
        return sorted(map(tuple, rows.select(*columns).collect()))

    return read


def execute(spark, target, sql):
    """Run a statement in the database."""
    with open_connection(spark, target) as connection:
        connection.createStatement().executeUpdate(sql)


def test_append_when_a_batch_is_repeated_then_its_rows_are_there_once(messages, stored, postgres):
    target = jdbc.JdbcTarget(postgres, "appended")

    for batch_id, rows in ((0, [(1, "a", 0), (1, "b", 1)]), (1, [(2, "c", 2)])):
        for _ in range(2):
            jdbc.write_batch(messages(*rows), target, writer="w", batch_id=batch_id)
    with pytest.raises(StaleBatchError, match="holds micro-batch 1 of w, and now comes 0"):
        jdbc.write_batch(messages((1, "a", 0)), target, writer="w", batch_id=0)

    assert stored("appended", "id", "item") == [(1, "a"), (1, "b"), (2, "c")]
    assert [name for (name,) in stored("pg_tables", "tablename") if "staging" in name] == []


def test_upsert_when_keys_come_again_then_the_newest_row_stays(messages, stored, postgres):
    target = jdbc.JdbcTarget(postgres, "public.latest", "upsert", ("ID",))
    first = messages((1, "old", 0), (1, "b", 5), (2, "c", 1))
    second = messages((1, "late", 3), (2, "d", 6), (3, "e", 7))

    jdbc.write_batch(first, target, writer="w", batch_id=0)
    jdbc.write_batch(second, target, writer="w", batch_id=1)
    jdbc.write_batch(messages((3, "replay", 9)), target, writer="w", batch_id=1)
    with pytest.raises(SchemaError, match=r"1 rows of the micro-batch .* lack a key \(id\)"):
        jdbc.write_batch(messages((None, "x", 9)), target, writer="w", batch_id=2)

    assert stored("latest", "id", "item") == [(1, "b"), (2, "d"), (3, "e")]


def test_upsert_when_the_table_has_no_unique_key_then_says_how_to_add_it(spark, messages, postgres):
    target = jdbc.JdbcTarget(postgres, "loose", "upsert", ("id",))
    execute(spark, target, "CREATE TABLE loose (id BIGINT, item TEXT)")

    with pytest.raises(SchemaError, match=r'CREATE UNIQUE INDEX ON loose \("id"\)'):
        jdbc.write_batch(messages((1, "a", 0)).select("id", "item"), target, writer="w", batch_id=0)


def test_batch_when_columns_have_types_that_spark_lacks_then_texts_become_them(
    spark, stored, postgres
):
    target = jdbc.JdbcTarget(postgres, "typed", "upsert", ("id",))
    execute(
        spark,
        target,
        "CREATE TABLE typed (id UUID PRIMARY KEY, about JSONB, address INET, "
        "seen TIMESTAMPTZ DEFAULT now())",
    )
    rows = spark.sql(
        "SELECT '6f6f0f6a-0000-4000-8000-000000000001' AS id, '{\"cups\": 2}' AS about, "
        "'127.0.0.1' AS address"
    )

    for batch_id in range(2):
        jdbc.write_batch(rows, target, writer="w", batch_id=batch_id)

    (row,) = stored("(SELECT about->>'cups' AS cups, seen IS NULL AS lost FROM typed) t", "*")
    assert row == ("2", False)


def test_append_when_two_drivers_write_one_batch_then_it_is_there_once(messages, stored, postgres):
    """A driver that was given up may still write while its successor repeats the micro-batch."""
    target = jdbc.JdbcTarget(postgres, "contended")
    jdbc.write_batch(messages(), target, writer="w", batch_id=0)
    rows = messages(*((number, "a", number) for number in range(50)))
    failed = []

    def write():
        try:
            jdbc.write_batch(rows, target, writer="w", batch_id=1)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    jdbc.write_batch(rows, target, writer="w", batch_id=1)

    assert [row[0] for row in stored("contended", "id")] == list(range(50))
    assert len(failed) < len(threads)

"""Micro-batches in a real database: Derby, which comes with Spark and needs no server."""

from __future__ import annotations

import datetime

import pytest

from spark_jobs import OptionError, SchemaError, StaleBatchError, jdbc
from spark_jobs.jdbc import batches
from spark_jobs.jdbc.place import open_connection
from spark_jobs.jdbc.statements import RowMove

NOON = datetime.datetime(2026, 3, 4, 12, tzinfo=datetime.UTC)
MESSAGES = (
    "id BIGINT, item STRING, iggy_topic STRING, iggy_partition INT, iggy_offset BIGINT, "
    "iggy_timestamp TIMESTAMP"
)


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """Return the URL of a database for all tests of this file; each has tables of its own."""
    return f"jdbc:derby:memory:{tmp_path_factory.mktemp('derby').name};create=true"


@pytest.fixture
def messages(spark):
    """Return a function that makes messages of keys, items and offsets."""

    def make(*values):
        rows = [(key, item, "t", 0, offset, NOON) for key, item, offset in values]
        return spark.createDataFrame(rows, MESSAGES)

    return make


@pytest.fixture
def stored(spark, url):
    """Return a function that reads columns of a table."""

    def read(table, *columns):
        options = {"url": url, "dbtable": table, "driver": "org.apache.derby.jdbc.EmbeddedDriver"}
        rows = spark.read.format("jdbc").options(**options).load()
        return sorted(map(tuple, rows.select(*columns).collect()))

    return read


def execute(spark, target, sql):
    """Run a statement in the database."""
    with open_connection(spark, target) as connection:
        connection.createStatement().executeUpdate(sql)


def test_append_when_a_batch_is_repeated_then_its_rows_are_there_once(messages, stored, url):
    target = jdbc.JdbcTarget(url, "appended")

    for batch_id, rows in ((0, [(1, "a", 0), (1, "b", 1)]), (1, [(2, "c", 2)])):
        for _ in range(2):
            jdbc.write_batch(messages(*rows), target, writer="w", batch_id=batch_id)
    jdbc.write_batch(messages((9, "z", 9)), target, writer="other", batch_id=0)

    assert stored("appended", "id", "item") == [(1, "a"), (1, "b"), (2, "c"), (9, "z")]
    assert ("w", "appended", 1) in stored("iggy_batches", "*")


def test_append_when_a_batch_is_empty_then_its_number_is_stored(messages, stored, url):
    target = jdbc.JdbcTarget(url, "nothing")

    jdbc.write_batch(messages(), target, writer="w", batch_id=7)

    assert stored("nothing", "id") == []
    assert ("w", "nothing", 7) in stored("iggy_batches", "*")


def test_append_when_the_checkpoint_is_another_one_then_it_is_refused(messages, stored, url):
    target = jdbc.JdbcTarget(url, "restored")
    jdbc.write_batch(messages((1, "a", 0)), target, writer="w", batch_id=3)

    with pytest.raises(StaleBatchError, match="holds micro-batch 3 of w, and now comes 0"):
        jdbc.write_batch(messages((2, "b", 1)), target, writer="w", batch_id=0)

    assert stored("restored", "id") == [(1,)]


def test_append_when_a_batch_fails_before_its_commit_then_nothing_of_it_is_there(
    messages, stored, url, monkeypatch
):
    target = jdbc.JdbcTarget(url, "broken")
    with monkeypatch.context() as patched:
        patched.setattr(RowMove, "insert", lambda _: "INSERT INTO no_table VALUES 1")
        with pytest.raises(Exception, match="NO_TABLE"):
            jdbc.write_batch(messages((1, "a", 0)), target, writer="w", batch_id=0)
    assert stored("broken", "id") == []

    jdbc.write_batch(messages((1, "a", 0)), target, writer="w", batch_id=0)

    assert stored("broken", "id") == [(1,)]


@pytest.mark.parametrize("repeats", [1, batches.STAGINGS_MAX])
def test_append_when_spark_repeats_tasks_that_have_written_then_no_row_is_there_twice(
    messages, stored, url, monkeypatch, repeats
):
    target = jdbc.JdbcTarget(url, f"repeated_{repeats}")
    fill, calls = batches._fill, []

    def fill_again(rows, target, staging):
        """Fill the table as a task does that comes once more after its commit."""
        calls.append(staging)
        for _ in range(2 if len(calls) <= repeats else 1):
            fill(rows, target, staging)

    monkeypatch.setattr(batches, "_fill", fill_again)
    rows = messages((1, "a", 0), (2, "b", 1))
    if repeats == batches.STAGINGS_MAX:
        with pytest.raises(RuntimeError, match="2 rows are twice"):
            jdbc.write_batch(rows, target, writer="w", batch_id=0)
        assert stored(target.table, "id") == []
    else:
        jdbc.write_batch(rows, target, writer="w", batch_id=0)
        assert stored(target.table, "id") == [(1,), (2,)]


def test_upsert_when_keys_come_again_then_the_newest_row_stays(messages, stored, url):
    target = jdbc.JdbcTarget(url, "latest", "upsert", ("ID",))

    jdbc.write_batch(
        messages((1, "old", 0), (1, "b", 5), (2, "c", 1)), target, writer="w", batch_id=0
    )
    jdbc.write_batch(
        messages((1, "late", 3), (2, "d", 6), (3, "e", 7)), target, writer="w", batch_id=1
    )
    jdbc.write_batch(messages((3, "replay", 9)), target, writer="w", batch_id=1)

    assert stored("latest", "id", "item") == [(1, "b"), (2, "d"), (3, "e")]


def test_upsert_when_the_key_is_a_text_then_the_table_is_made_for_it(spark, stored, url):
    target = jdbc.JdbcTarget(url, "texts", "upsert", ("item",))
    rows = spark.createDataFrame([("a", 1), ("b", 2)], "item STRING, cups INT")

    jdbc.write_batch(rows, target, writer="w", batch_id=0)
    jdbc.write_batch(
        rows.where("cups = 1").withColumn("cups", rows.cups + 9), target, writer="w", batch_id=1
    )

    assert stored("texts", "item", "cups") == [("a", 10), ("b", 2)]


def test_upsert_when_the_rows_are_nothing_but_keys_then_each_is_there_once(spark, stored, url):
    target = jdbc.JdbcTarget(url, "keys", "upsert", ("id",))

    for batch_id in range(2):
        jdbc.write_batch(spark.range(3), target, writer="w", batch_id=batch_id)

    assert stored("keys", "id") == [(0,), (1,), (2,)]


def test_upsert_when_nothing_says_which_row_is_newest_then_it_is_refused(spark, stored, url):
    target = jdbc.JdbcTarget(url, "twice", "upsert", ("id",))
    rows = spark.createDataFrame([(1, "a"), (1, "b"), (2, "c")], "id INT, item STRING")

    with pytest.raises(SchemaError, match=r"1 keys \(id\) are in the micro-batch for twice more"):
        jdbc.write_batch(rows, target, writer="w", batch_id=0)

    assert stored("twice", "id") == []


def test_upsert_when_a_row_has_no_key_then_it_is_refused(spark, stored, url):
    target = jdbc.JdbcTarget(url, "keyless", "upsert", ("id",))
    execute(spark, target, 'CREATE TABLE keyless ("id" INT, "item" VARCHAR(9))')
    rows = spark.createDataFrame([(None, "a"), (2, "c")], "id INT, item STRING")

    with pytest.raises(SchemaError, match=r"1 rows of the micro-batch for keyless lack a key \(id"):
        jdbc.write_batch(rows, target, writer="w", batch_id=0)

    assert stored("keyless", "id") == []


def test_batch_when_the_table_is_there_with_other_columns_then_names_match_in_any_case(
    spark, stored, url
):
    target = jdbc.JdbcTarget(url, "THERE")
    execute(spark, target, "CREATE TABLE there (item VARCHAR(9), id BIGINT, more INT DEFAULT 7)")

    jdbc.write_batch(spark.sql("SELECT 1 AS id, 'a' AS Item"), target, writer="w", batch_id=0)
    with pytest.raises(SchemaError, match="table THERE has no column cups; ALTER TABLE THERE ADD"):
        jdbc.write_batch(spark.sql("SELECT 1 AS cups"), target, writer="w", batch_id=1)
    with pytest.raises(SchemaError, match="two columns of one name"):
        jdbc.write_batch(spark.sql("SELECT 1 AS id, 2 AS ID"), target, writer="w", batch_id=1)

    assert stored("THERE", "ID", "ITEM", "MORE") == [(1, "a", 7)]


@pytest.mark.parametrize(
    ("wrong", "answer"),
    [
        ({"mode": "merge"}, "choose append or upsert"),
        ({"mode": "upsert"}, "upsert needs keys"),
        ({"keys": ("id",)}, "append takes none"),
        ({"table": ""}, "has no name"),
        ({"url": "jdbc:oracle:thin:scott/tiger@h"}, "begins with jdbc:postgresql:, jdbc:h2:"),
    ],
)
def test_target_when_it_cannot_be_written_to_then_the_answer_helps(wrong, answer):
    with pytest.raises(OptionError, match=answer):
        jdbc.JdbcTarget(**{"url": "jdbc:h2:mem:x", "table": "t", **wrong})


def test_target_when_shown_then_no_secret_is(spark):
    url = "jdbc:postgresql://joe:hush@db.example:5432/shop?password=hush&ssl=true"
    target = jdbc.JdbcTarget(url, "orders", "upsert", ("id",), user="joe", password="hush")

    assert repr(target) == (
        "JdbcTarget(jdbc:postgresql://db.example:5432/shop, table orders, upsert by id)"
    )
    with pytest.raises(OptionError, match=r"add --packages org\.postgresql:postgresql:\d") as said:
        jdbc.write_batch(spark.range(1), target, writer="w", batch_id=0)
    assert "hush" not in str(said.value)


def test_batch_when_the_key_is_no_column_then_the_columns_are_listed(spark, url):
    target = jdbc.JdbcTarget(url, "wrong_key", "upsert", ("ident",))

    with pytest.raises(OptionError, match="'ident' of wrong_key is no column; there are id"):
        jdbc.write_batch(spark.range(1), target, writer="w", batch_id=0)

"""The command to-table with Delta and Iceberg, and tables, files and checkpoints in S3."""

from __future__ import annotations

import pytest

from iggy_sdk import ConsumerIdentity
from iggy_sdk.blocking import IggyClient
from spark_jobs.jobs import to_parquet, to_table
from tests.lake.conftest import formats
from tests.lake.servers import objects_of

SCHEMA = "id BIGINT NOT NULL, item STRING"


def test_to_table_when_the_topic_grows_then_rows_are_appended(
    spark, orders, run, name, table_format, tmp_path
):
    given = ("--table", name, "--format", table_format, "--checkpoint", tmp_path)

    stream = orders('{"id": 1, "item": "tea"}', "nope")
    assert run(to_table, stream, *given, "--json-schema", SCHEMA) == 0
    assert run(to_table, stream, *given, "--json-schema", SCHEMA) == 0
    stored = spark.table(name)

    assert [tuple(row) for row in stored.select("id", "item").orderBy("id").collect()] == [
        (None, None),
        (1, "tea"),
    ]
    assert stored.where("_corrupt_record IS NOT NULL").count() == 1
    assert "date" in stored.columns


def test_to_table_when_the_schema_of_the_rows_grows_then_the_table_does_if_it_may(
    spark, orders, send_more, run, name, table_format, tmp_path, capsys
):
    given = ("--table", name, "--format", table_format, "--checkpoint", tmp_path)
    stream = orders('{"id": 1, "item": "tea"}')
    assert run(to_table, stream, *given, "--json-schema", SCHEMA) == 0
    send_more(stream, '{"id": 2, "item": "coffee", "cups": 3}')

    more = ("--json-schema", f"{SCHEMA}, cups INT")
    assert run(to_table, stream, *given, *more) == 1
    assert "has no column cups; let the table take new columns (evolve" in capsys.readouterr().err
    assert run(to_table, stream, *given, *more, "--evolve-schema") == 0

    rows = spark.table(name).select("id", "cups").orderBy("id").collect()
    assert [tuple(row) for row in rows] == [(1, None), (2, 3)]


def test_to_table_when_it_merges_then_the_newest_message_of_each_key_stays(
    spark, orders, send_more, run, name, table_format, tmp_path
):
    place = ("--table", name, "--format", table_format, "--checkpoint", tmp_path)
    given = (*place, "--json-schema", SCHEMA, "--merge-key", "id")
    stream = orders('{"id": 1, "item": "a"}', '{"id": 1, "item": "b"}', '{"id": 2, "item": "c"}')
    assert run(to_table, stream, *given) == 0
    send_more(stream, '{"id": 2, "item": "d"}')
    assert run(to_table, stream, *given) == 0

    rows = spark.table(name).select("id", "item").orderBy("id").collect()
    assert [tuple(row) for row in rows] == [(1, "b"), (2, "d")]


def test_to_parquet_when_files_and_checkpoint_are_in_s3_then_it_goes_on_there(
    spark, orders, send_more, run, s3
):
    given = ("--path", "s3a://lake/files", "--json-schema", SCHEMA)
    stream = orders('{"id": 1, "item": "tea"}')

    assert run(to_parquet, stream, *given) == 0
    send_more(stream, '{"id": 2, "item": "coffee"}')
    assert run(to_parquet, stream, *given) == 0

    rows = spark.read.parquet("s3a://lake/files").select("id").collect()
    assert sorted(row["id"] for row in rows) == [1, 2]
    assert "files/_checkpoint/rows/commits/1" in objects_of(s3, "files/_checkpoint")


def test_tables_when_they_and_their_checkpoints_are_in_s3_then_each_row_is_there_once(
    spark, orders, send_more, run, table_format, s3
):
    name = "far.db.orders"
    if table_format == "delta":
        name = "default.far_orders"
        spark.sql(f"CREATE TABLE {name} (id BIGINT) USING delta LOCATION 's3a://lake/delta'")
    place = ("--table", name, "--format", table_format, "--json-schema", SCHEMA)
    given = (*place, "--checkpoint", f"s3a://lake/state-{table_format}", "--evolve-schema")
    stream = orders('{"id": 1, "item": "tea"}')

    assert run(to_table, stream, *given) == 0
    send_more(stream, '{"id": 2, "item": "coffee"}')
    assert run(to_table, stream, *given) == 0

    rows = spark.table(name).select("id", "item").orderBy("id").collect()
    assert [tuple(row) for row in rows] == [(1, "tea"), (2, "coffee")]


@pytest.mark.skipif("iceberg" not in formats(), reason="Iceberg has no package for this Spark")
def test_page_when_a_topic_goes_to_iceberg_then_what_does_not_fit_goes_to_dead_letters(
    spark, spark_server, orders, run, tmp_path
):
    """The example of the page: a topic becomes a table of Iceberg, with dead letters."""
    stream = orders('{"id": 1, "item": "tea"}', "nope", '{"id": 2}', '{"item": "no id"}')
    given = ("--table", "lake.shop.orders", "--format", "iceberg", "--checkpoint", tmp_path)

    code = run(
        to_table,
        stream,
        *(*given, "--json-schema", SCHEMA, "--merge-key", "id"),
        *("--dead-letter-topic", "orders-dead"),
    )

    assert code == 0
    rows = spark.table("lake.shop.orders").select("id", "item").orderBy("id").collect()
    assert [tuple(row) for row in rows] == [(1, "tea"), (2, None)]
    reader = ConsumerIdentity.single("reader")
    with IggyClient(spark_server.url) as client:
        letters = list(
            client.poll_messages(stream, "orders-dead", consumer=reader, partition_id=0, count=10)
        )
    assert [letter.payload for letter in letters] == [b"nope", b'{"item": "no id"}']
    assert letters[1].headers["error"] == "field id is missing"

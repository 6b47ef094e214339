"""Batch queries in a real Spark session: reads, writes, and the answers to mistakes."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.functions import col

from iggy_sdk import HeaderValue, Message, PollingStrategy
from spark_jobs import register
from spark_jobs.topics import POLL_CONSUMER


@pytest.fixture
def load(spark, options):
    """Return a function that reads the test's topic."""

    def read(schema=None, **more):
        reader = spark.read.format("iggy").options(**options, **more)
        return (reader if schema is None else reader.schema(schema)).load()

    return read


@pytest.fixture
def save(options):
    """Return a function that writes to a topic of the test's stream."""

    def write(df, topic="out", mode="append", **more):
        df.write.format("iggy").mode(mode).options(**{**options, "topic": topic, **more}).save()

    return write


def stored(client, stream, topic="out"):
    """Read what a topic holds, partition by partition, without Spark."""
    found = {}
    for partition in client.get_topic(stream, topic, required=True).partitions:
        found[partition.id] = list(
            client.poll_messages(
                stream,
                topic,
                consumer=POLL_CONSUMER,
                partition_id=partition.id,
                strategy=PollingStrategy.first(),
                count=10_000,
            )
        )
    return found


def payloads(client, stream, topic="out"):
    return sorted(one.payload for some in stored(client, stream, topic).values() for one in some)


def test_read_when_filtered_then_the_rows_are_right_however_often_it_is_asked(topic, load):
    topic()

    df = load()

    assert (df.count(), df.rdd.getNumPartitions()) == (60, 3)
    assert df.where("partition = 2 AND offset >= 25").count() == 5
    assert df.where("offset = 5").count() == 3
    assert df.count() == 60


def test_pushdown_when_switched_on_then_spark_runs_only_the_tasks_that_matter(
    spark, topic, options
):
    topic()
    other = register(spark.newSession(), pushdown=True)

    def load():
        return other.read.format("iggy").options(**options).load()

    df = load().where("partition = 2 AND offset >= 25 AND payload IS NOT NULL")
    assert (df.count(), df.rdd.getNumPartitions()) == (5, 1)
    assert "Filter [" not in plan_of(df)
    moment = load().agg({"timestamp": "max"}).first()[0]
    later = load().where(col("timestamp") > moment)
    assert later.count() == 0
    assert "timestamp" in plan_of(later).partition("Filter")[2]
    assert load().where(col("timestamp") <= moment).count() == 60


def plan_of(df):
    return df._jdf.queryExecution().executedPlan().toString()


def test_read_when_a_schema_is_given_then_spark_gets_its_columns_only(topic, load):
    topic()

    df = load("offset BIGINT, payload STRING", minPartitions=8)

    assert df.where("offset = 29").first().asDict() == {"offset": 29, "payload": "2-29"}
    assert df.rdd.getNumPartitions() == 8


def test_read_when_headers_are_included_then_they_can_be_asked_by_name(client, stream, load):
    client.create_topic(stream, "t", 1)
    client.send_messages(stream, "t", [Message(b"x", headers={"who": "ann"})], partition_id=0)

    row = load(includeHeaders="true").selectExpr("CAST(headers['who'] AS STRING) AS who").first()

    assert row["who"] == "ann"


def test_session_when_the_source_is_not_registered_then_finds_it_by_itself(spark, topic, options):
    topic()
    other = spark.newSession()

    assert other.read.format("iggy").options(**options).load().count() == 60


def test_plan_when_explained_then_the_secret_is_not_shown(load, topic, capsys, options):
    topic(counts=(1,))
    df = load()
    secret = options["server"].partition("@")[0]

    for mode in ("extended", "formatted", "cost", "codegen"):
        df.explain(mode)

    shown = capsys.readouterr().out
    assert "BatchScan iggy" in shown
    assert secret not in shown


def test_mistake_when_made_then_spark_shows_the_answer_without_the_secret(spark, topic, options):
    topic(counts=(1,))
    with pytest.raises(PySparkException, match="did you mean startingOffsets") as unknown:
        spark.read.format("iggy").options(**options, startngOffsets="x").load()
    with pytest.raises(PySparkException, match="has no topic 'nowhere'") as missing:
        spark.read.format("iggy").options(**{**options, "topic": "nowhere"}).load().count()
    there = {**options, "server": "iggy://ann:s3cret@127.0.0.1:1?reconnection_retries=0"}
    with pytest.raises(PySparkException, match=r"cannot connect to 127\.0\.0\.1:1") as refused:
        spark.read.format("iggy").options(**there).load().count()

    assert not any("s3cret" in str(one.value) for one in (unknown, missing, refused))


def test_write_when_rows_may_go_anywhere_then_all_partitions_get_some(spark, client, stream, save):
    df = spark.range(100, numPartitions=2).selectExpr("CAST(id AS STRING) AS payload")

    save(df, createTopic=4, sendBatch=10)
    save(df, "turns", createTopic=4, sendBatch=10, idempotent="false")

    for name in ("out", "turns"):
        found = payloads(client, stream, name)
        assert found == sorted(str(number).encode() for number in range(100))
    assert all(10 < len(some) < 40 for some in stored(client, stream).values())
    assert [len(some) for some in stored(client, stream, "turns").values()] == [30, 30, 20, 20]


def test_write_when_rows_have_keys_then_go_where_the_producer_would_send_them(
    spark, client, stream, save
):
    df = spark.range(60).selectExpr("CAST(id AS STRING) AS payload", "CONCAT('k', id % 5) AS key")
    save(df, createTopic=3)
    with client.producer(stream, "out") as producer:
        producer.send_many([b"own"] * 5, key="k3")

    homes: dict = {}
    for number, some in stored(client, stream).items():
        for one in some:
            homes.setdefault(one.key, set()).add(number)

    assert sorted(homes) == ["k0", "k1", "k2", "k3", "k4"]
    assert all(len(numbers) == 1 for numbers in homes.values())


def test_write_when_some_keys_are_missing_then_those_rows_go_anywhere(spark, client, stream, save):
    df = spark.range(20).selectExpr(
        "CAST(id AS STRING) AS payload", "IF(id < 10, NULL, 'k') AS key"
    )

    save(df, createTopic=2)

    assert len(payloads(client, stream)) == 20


def test_write_when_rows_name_partitions_then_go_there(spark, client, stream, save):
    df = spark.range(30, numPartitions=1).selectExpr(
        "CAST(id AS STRING) AS payload", "CAST(id % 3 AS INT) AS partition"
    )

    save(df, createTopic=3, partitioning="partition", sendBatch=4)

    found = stored(client, stream)
    assert {number: [int(one.payload) for one in some] for number, some in found.items()} == {
        number: list(range(number, 30, 3)) for number in range(3)
    }


def test_write_when_one_partition_is_named_then_all_rows_go_there(spark, client, stream, save):
    df = spark.range(30, numPartitions=2).selectExpr("CAST(id AS STRING) AS payload")

    save(df, createTopic=3, partitioning="1")

    assert [len(some) for some in stored(client, stream).values()] == [0, 30, 0]


def test_copy_when_a_topic_is_written_as_it_was_read_then_keeps_ids_times_and_headers(
    client, stream, load, save
):
    client.create_topic(stream, "t", 1)
    sent = [Message(b"a", headers={"n": HeaderValue.uint16(7)}), Message(b"b")]
    client.send_messages(stream, "t", sent, partition_id=0)
    kinds = "headers ARRAY<STRUCT<key: STRING, kind: STRING, value: BINARY>>"

    df = load(f"offset BIGINT, id BINARY, origin_timestamp TIMESTAMP, payload BINARY, {kinds}")
    save(df, createTopic=1)

    (before,), (after,) = (stored(client, stream, name).values() for name in ("t", "out"))
    assert [(one.payload, one.id, one.origin_timestamp, one.typed_headers) for one in after] == [
        (one.payload, one.id, one.origin_timestamp, one.typed_headers) for one in before
    ]


def test_write_when_a_named_writer_runs_again_then_nothing_is_stored_twice(
    spark, client, stream, save
):
    df = spark.range(50, numPartitions=2).selectExpr("CAST(id AS STRING) AS payload")

    for _ in range(2):
        save(df, createTopic=2, writerId="nightly-2026-01-31")
    assert len(payloads(client, stream)) == 50

    save(df, writerId="nightly-2026-02-01")
    save(df)
    assert len(payloads(client, stream)) == 150


def test_write_when_not_idempotent_then_ids_are_the_servers(spark, client, stream, save):
    df = spark.range(10, numPartitions=1).selectExpr("CAST(id AS STRING) AS payload")

    save(df, createTopic=1, idempotent="false")
    save(df, idempotent="false")

    assert len({one.id for one in stored(client, stream)[0]}) == 20


def test_write_when_a_row_cannot_be_sent_then_spark_shows_the_answer(spark, save):
    df = spark.range(5).selectExpr("IF(id = 3, NULL, CAST(id AS STRING)) AS payload")

    with pytest.raises(PySparkException, match=r"has no payload\. Filter such rows"):
        save(df, createTopic=1)
    with pytest.raises(PySparkException, match="a topic can only be appended to"):
        save(df, createTopic=1, mode="overwrite")


def sql_options(options, **more):
    return ", ".join(f"`{name}` = '{value}'" for name, value in {**options, **more}.items())


def test_view_when_made_in_sql_then_rows_are_inserted_and_selected(spark, topic, options):
    topic(counts=(0,))
    given = sql_options(options).replace(" =", "")

    spark.sql(f"CREATE TEMPORARY VIEW lines (payload STRING) USING iggy OPTIONS ({given})")
    spark.sql("INSERT INTO lines VALUES ('one')")
    spark.sql("INSERT INTO lines SELECT concat('t', 'wo')")

    assert sorted(row["payload"] for row in spark.sql("SELECT * FROM lines").collect()) == [
        "one",
        "two",
    ]
    with pytest.raises(PySparkException, match="a topic can only be appended to"):
        spark.sql("INSERT OVERWRITE lines VALUES ('three')")
    spark.sql("DROP VIEW lines")


@pytest.mark.parametrize("columns", ["", "(payload BINARY)"])
def test_table_when_made_in_sql_then_each_statement_brings_the_options(
    spark, topic, options, columns
):
    topic(counts=(3,))
    given = sql_options(options).replace(" =", "")

    spark.sql(f"CREATE TABLE orders {columns} USING iggy OPTIONS ({given})")
    try:
        found = spark.sql(f"SELECT payload FROM orders WITH ({sql_options(options)})")
        assert found.count() == 3
        with pytest.raises(PySparkException, match=r"option topic is missing; add .* in SQL WITH"):
            spark.sql("SELECT * FROM orders").collect()
        if columns:
            spark.sql(f"INSERT INTO orders WITH ({sql_options(options)}) VALUES (X'00')")
            again = spark.sql(f"SELECT payload FROM orders WITH ({sql_options(options)})")
            assert again.count() == 4
    finally:
        spark.sql("DROP TABLE orders")


def test_write_when_rows_name_their_topics_then_each_goes_to_its_own(
    spark, client, stream, options
):
    df = spark.range(40, numPartitions=2).selectExpr(
        "CAST(id AS STRING) AS payload", "CONCAT('t', id % 3) AS topic"
    )
    given = {name: value for name, value in options.items() if name != "topic"}

    df.write.format("iggy").mode("append").options(**given, createTopic=2).save()

    for number in range(3):
        expected = sorted(str(one).encode() for one in range(40) if one % 3 == number)
        assert payloads(client, stream, f"t{number}") == expected
        assert client.get_topic(stream, f"t{number}", required=True).partitions_count == 2


def test_write_when_the_option_names_a_topic_then_the_column_is_ignored(
    spark, client, stream, save
):
    df = spark.range(4).selectExpr("CAST(id AS STRING) AS payload", "'other' AS topic")

    save(df, createTopic=1)

    assert len(payloads(client, stream)) == 4
    assert client.get_topic(stream, "other") is None


def test_write_when_a_row_names_no_topic_then_spark_shows_the_answer(spark, options):
    df = spark.range(4).selectExpr("'x' AS payload", "CAST(NULL AS STRING) AS topic")
    given = {name: value for name, value in options.items() if name != "topic"}

    with pytest.raises(PySparkException, match="has no topic; give every row one"):
        df.write.format("iggy").mode("append").options(**given).save()
    with pytest.raises(PySparkException, match="option topic is missing; add"):
        df.drop("topic").write.format("iggy").mode("append").options(**given).save()


def test_register_when_a_session_hides_more_already_then_keeps_that(spark):
    session = spark.newSession()
    session.conf.set("spark.sql.redaction.string.regex", "theirs")

    register(register(session))

    options = session.conf.get("spark.sql.redaction.options.regex")
    text = session.conf.get("spark.sql.redaction.string.regex")
    assert options.startswith("(?:(?i)url)|")
    assert text.startswith("(?:theirs)|")
    assert options.count("iggy") == text.count("iggy") == 1


def test_query_when_the_login_is_set_after_java_started_then_register_hands_it_over(
    spark, spark_server, topic, options, monkeypatch
):
    topic(counts=(3,))
    monkeypatch.setenv("IGGY_CONNECTION_STRING", options.pop("server"))
    session = register(spark.newSession())

    assert session.read.format("iggy").options(**options).load().count() == 3
    with pytest.raises(PySparkException, match=r"iggy\.x: no provider is set"):
        session.read.format("iggy").options(**options, credentials="provider:iggy.x").load().count()

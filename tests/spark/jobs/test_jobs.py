"""The ready jobs from end to end: a real server, a real session, and what is there afterwards."""

from __future__ import annotations

import os
import signal

import pytest

from iggy_sdk import ConsumerIdentity, PollingStrategy
from spark_jobs.jobs import from_files, metrics, terminal, to_parquet, to_table, topic_to_topic
from spark_jobs.pipeline.dead_letters import truncate_header
from tests.spark.jobs.conftest import BAD

SCHEMA = "id BIGINT NOT NULL, item STRING, cups INT"


def ids_in(spark, path):
    rows = spark.read.parquet(str(path)).select("id").collect()
    return sorted(row["id"] for row in rows)


def messages_of(client, stream, topic):
    """Read a whole topic, partition by partition."""
    partitions = client.get_topic(stream, topic, required=True).partitions
    return [
        list(
            client.poll_messages(
                stream,
                topic,
                consumer=ConsumerIdentity.single("test"),
                partition_id=partition.id,
                strategy=PollingStrategy.first(),
                count=1000,
            )
        )
        for partition in partitions
    ]


def test_to_parquet_when_some_messages_do_not_fit_then_they_are_dead_letters(
    spark, client, stream, orders, run, tmp_path
):
    orders(bad=True)
    given = ("--path", tmp_path / "out", "--json-schema", SCHEMA, "--once")

    assert run(to_parquet, *given, "--dead-letter-topic", "dead") == 0

    assert ids_in(spark, tmp_path / "out") == list(range(40))
    folders = sorted(path.name[:5] for path in (tmp_path / "out").glob("date=*/*"))
    assert set(folders) == {"hour="}
    (letters,) = messages_of(client, stream, "dead")
    assert sorted(letter.payload for letter in letters) == sorted(BAD * 2)
    assert {letter.headers["error"] for letter in letters} == {
        "the payload is not one JSON value",
        "it does not fit the schema",
    }
    assert {letter.headers["source_offset"] for letter in letters} == {"20", "21"}


def test_reason_when_too_long_for_a_header_then_is_shortened(spark):
    texts = [
        "short",
        "x" * 255,
        "x" * 256,
        "\u00e9" * 127,
        "\u00e9" * 128,
        "\U0001f642" * 300,
        None,
    ]
    rows = spark.createDataFrame([(text,) for text in texts], "error string")

    fitted = [row[0] for row in rows.select(truncate_header(rows["error"])).collect()]

    assert fitted == [
        "short",
        "x" * 255,
        "x" * 252 + "...",
        "\u00e9" * 127,
        "\u00e9" * 63 + "...",
        "\U0001f642" * 63 + "...",
        None,
    ]


def test_to_parquet_when_a_signal_comes_then_exits_with_0_and_goes_on_next_time(
    spark, client, stream, orders, run, tmp_path, monkeypatch, capsys
):
    orders()
    given = ("--path", tmp_path / "out", "--payload-as", "text", "--consumer", "lake")

    def say(text):
        """Send the signal when the first micro-batch is reported."""
        terminal.print_status(text)
        if "rows: batch 0" in text:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patched:
        patched.setattr("spark_jobs.jobs.queries.print_status", say)
        assert run(to_parquet, *given, "--every", "1s") == 0
    assert not spark.streams.active
    orders(40, 5)
    assert run(to_parquet, *given, "--once", "--max-offsets", "6") == 0

    rows = spark.read.parquet(str(tmp_path / "out"))
    assert rows.count() == rows.select("partition", "offset").distinct().count() == 50
    stored = client.get_consumer_offset(
        stream, "orders", consumer=ConsumerIdentity.single("lake"), partition_id=0, required=True
    )
    assert stored.stored_offset == 24
    said = capsys.readouterr().err
    assert "rows: batch 0, 40 rows" in said
    assert "SIGTERM: stopping" in said
    assert "rows: batch 1, 6 rows" in said
    assert "4 behind" in said
    assert "10 messages read, Parquet files in" in said


def test_to_parquet_when_dry_then_shows_all_and_writes_nothing(
    client, stream, orders, run, tmp_path, capsys
):
    orders(bad=True)
    given = ("--path", tmp_path / "out", "--dry-run", "--consumer", "lake")

    assert run(to_parquet, *given) == 0
    assert run(to_parquet, *given, "--json-schema", SCHEMA, "--dead-letter-topic", "dead") == 0

    shown = capsys.readouterr().out
    lines = [line.split() for line in shown.splitlines()]
    assert ["orders", "0", "0", "22", "22"] in lines
    assert "--json-schema 'cups bigint, id bigint, item string'" in shown
    assert "dead letters: topic dead" in shown
    assert ["id", "bigint"] in lines
    assert not (tmp_path / "out").exists()
    assert client.get_topic(stream, "dead") is None
    consumer = ConsumerIdentity.single("lake")
    assert client.get_consumer_offset(stream, "orders", consumer=consumer, partition_id=0) is None


def test_to_table_when_the_format_is_sparks_own_then_the_table_is_there(
    spark, orders, run, tmp_path
):
    orders(bad=True)
    given = ("--format", "parquet", "--json-schema", SCHEMA, "--once")

    code = run(to_table, *given, "--table", "orders_table", "--checkpoint", tmp_path)

    assert code == 0
    rows = spark.table("orders_table")
    assert rows.where("_corrupt_record IS NULL").count() == 40
    assert rows.count() == 44


def test_to_table_when_spark_lacks_the_format_then_says_what_to_add(orders, run, tmp_path, capsys):
    orders()
    given = ("--table", "x", "--checkpoint", tmp_path)

    assert run(to_table, *given) == 2
    assert run(to_table, *given, "--format", "iceberg") == 2
    assert run(to_table, *given, "--format", "orc", "--merge-key", "id") == 2

    said = capsys.readouterr().err
    assert "io.delta:delta-spark_4.0_2.13:" in said
    assert "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:" in said
    assert "can only be appended to" in said


def test_from_files_when_files_are_sent_again_then_each_row_is_stored_once(
    client, stream, orders, run, tmp_path, capsys
):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"id": 1, "who": "ada"}\n\n{"id": 2}\n')
    files = ("--path", tmp_path / "in", "--format", "json", "--create-topic", 2)
    given = (*files, "--key-column", "who", "--header-columns", "id")
    follow = ("--follow", "--once", "--checkpoint", tmp_path / "state")

    assert run(from_files, *given, "--dry-run", topic="new") == 0
    assert client.get_topic(stream, "new") is None
    assert run(from_files, *given, topic="new") == 0
    (tmp_path / "in" / "b.json").write_text('{"id": 3, "who": "ada"}\n')
    assert run(from_files, *given, *follow, topic="new") == 0
    (tmp_path / "in" / "c.json").write_text("nope\n")
    assert run(from_files, *given, topic="new") == 1

    partitions = messages_of(client, stream, "new")
    sent = [message for partition in partitions for message in partition]
    assert sorted(message.payload for message in sent) == [
        b'{"id": 1, "who": "ada"}',
        b'{"id": 2}',
        b'{"id": 3, "who": "ada"}',
    ]
    assert sorted(message.headers["id"] for message in sent) == ["1", "2", "3"]
    (of_ada,) = [one for one in partitions if any(b"ada" in message.payload for message in one)]
    assert sum(b"ada" in message.payload for message in of_ada) == 2
    said = capsys.readouterr().err
    assert "files: batch 0, 4 rows" in said
    assert "in/c.json row 0: the line is not JSON: nope; " in said


def test_topic_to_topic_when_messages_are_changed_then_order_and_misfits_are_kept(
    spark, client, stream, orders, run, tmp_path
):
    orders(bad=True)
    steps = ("--filter", "cups>=3", "--delete", "item", "--add", "from=$offset")
    given = (*steps, "--to-topic", "changed", "--create-topic", 2, "--once")

    code = run(
        topic_to_topic,
        *given,
        *("--checkpoint", tmp_path / "state", "--dead-letter-path", tmp_path / "dead"),
    )

    assert code == 0
    first, second = messages_of(client, stream, "changed")
    assert [message.payload for message in first[:2]] == [
        b'{"id":4,"cups":4,"from":2}',
        b'{"id":8,"cups":3,"from":4}',
    ]
    assert len(first) == len(second) == 8
    dead = spark.read.parquet(str(tmp_path / "dead")).collect()
    assert sorted(bytes(row["payload"]) for row in dead) == [BAD[0]] * 2
    assert {row["error"][:23] for row in dead} == {"the payload is not JSON"}


def test_metrics_when_counted_or_followed_then_table_and_plot_are_the_same(
    client, stream, orders, run, tmp_path, capsys
):
    orders()
    consumer = ConsumerIdentity.single("lake")
    client.store_consumer_offset(stream, "orders", 14, consumer=consumer, partition_id=0)
    given = ("--window", "1h", "--lag-of", "lake")
    follow = ("--follow", "--once", "--checkpoint", tmp_path / "state")

    assert run(metrics, *given, "--output", tmp_path / "a") == 0
    shown = capsys.readouterr().out
    assert run(metrics, *given, *follow, "--output", tmp_path / "b", "--no-plot") == 0

    counted = (tmp_path / "a" / "metrics.csv").read_text().splitlines()
    assert counted == (tmp_path / "b" / "metrics.csv").read_text().splitlines()
    totals = [row.split(",") for row in counted[1:]]
    assert sum(int(row[1]) for row in totals) == 40
    assert sum(int(row[4]) for row in totals) == 5 + 20
    assert shown.splitlines()[0].split() == counted[0].split(",")
    assert "</svg>" in (tmp_path / "a" / "metrics.svg").read_text()
    assert not (tmp_path / "b" / "metrics.svg").exists()


@pytest.mark.parametrize(
    ("job", "given", "code", "answer"),
    [
        (to_parquet, ("--path", "x", "--dead-letter-topic", "d"), 2, "need --json-schema"),
        (to_parquet, ("--path", "x", "--starting-offsets", "soon"), 2, "startingOffsets is 'soon'"),
        (to_parquet, ("--path", "x", "--json-schema", "id BIGNIT("), 2, "cannot be read"),
        (to_parquet, ("--path", "x", "--workers", "2", "--master", "yarn"), 2, "give one"),
        (metrics, ("--follow",), 2, "--follow needs --checkpoint"),
        (metrics, ("--once",), 2, "are for --follow"),
        (from_files, ("--path", "x", "--format", "json", "--follow"), 2, "needs --checkpoint"),
        (from_files, ("--path", "x", "--format", "text", "--key-column", "a"), 2, "no columns"),
        (from_files, ("--path", "no/such/folder", "--format", "csv"), 1, "PATH_NOT_FOUND"),
        (
            topic_to_topic,
            ("--to-topic", "orders", "--checkpoint", "x"),
            2,
            "would be copied to itself",
        ),
        (topic_to_topic, ("--to-topic", "gone", "--checkpoint", "x"), 2, "add --create-topic N"),
        (
            topic_to_topic,
            ("--to-topic", "o", "--checkpoint", "x", "--dead-letter-topic", "orders"),
            2,
            "read its own dead letters",
        ),
        (
            topic_to_topic,
            ("--topic", "x, orders", "--to-topic", "orders", "--checkpoint", "x"),
            2,
            "would be copied to itself",
        ),
        (
            to_parquet,
            (
                *("--topic", '["x", "orders"]', "--path", "x"),
                *("--json-schema", "id INT", "--dead-letter-topic", "orders"),
            ),
            2,
            "read its own dead letters",
        ),
    ],
)
def test_job_when_the_command_line_is_wrong_then_the_answer_helps(
    orders, run, capsys, job, given, code, answer
):
    assert run(job, *given) == code
    said = capsys.readouterr().err
    assert answer in said
    assert "iggy:iggy" not in said


def test_job_when_there_is_no_topic_or_no_server_then_says_so_before_spark_starts(
    orders, run, capsys, stream
):
    assert run(to_parquet, "--path", "x", topic="gone") == 1
    assert "has no topic 'gone'" in capsys.readouterr().err
    given = ["--stream", stream, "--topic", "orders", "--path", "x"]
    assert to_parquet.main(given) == 2
    assert "set IGGY_CONNECTION_STRING" in capsys.readouterr().err


@pytest.mark.parametrize("is_csv", [True, False])
def test_from_files_when_lines_are_bad_then_are_dead_letters_or_left_out_and_counted(
    client, stream, orders, run, tmp_path, capsys, is_csv
):
    (tmp_path / "in").mkdir()
    if is_csv:
        (tmp_path / "in" / "a.csv").write_text("id,item\n1,tea\n2,tea,more\nx,tea\n")
        how = ["--format", "csv", "--schema", "id INT, item STRING"]
        bad = [b"2,tea,more", b"x,tea"]
        reason = "the line does not fit the columns: "
    else:
        (tmp_path / "in" / "a.json").write_text('{"id": 1}\nnope\n{"id": 2} x\n')
        how = ["--format", "json"]
        bad = [b"nope", b'{"id": 2} x']
        reason = "the line is not JSON: "
    given = ("--path", tmp_path / "in", "--create-topic", 1, *how)

    assert run(from_files, *given, "--dead-letter-topic", "dead", topic="a") == 0
    assert run(from_files, *given, "--skip-bad", topic="b") == 0
    assert run(from_files, *given, topic="c") == 1

    (letters,) = messages_of(client, stream, "dead")
    assert [letter.payload for letter in letters] == bad
    assert [letter.headers["error"] for letter in letters] == [
        f"{reason}{line.decode()}" for line in bad
    ]
    assert letters[0].headers["source_file"].endswith(".csv" if is_csv else ".json")
    for topic in ("a", "b"):
        assert client.get_topic(stream, topic, required=True).messages_count == 1
    said = capsys.readouterr().err
    assert "3 (2 bad: topic dead) rows of" in said
    assert "3 (2 bad: left out and counted) rows of" in said
    assert f"row 1: {reason}{bad[0].decode()}; send such messages elsewhere" in said

"""Pipelines from end to end: a file, a real server, a real session, and what is there then."""

from __future__ import annotations

import json

from tests.spark.jobs.test_jobs import messages_of
from tests.spark.pipeline.conftest import BAD, SCHEMA

SINKS = f"""
[[transform]]
type = "json"
schema = "{SCHEMA}"

[[transform]]
type = "convert"
columns = {{ cups = "INT" }}

[[transform]]
type = "filter"
where = "cups > 0"

[[transform]]
type = "delete"
columns = ["iggy_timestamp", "iggy_origin_timestamp"]

[[sink]]
type = "parquet"
path = "FOLDER/lake"

[[sink]]
type = "iggy"
stream = "STREAM"
topic = "copies"
server = {{ env = "SERVER" }}
create_topic = 1
key_column = "item"

[[sink]]
type = "console"
rows = 2

[dead_letters]
topic = "dead"
"""


def test_pipeline_when_run_then_each_sink_has_each_good_row_and_letters_have_the_others(
    spark, client, stream, orders, pipeline, iggy_spark, tmp_path, capsys
):
    orders(bad=True)
    client.send_messages(stream, "orders", [b'{"id": 99, "cups": "many"}'], partition_id=0)
    path = pipeline(SINKS)

    assert iggy_spark("run", path) == 0
    orders(40, 5)
    assert iggy_spark("run", path) == 0

    rows = spark.read.parquet(str(tmp_path / "lake"))
    assert sorted(row["id"] for row in rows.collect()) == [n for n in range(50) if n % 5]
    (copies,) = messages_of(client, stream, "copies")
    sent = sorted((json.loads(one.payload) for one in copies), key=lambda one: one["id"])
    assert sent[0] == {"id": 1, "item": "tea", "cups": 1}
    assert [one["id"] for one in sent] == [n for n in range(50) if n % 5]
    (letters,) = messages_of(client, stream, "dead")
    reasons = {one.payload: one.headers["error"] for one in letters}
    assert reasons == {
        BAD[0]: "the payload is not one JSON value",
        BAD[1]: "it does not fit the schema",
        b'{"id": 99, "cups": "many"}': "column cups is not INT",
    }
    assert len(letters) == 5
    said = capsys.readouterr()
    assert said.out.count("batch ") == 2
    assert "orders: batch 0, 45 rows" in said.err
    status = json.loads((tmp_path / "status" / "orders.json").read_text())
    assert (status["state"], status["rows_count"], status["batch_id"]) == ("done", 10, 1)


def test_pipeline_when_a_bad_row_has_nowhere_to_go_then_fails_with_its_place(
    orders, pipeline, iggy_spark, capsys, tmp_path
):
    orders(bad=True)
    before, _, _ = SINKS.partition('[[transform]]\ntype = "convert"')
    path = pipeline(f'{before}\n[[sink]]\ntype = "parquet"\npath = "FOLDER/lake"\n')

    assert iggy_spark("run", path) == 1

    said = capsys.readouterr().err
    assert "orders: failed: topic orders partition" in said
    assert "add [dead_letters] to the pipeline" in said
    assert not list((tmp_path / "lake").glob("*.parquet"))
    assert iggy_spark("status", tmp_path / "status") == 0
    assert "failed" in capsys.readouterr().out


def test_pipeline_when_bad_rows_are_skipped_then_they_are_counted(
    spark, orders, pipeline, iggy_spark, tmp_path, capsys
):
    orders(bad=True)
    before, _, _ = SINKS.partition('[[transform]]\ntype = "convert"')
    sink = '[[sink]]\ntype = "parquet"\npath = "FOLDER/lake"\n'
    path = pipeline(f'{before}\n{sink}\n[dead_letters]\naction = "skip"\n')

    assert iggy_spark("run", path) == 0
    assert iggy_spark("status", tmp_path / "status", "--output", "json") == 0

    (status,) = json.loads(capsys.readouterr().out)
    assert (status["dead_letters_count"], status["rows_count"]) == (4, 44)
    assert spark.read.parquet(str(tmp_path / "lake")).count() == 40


def test_pipeline_when_dry_or_explained_then_all_is_said_and_nothing_written(
    spark_server, client, stream, orders, pipeline, iggy_spark, tmp_path, capsys
):
    orders(bad=True)
    path = pipeline(SINKS)

    assert iggy_spark("check", path) == 0
    assert iggy_spark("run", path, "--dry-run") == 0
    dry = capsys.readouterr().out
    assert iggy_spark("explain", path) == 0
    explained = capsys.readouterr().out

    assert "dead letters: topic dead" in dry
    assert ["orders", "0", "0", "22", "22"] in [line.split() for line in dry.splitlines()]
    assert ["id", "bigint"] in [line.split() for line in dry.splitlines()]
    assert "transform 2: convert cups to INT\nSELECT\n" in explained
    assert "try_cast(`cups` AS INT) AS `cups`" in explained
    assert "sink 1, Parquet files in" in explained
    assert "each row once: a repeated micro-batch puts the same files" in explained
    assert "== Physical Plan ==" in explained
    for text in (dry, explained):
        assert spark_server.url not in text
        assert "iggy:iggy" not in text
    assert not (tmp_path / "lake").exists()
    assert client.get_topic(stream, "copies") is None


def test_step_when_it_does_not_go_with_the_rows_then_the_line_is_named(
    orders, pipeline, iggy_spark, capsys
):
    orders()
    path = pipeline(SINKS.replace('where = "cups > 0"', 'where = "cpus > 0"'))

    assert iggy_spark("run", path, "--dry-run") == 2

    line = 1 + path.read_text().splitlines().index('type = "filter"') - 1
    said = capsys.readouterr().err
    assert f"orders.toml:{line}: [UNRESOLVED_COLUMN" in said
    assert "the transform is: keep rows where cpus > 0" in said


def test_windows_and_duplicates_when_in_a_pipeline_then_rows_are_counted_once(
    spark, client, stream, orders, pipeline, iggy_spark, tmp_path
):
    client.create_topic(stream, "events", 1)
    days = [(n % 4, f"2026-01-0{1 + n % 4}T12:00:00Z") for n in range(12)]
    payloads = [b'{"id": %d, "at": "%s"}' % (n, at.encode()) for n, at in days]
    path = pipeline(
        """
[pipeline]
checkpoint = "FOLDER/state"
once = true
[source]
type = "iggy"
stream = "STREAM"
topic = "events"
server = { env = "SERVER" }
[[transform]]
type = "json"
schema = "id BIGINT, at TIMESTAMP"
[[transform]]
type = "deduplicate"
keys = ["id"]
time = "at"
within = "1000h"
[[transform]]
type = "window"
time = "at"
size = "24h"
late = "1h"
aggregates = { n = "count(*)" }
[[sink]]
type = "parquet"
path = "FOLDER/lake"
[dead_letters]
path = "FOLDER/dead"
"""
    )
    # The bad row comes at a time that is far later than that of all others.
    for batch in ([*payloads[:6], b"bad"], payloads[6:], [b'{"id": 9, "at": "2027-01-01"}']):
        client.send_messages(stream, "events", batch, partition_id=0)
        assert iggy_spark("run", path) == 0

    rows = spark.read.parquet(str(tmp_path / "lake")).orderBy("window_start").collect()
    assert [(row["window_start"].day, row["n"]) for row in rows] == [(d, 1) for d in (1, 2, 3, 4)]
    (dead,) = spark.read.parquet(str(tmp_path / "dead")).collect()
    assert (bytes(dead["payload"]), dead["offset"]) == (b"bad", 6)
    status = json.loads((tmp_path / "status" / "orders.json").read_text())
    assert (status["state"], status["late_rows_count"]) == ("done", 0)

"""Rows of messages, in batches: JSON payloads, numbered files, merges. Quick, without queries."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from pyspark.sql import functions as F

from spark_jobs.errors import OptionError
from spark_jobs.jobs import from_files
from spark_jobs.pipeline.connectors import ERROR, ORIGIN, good_rows
from spark_jobs.pipeline.dead_letters import strict
from spark_jobs.pipeline.file_sink import with_time
from spark_jobs.pipeline.file_source import split_settings
from spark_jobs.pipeline.payload_step import PayloadStep
from spark_jobs.pipeline.schemas import read_schema_text, write_ddl
from spark_jobs.pipeline.sql_steps import JsonStep
from spark_jobs.pipeline.topic_sources import MESSAGE_COLUMNS, IggySource

NOON = datetime.datetime(2026, 1, 31, 12, 30, tzinfo=datetime.UTC)
PAYLOADS = [
    b'{"id": 1, "item": "tea", "extra": true}',
    b'{"id": 2}',
    b"nope",
    b'{"id": 3} and more',
    b'{"id": 4}{"id": 5}',
    b'{"id": "six"}',
    b'{"item": "no id"}',
    b'[{"id": 7}]',
    b"\xff\xfe",
    b"",
]
GOOD = 2


@pytest.fixture
def messages(spark):
    """Return the payloads as messages of a topic."""
    rows = [("s", "t", 0, at, NOON, NOON, payload) for at, payload in enumerate(PAYLOADS)]
    return IggySource("s", "t").label(spark.createDataFrame(rows, MESSAGE_COLUMNS))


SCHEMA = "id BIGINT NOT NULL, item STRING"


def parsed(messages, schema=SCHEMA, **more):
    return JsonStep(schema, **more).apply(messages, "iggy_")


def timed(rows, time_column="timestamp", partition_by=("date", "hour")):
    return with_time(rows, partition_by, time_column, "iggy_")


def test_payloads_when_they_fit_the_schema_then_become_columns_and_others_are_told_apart(messages):
    made = timed(parsed(messages))
    rows = good_rows(made).orderBy("iggy_offset").collect()
    bad = made.where(f"{ERROR} IS NOT NULL").orderBy("iggy_offset").collect()

    assert [(row["id"], row["item"]) for row in rows] == [(1, "tea"), (2, None)]
    assert (rows[0]["date"], rows[0]["hour"]) == (NOON.date(), 12)
    assert [bytes(row[ORIGIN]["payload"]) for row in bad] == PAYLOADS[GOOD:]
    reasons = [row[ERROR] for row in bad]
    assert reasons[:3] == ["the payload is not one JSON value"] * 3
    assert reasons[3] == reasons[5] == "it does not fit the schema"
    assert reasons[4] == "field id is missing"
    assert reasons[6] == "the payload is not UTF-8"


def test_payloads_when_there_is_no_other_place_then_stay_in_a_column_of_their_own(messages):
    rows = parsed(messages, unfit="keep").orderBy("iggy_offset").collect()

    assert [row["_corrupt_record"] for row in rows[:GOOD]] == [None] * GOOD
    assert [bytes(row["_corrupt_record"]) for row in rows[GOOD:]] == PAYLOADS[GOOD:]
    assert {row[ERROR] for row in rows} == {None}


def test_folders_when_made_of_a_field_then_its_time_counts(messages):
    rows = timed(parsed(messages, "id BIGINT, at TIMESTAMP"), "at", ("date",))

    assert rows.columns[-1] == "date"


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ({"time_column": "gone"}, "the time column is 'gone'"),
        ({"time_column": "item"}, "which is string"),
        ({"partition_by": ("day",)}, "there are date, hour, id"),
    ],
)
def test_folders_when_a_column_cannot_be_used_then_the_answer_helps(messages, given, answer):
    with pytest.raises(OptionError, match=answer):
        timed(parsed(messages), **given)


def test_schema_when_in_a_file_then_is_read_in_either_form(spark, tmp_path):
    plain = read_schema_text("id BIGINT NOT NULL, item STRING")
    (tmp_path / "a.ddl").write_text("id BIGINT NOT NULL,\n  item STRING\n")
    (tmp_path / "b.json").write_text(plain.json())

    assert read_schema_text(str(tmp_path / "a.ddl")) == plain
    assert read_schema_text(str(tmp_path / "b.json")) == plain
    for wrong in ("id BIGNIT(", str(tmp_path / "gone.ddl"), "BIGINT"):
        with pytest.raises(OptionError, match="the schema cannot be read"):
            read_schema_text(wrong)


def test_schema_when_written_as_ddl_then_reads_as_the_same_types(spark):
    fields = read_schema_text(
        "`a b` INT, s STRUCT<`x``y`: ARRAY<STRUCT<z: DECIMAL(4,2)>>, m: MAP<STRING, DATE>>"
    )

    assert read_schema_text(write_ddl(fields)) == fields


def test_steps_when_run_on_payloads_then_drop_change_or_mark(messages):
    step = PayloadStep(("filter id!=2", "add at=$offset"))

    rows = step.apply(messages, "iggy_").orderBy("offset").collect()

    assert [row["offset"] for row in rows] == [0, *range(2, len(PAYLOADS))]
    assert bytes(rows[0]["payload"]).endswith(b'"extra":true,"at":0}')
    assert rows[1][ERROR].startswith("the payload is not JSON")
    assert bytes(rows[1]["payload"]) == b"nope"
    assert [row["offset"] for row in rows if row[ERROR] is None] == [0, 5, 6]


def test_steps_when_a_row_has_an_error_already_then_leave_it(messages):
    step = PayloadStep(("delete item",))
    marked = messages.withColumn(ERROR, F.when(F.col("offset") == 0, "known"))

    (row,) = step.apply(marked, "iggy_").where("offset = 0").collect()

    assert (row[ERROR], bytes(row["payload"])) == ("known", PAYLOADS[0])


def test_rows_when_bad_ones_are_not_wanted_then_the_first_says_where_it_is(messages):
    rows = strict(PayloadStep(("delete id",)).apply(messages.coalesce(1), "iggy_"), "go there")

    with pytest.raises(Exception, match=r"topic t partition 0 offset 2: .*; go there"):
        rows.collect()


def given_files(*arguments):
    place = ["--server", "iggy://a:b@h", "--stream", "s", "--topic", "t"]
    return from_files.parser().parse_args([*place, *map(str, arguments)])


def made_of(spark, given):
    spec: Any = from_files.pipeline(given, "unused")
    (sink,) = spec.sinks
    with split_settings(spark):
        rows = spec.source.label(spec.source.read(spark, spark.read))
        return {bytes(row["id"]): row for row in sink.messages(rows, "").collect()}


def test_ids_when_files_are_added_or_replaced_then_known_rows_keep_theirs(spark, tmp_path):
    given = given_files("--path", tmp_path, "--format", "text")
    (tmp_path / "b.txt").write_text("same\nsame\n\nother\n")

    first = made_of(spark, given)
    (tmp_path / "a.txt").write_text("same\n")
    second = made_of(spark, given)
    (tmp_path / "a.txt").write_text("new\n")
    third = made_of(spark, given)

    assert sorted(row["payload"] for row in first.values()) == ["other", "same", "same"]
    assert len(second) == 4
    assert first.keys() < second.keys()
    assert first.keys() == second.keys() & third.keys()
    # Where a row goes without a key follows from its id.
    assert all(bytes(row["key"]) == at for at, row in second.items())


def test_rows_when_of_csv_files_then_become_json_with_keys_and_headers(spark, tmp_path):
    (tmp_path / "a.csv").write_text("id,item,country\n1,tea,DE\n2,,FR\n")
    given = given_files(
        *("--path", tmp_path, "--format", "csv", "--schema", "id INT, item STRING, country STRING"),
        *("--key-column", "id", "--header-columns", "country,item"),
    )

    rows = sorted(made_of(spark, given).values(), key=lambda row: row["payload"])

    assert [row["payload"] for row in rows] == [
        '{"id":1,"item":"tea","country":"DE"}',
        '{"id":2,"country":"FR"}',
    ]
    assert [bytes(row["key"]) for row in rows] == [b"1", b"2"]
    assert rows[1]["headers"] == {"country": "FR", "item": None}


def test_rows_when_of_parquet_files_then_one_column_may_be_the_payload(spark, tmp_path):
    spark.range(3).selectExpr("id", "CAST(id * 2 AS STRING) AS text").write.parquet(
        str(tmp_path / "in")
    )
    given = given_files(
        "--path", tmp_path / "in", "--format", "parquet", "--payload-column", "text"
    )

    payloads = [row["payload"] for row in made_of(spark, given).values()]

    assert sorted(payloads) == ["0", "2", "4"]


@pytest.mark.parametrize("option", ["--key-column", "--header-columns", "--payload-column"])
def test_column_when_files_have_none_of_that_name_then_the_answer_lists_them(
    spark, tmp_path, option
):
    (tmp_path / "a.csv").write_text("id,item\n1,tea\n")

    with pytest.raises(OptionError, match=r"no column 'itme'; did you mean item"):
        made_of(spark, given_files("--path", tmp_path, "--format", "csv", option, "itme"))

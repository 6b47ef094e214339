"""Transforms as SQL on batches: what they change, and what becomes of rows they cannot process."""

from __future__ import annotations

import datetime
import hashlib
import hmac

import pytest
from pyspark.sql import functions as F

from spark_jobs.errors import OptionError
from spark_jobs.pipeline.connectors import ERROR, ORIGIN, good_rows, names_of
from spark_jobs.pipeline.mask_step import MaskStep
from spark_jobs.pipeline.reading import Duration
from spark_jobs.pipeline.secrets import SecretReference
from spark_jobs.pipeline.sql_steps import (
    AddStep,
    ConvertStep,
    DeleteStep,
    FilterStep,
    FlattenStep,
    RenameStep,
)
from spark_jobs.pipeline.stateful_steps import DeduplicateStep, WindowStep, with_time_checked

HOUR = Duration("1 hour")
NOON = datetime.datetime(2026, 1, 31, 12, 0, tzinfo=datetime.UTC)


@pytest.fixture
def rows(spark):
    """Return four rows; the last one has an error already."""
    made = spark.createDataFrame(
        [
            (1, "tea", "3", ("a", (5, "x")), NOON, None),
            (2, "coffee", "many", ("b", (6, "y")), NOON, None),
            (3, None, None, None, NOON, None),
            (4, "tea", "0", ("c", (7, "z")), NOON, "known"),
        ],
        "id INT, `the item` STRING, cups STRING, deep STRUCT<a: STRING, b: STRUCT<`c d`: INT, "
        f"e: STRING>>, at TIMESTAMP, {ERROR} STRING",
    )
    origin = F.struct(F.lit("t").alias("topic"), F.col("id").cast("string").alias("payload"))
    return made.withColumn(ORIGIN, origin)


def result(step, rows):
    made = step.apply(rows, "iggy_")
    assert set(made.columns) >= {ORIGIN, ERROR}
    return names_of(made), made.orderBy(f"{ORIGIN}.payload").collect()


def test_add_when_columns_are_new_or_known_then_are_added_or_replaced_in_place(rows):
    names, made = result(AddStep({"cups": "'n'", "twice": "2 / (4 - id)"}), rows)

    assert names == ["id", "the item", "cups", "deep", "at", "twice"]
    assert [row["cups"] for row in made] == ["n", "n", "n", None]
    # For the row with an error it is not even computed: it would divide by zero.
    assert [row["twice"] for row in made] == [2 / 3, 1.0, 2.0, None]


def test_delete_and_rename_when_named_then_change_these_columns_only(rows):
    assert result(DeleteStep(("deep", "at")), rows)[0] == ["id", "the item", "cups"]
    assert result(RenameStep({"the item": "item", "id": "cups", "cups": "id"}), rows)[0] == [
        *("cups", "item", "id", "deep", "at")
    ]


def test_filter_when_true_then_keeps_rows_and_those_with_errors(rows):
    made = result(FilterStep("id = 1 OR 1 / (4 - id) < 0"), rows)[1]

    assert [row["id"] for row in made] == [1, 4]


def test_convert_when_a_value_does_not_fit_then_the_row_has_an_error(rows):
    made = result(ConvertStep({"cups": "INT", "id": "STRING"}), rows)[1]

    assert [(row["id"], row["cups"]) for row in made] == [
        ("1", 3),
        ("2", None),
        ("3", None),
        ("4", 0),
    ]
    assert [row[ERROR] for row in made] == [None, "column cups is not INT", None, "known"]


def test_flatten_when_structs_are_deep_then_each_leaf_is_a_column(rows):
    names, made = result(FlattenStep(), rows)

    assert names == ["id", "the item", "cups", "deep_a", "deep_b_c d", "deep_b_e", "at"]
    assert [row["deep_b_c d"] for row in made] == [5, 6, None, 7]
    assert result(FlattenStep(("deep",), "."), rows)[0][3:6] == ["deep.a", "deep.b.c d", "deep.b.e"]


def test_mask_when_redacted_hashed_or_partial_then_the_value_is_gone(rows, monkeypatch):
    monkeypatch.setenv("SALT", "a long secret")
    columns = ("the item",)

    def masked(**how):
        return [row["the item"] for row in result(MaskStep(columns, **how), rows)[1]]

    assert masked() == ["***", "***", None, "***"]
    assert masked(how="partial", keep=2) == ["***", "****ee", None, "***"]
    assert masked(how="hash")[0] == hashlib.sha256(b"tea").hexdigest()
    keyed = hmac.new(b"a long secret", b"tea", hashlib.sha256).hexdigest()
    salt = SecretReference("env", "SALT")
    assert masked(how="hash", salt=salt)[::2] == [keyed, None]
    step = MaskStep(columns, how="hash", salt=salt)
    plan = step.apply(rows, "")._jdf.queryExecution().toString()
    assert "a long secret" not in f"{plan}{step.describe()}{step.sql(rows, '')}"


def test_deduplicate_when_keys_come_twice_then_one_row_stays(rows):
    good = good_rows(rows)

    made = result(DeduplicateStep(("the item",), "at"), good.union(good))[1]

    assert len(made) == len({row["the item"] for row in made}) == 3


def test_window_when_counted_then_has_its_bounds_and_groups(rows):
    step = WindowStep("at", HOUR, {"n": "count(*)", "most": "max(id)"}, by=("the item",))

    names, made = result(step, good_rows(rows))

    assert names == ["window_start", "window_end", "the item", "n", "most"]
    assert sorted((str(row["the item"]), row["n"], row["most"]) for row in made) == [
        ("None", 1, 3),
        ("coffee", 1, 2),
        ("tea", 1, 1),
    ]


def test_time_when_it_is_null_then_the_row_has_an_error(rows):
    made = with_time_checked(rows.withColumn("at", F.when(F.col("id") > 1, F.col("at"))), "at")

    errors = [row[ERROR] for row in made.orderBy("id").collect()]
    assert errors == ["column at is null", None, None, "known"]


@pytest.mark.parametrize(
    ("step", "answer"),
    [
        (DeleteStep(("cusp",)), "there is no column 'cusp'; did you mean cups?"),
        (DeleteStep(("id", "the item", "cups", "deep", "at")), "it would drop all columns"),
        (RenameStep({"id": "CUPS"}), "there would be two columns cups; rename one"),
        (FlattenStep(("cups",)), "column cups is no struct; leave it out"),
        (ConvertStep({"cusp": "INT"}), "there is no column 'cusp'"),
        (MaskStep(("cusp",)), "there is no column 'cusp'"),
        (MaskStep(("id",), salt=SecretReference("env", "X")), 'a salt is for how = "hash"'),
        (DeduplicateStep(("cusp",), "at"), "there is no column 'cusp'"),
        (DeduplicateStep(("cups",), "id"), "column id is integer; convert it to TIMESTAMP"),
        (WindowStep("at", HOUR, {"cups": "1"}, by=("cups",)), "two columns cups; name the"),
    ],
)
def test_step_when_it_does_not_go_with_the_columns_then_the_answer_helps(rows, step, answer):
    with pytest.raises(OptionError, match=answer):
        step.apply(rows, "")


def test_sql_when_shown_then_is_what_runs(rows):
    step = ConvertStep({"cups": "INT"})
    rows.createOrReplaceTempView("rows")

    shown = rows.sparkSession.sql(step.sql(rows, ""))

    assert shown.orderBy("id").collect() == step.apply(rows, "").orderBy("id").collect()

"""Filters of Arrow and predicates of Polars: spans leave out no row that they match."""

from __future__ import annotations

import operator
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pyarrow as pa  # type: ignore[import-untyped]  # it comes without types
import pyarrow.dataset as ds  # type: ignore[import-untyped]  # the same
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_sdk.arrow.filters import refers_to, spans_of
from iggy_sdk.arrow.settings import arrow_schema
from iggy_sdk.arrow.spans import RowSpans, Span
from iggy_sdk.polars import spans_of as spans_of_predicate

SCHEMA = arrow_schema(columns=["partition", "offset", "timestamp", "payload"])
START = datetime(2026, 1, 31, 12, tzinfo=UTC)
START_US = 1_769_860_800_000_000
OPERATORS = (operator.eq, operator.ge, operator.gt, operator.le, operator.lt)


def moment(number):
    return START + timedelta(microseconds=number)


ROWS = pa.RecordBatch.from_pylist(
    [
        {"partition": partition, "offset": offset, "timestamp": moment(time), "payload": b"x"}
        for partition in range(3)
        for offset in range(6)
        for time in range(0, 6, 2)
    ],
    schema=SCHEMA,
)
FRAME: Any = pl.from_arrow(ROWS)


def conditions(field, literal, is_in, payload):
    """Make conditions in the words of one library."""
    numbers = st.integers(-1, 7)
    comparisons = st.builds(
        lambda compare, name, number: compare(field(name), number),
        st.sampled_from(OPERATORS),
        st.sampled_from(["partition", "offset"]),
        numbers,
    )
    mirrored = st.builds(
        lambda compare, number: compare(literal(number), field("offset")),
        st.sampled_from(OPERATORS),
        numbers,
    )
    times = st.builds(
        lambda compare, number: compare(field("timestamp"), moment(number)),
        st.sampled_from(OPERATORS),
        numbers,
    )
    lists = st.builds(lambda few: is_in(field("offset"), few), st.lists(numbers, min_size=1))
    leaves = comparisons | mirrored | times | lists | st.just(payload)
    return st.recursive(
        leaves,
        lambda inner: (
            st.builds(operator.and_, inner, inner)
            | st.builds(operator.or_, inner, inner)
            | st.builds(operator.invert, inner)
        ),
        max_leaves=5,
    )


def is_within(spans: RowSpans, row: dict[str, Any]) -> bool:
    time = (row["timestamp"] - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    return (
        row["partition"] in spans.partitions
        and row["offset"] in spans.offsets
        and time in spans.times
    )


@given(
    conditions(ds.field, ds.scalar, lambda field, few: field.isin(few), ds.field("payload") == b"x")
)
def test_filter_when_rows_match_it_then_they_are_within_its_spans(condition):
    spans = spans_of(condition, SCHEMA)

    matching = (
        ds.Scanner.from_batches([ROWS], schema=SCHEMA, filter=condition).to_table().to_pylist()
    )

    assert all(is_within(spans, row) for row in matching)


@given(conditions(pl.col, pl.lit, lambda field, few: field.is_in(few), pl.col("payload") == b"x"))
def test_predicate_when_rows_match_it_then_they_are_within_its_spans(predicate):
    spans = spans_of_predicate(predicate)

    assert all(is_within(spans, row) for row in FRAME.filter(predicate).to_dicts())


FIELD, COLUMN = ds.field, pl.col


@pytest.mark.parametrize(
    ("condition", "predicate", "spans"),
    [
        (
            (FIELD("offset") >= 2) & (FIELD("offset") < 5),
            (COLUMN("offset") >= 2) & (COLUMN("offset") <= 4),
            RowSpans(offsets=Span(2, 5)),
        ),
        (
            (FIELD("partition") == 1) & (FIELD("payload") == b"x"),
            (COLUMN("partition") == 1) & (COLUMN("payload") == b"x"),
            RowSpans(partitions=Span(1, 2)),
        ),
        (
            (FIELD("offset") == 3) | (FIELD("offset") == 9),
            (COLUMN("offset") == 3) | (COLUMN("offset") == 9),
            RowSpans(offsets=Span(3, 10)),
        ),
        (
            (FIELD("offset") == 3) | (FIELD("payload") == b"x"),
            (COLUMN("offset") == 3) | (COLUMN("payload") == b"x"),
            RowSpans(),
        ),
        (
            (FIELD("timestamp") >= START) & (FIELD("timestamp") <= moment(5)),
            COLUMN("timestamp").is_between(START, moment(5)),
            RowSpans(times=Span(START_US, START_US + 6)),
        ),
        (
            (FIELD("offset") >= 1) & (FIELD("partition") <= 2),
            (pl.lit(1) <= COLUMN("offset")) & (COLUMN("partition") <= 2),
            RowSpans(partitions=Span(None, 3), offsets=Span(1, None)),
        ),
        (
            FIELD("offset").isin([4, 2]),
            COLUMN("offset").is_in([4, 2]),
            RowSpans(offsets=Span(2, 5)),
        ),
    ],
)
def test_condition_when_it_bounds_a_column_then_the_spans_are_tight(condition, predicate, spans):
    assert spans_of(condition, SCHEMA) == spans
    assert spans_of_predicate(predicate) == spans


@pytest.mark.parametrize(
    "predicate",
    [
        pl.col("offset").is_null(),
        pl.col("offset") == pl.col("partition"),
        pl.col("offset") > 2.5,
        pl.col("offset") > pl.lit(None, pl.Int64),
        pl.col("timestamp") > datetime(2026, 1, 31),  # noqa: DTZ001  Polars may be given one
        pl.col("offset").is_between(pl.col("partition"), 5) | pl.col("offset").is_null(),
        pl.col("payload").bin.size() == 1,
        pl.when(pl.col("offset") > 1).then(True).otherwise(False),
    ],
    ids=str,
)
def test_predicate_when_it_says_something_else_then_nothing_is_left_out(predicate):
    assert spans_of_predicate(predicate) == RowSpans()


def test_filter_when_nothing_can_match_then_the_spans_are_empty():
    never = (FIELD("offset") > 5) & (FIELD("offset") < 5)

    assert spans_of(never, SCHEMA).is_empty
    assert spans_of(None, SCHEMA) == RowSpans()


def test_filter_when_a_column_is_not_there_then_there_is_no_span_of_it():
    schema = arrow_schema(columns=["offset", "payload"])

    assert spans_of(FIELD("offset") < 3, schema) == RowSpans(offsets=Span(None, 3))
    assert refers_to(FIELD("payload") == b"", "payload", schema)
    assert not refers_to(FIELD("payload") == b"", "offset", schema)


@given(*[st.tuples(*[st.none() | st.integers(-3, 12)] * 2)] * 2, st.integers(-5, 15))
def test_spans_when_joined_then_have_what_both_or_either_have(one, other, number):
    left, right = Span(*one), Span(*other)

    assert (number in (left & right)) == (number in left and number in right)
    assert number in (left | right) or not (number in left or number in right)

"""What a table takes of new columns and other types; no session is needed but for values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from spark_jobs import SchemaError
from spark_jobs.tables.schema import SchemaRules, align, can_become, fits, plan_changes, type_text


def rules(*, evolve=True, widens=True, is_case_sensitive=False):
    """Return what a table accepts."""
    return SchemaRules("t", evolve, widens, "ALTER TABLE t SET widening", is_case_sensitive)


def columns(*pairs):
    """Make a schema of names and types."""
    return StructType([StructField(name, kind) for name, kind in pairs])


def planned(table, rows, **how):
    """Return the statements that a table needs before it can take rows."""
    return [one.statement("t") for one in plan_changes(table, rows, rules(**how))]


INNER = columns(("a", IntegerType()))
MORE = columns(("b", StringType()), ("a", IntegerType()))


@pytest.mark.parametrize(
    ("stored", "come", "statement"),
    [
        (INNER, MORE, "ALTER TABLE t ADD COLUMNS (`c`.`b` STRING)"),
        (ArrayType(INNER), ArrayType(MORE), "ALTER TABLE t ADD COLUMNS (`c`.`element`.`b` STRING)"),
        (
            MapType(StringType(), INNER),
            MapType(StringType(), MORE),
            "ALTER TABLE t ADD COLUMNS (`c`.`value`.`b` STRING)",
        ),
        (IntegerType(), LongType(), "ALTER TABLE t ALTER COLUMN `c` TYPE BIGINT"),
        (FloatType(), DoubleType(), "ALTER TABLE t ALTER COLUMN `c` TYPE DOUBLE"),
        (DecimalType(5, 2), DecimalType(9, 2), "ALTER TABLE t ALTER COLUMN `c` TYPE DECIMAL(9,2)"),
    ],
)
def test_changes_when_the_rows_have_more_then_the_table_gets_it(stored, come, statement):
    assert planned(columns(("c", stored)), columns(("c", come))) == [statement]


def test_changes_when_a_column_is_new_then_it_is_added_with_its_name_quoted():
    found = planned(columns(("id", LongType())), columns(("id", LongType()), ("a `b", INNER)))

    assert found == ["ALTER TABLE t ADD COLUMNS (`a ``b` STRUCT<`a`: INT>)"]


@pytest.mark.parametrize(
    ("stored", "come"),
    [
        (LongType(), ShortType()),
        (DoubleType(), IntegerType()),
        (DecimalType(12, 2), IntegerType()),
        (IntegerType(), NullType()),
    ],
)
def test_changes_when_every_value_fits_then_there_are_none(stored, come):
    assert planned(columns(("c", stored)), columns(("c", come)), evolve=False, widens=False) == []


@pytest.mark.parametrize(
    ("stored", "come", "how", "answer"),
    [
        (IntegerType(), StringType(), {}, "is INT in table t and STRING in the rows; cast it"),
        (StringType(), IntegerType(), {}, "cast it to STRING in the rows, or write to a new table"),
        (DoubleType(), LongType(), {}, "cast it to DOUBLE"),
        (LongType(), DecimalType(10, 0), {"widens": True}, "cast it"),
        (TimestampType(), TimestampNTZType(), {}, "cast it to TIMESTAMP"),
        (IntegerType(), LongType(), {"widens": False}, "ALTER TABLE t SET widening, or cast it"),
        (IntegerType(), LongType(), {"evolve": False}, r"--evolve-schema\), or cast it to INT"),
        (INNER, IntegerType(), {}, "STRUCT<`a`: INT> in table t and INT"),
        (INNER, columns(("a", StringType())), {}, "column c.a is INT"),
        (INNER, MORE, {"evolve": False}, "has no column c.b"),
    ],
)
def test_changes_when_the_table_cannot_take_the_rows_then_the_answer_helps(
    stored, come, how, answer
):
    with pytest.raises(SchemaError, match=answer):
        planned(columns(("c", stored)), columns(("c", come)), **how)


def test_changes_when_names_differ_in_case_only_then_they_are_one_column_unless_spark_differs():
    table, rows = columns(("Id", LongType())), columns(("ID", LongType()))

    assert planned(table, rows) == []
    assert len(planned(table, rows, is_case_sensitive=True)) == 1
    with pytest.raises(SchemaError, match="'id' and 'ID'"):
        planned(table, columns(("id", LongType()), ("ID", LongType())))


def test_changes_when_a_column_that_must_not_be_null_is_missing_then_it_is_refused():
    table = StructType([StructField("id", LongType(), nullable=False)])

    with pytest.raises(SchemaError, match="column id of table t is NOT NULL"):
        planned(table, columns(("item", StringType())))


def test_changes_when_a_new_column_holds_nothing_then_it_is_left_out():
    assert (
        planned(columns(("id", LongType())), columns(("id", LongType()), ("x", NullType()))) == []
    )


WHOLE = {ByteType(): 8, ShortType(): 16, IntegerType(): 32, LongType(): 64}
ATOMIC = st.one_of(
    st.sampled_from([*WHOLE, FloatType(), DoubleType(), StringType(), TimestampType()]),
    st.integers(1, 38).flatmap(
        lambda digits: st.integers(0, digits).map(lambda scale: DecimalType(digits, scale))
    ),
)


@given(st.sampled_from(list(WHOLE)), ATOMIC, st.data())
def test_fits_when_it_says_so_for_whole_numbers_then_the_largest_value_fits(given, wanted, data):
    largest = 2 ** (WHOLE[given] - 1) - 1
    if not fits(given, wanted):
        return
    if isinstance(wanted, DecimalType):
        assert len(str(largest)) <= wanted.precision - wanted.scale
    elif isinstance(wanted, DoubleType):
        assert int(float(largest)) == largest
    else:
        assert WHOLE[wanted] >= WHOLE[given]


@given(ATOMIC, ATOMIC)
def test_types_when_a_table_can_become_wider_then_its_old_values_fit(stored, wanted):
    assert fits(stored, stored)
    if can_become(stored, wanted) and stored != wanted:
        assert fits(stored, wanted)
        assert not can_become(wanted, stored)


def test_align_when_types_are_nested_then_values_keep_and_missing_fields_are_null(spark):
    given = columns(
        ("s", INNER), ("l", ArrayType(INNER)), ("m", MapType(IntegerType(), INNER)), ("n", INNER)
    )
    wanted = columns(
        ("s", MORE), ("l", ArrayType(MORE)), ("m", MapType(LongType(), MORE)), ("n", MORE)
    )
    rows = spark.createDataFrame([((1,), [(2,)], {3: (4,)}, None)], given)

    aligned = rows.select(
        *(
            align(F.col(one.name), one.dataType, wanted[one.name].dataType, rules()).alias(one.name)
            for one in given.fields
        )
    )

    assert [tuple(row) for row in aligned.collect()] == [
        ((None, 1), [(None, 2)], {3: (None, 4)}, None)
    ]
    assert type_text(aligned.schema) == type_text(wanted)

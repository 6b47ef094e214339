"""Columns of one value, which are made without pandas."""

from __future__ import annotations

import pyarrow as pa  # type: ignore[import-untyped]  # it comes without types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_sdk.arrow.columns import EvenBounds, repeat


@given(
    case=st.one_of(
        st.tuples(st.text(max_size=40), st.just(pa.string())),
        st.tuples(st.integers(0, 2**31 - 1), st.just(pa.int32())),
    ),
    count=st.integers(0, 200),
)
def test_repeat_when_given_a_value_then_is_what_arrow_makes(case, count):
    value, kind = case

    made = repeat(value, kind, count)

    made.validate(full=True)
    assert made.equals(pa.repeat(pa.scalar(value, kind), count))


@pytest.mark.parametrize("counts", [(3, 1, 3), (0, 5), (5, 0, 7)])
def test_bounds_when_asked_for_fewer_values_then_those_of_more_serve(counts):
    bounds = EvenBounds(4)

    for count in counts:
        numbers = memoryview(bounds.buffer(count)).cast("B").cast("i")
        assert list(numbers[: count + 1]) == [4 * number for number in range(count + 1)]

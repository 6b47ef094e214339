"""Time spans as text, seconds and timedeltas."""

from __future__ import annotations

import math
from contextlib import suppress
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_sdk.durations import _UNIT_SECONDS, parse_duration, to_microseconds, to_seconds
from iggy_sdk.errors import ConfigurationError

PARTS = st.lists(
    st.tuples(st.integers(0, 10_000), st.sampled_from(sorted(_UNIT_SECONDS))), min_size=1
)


@given(parts=PARTS, gap=st.sampled_from(["", " ", "  "]), inside=st.sampled_from(["", " "]))
def test_parse_duration_when_parts_are_joined_then_adds_them_up(parts, gap, inside):
    text = (gap or " ").join(f"{number}{inside}{unit}" for number, unit in parts)

    expected = sum(number * _UNIT_SECONDS[unit] for number, unit in parts)
    assert parse_duration(text) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5s", 5.0),
        ("500ms", 0.5),
        ("1m 30s", 90.0),
        ("1m30s", 90.0),
        ("2 hours", 7200.0),
        ("1.5s", 1.5),
        ("10us", 1e-5),
        ("1d", 86_400.0),
        ("0", 0.0),
        ("none", 0.0),
        ("disabled", 0.0),
        ("unlimited", 0.0),
    ],
)
def test_parse_duration_when_text_is_valid_then_gives_seconds(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", " ", "5", "s", "5 parsecs", "-1s", "1s x", "1s,2s", "1.s"])
def test_parse_duration_when_text_is_no_time_span_then_says_how_to_write_one(text):
    with pytest.raises(ConfigurationError, match=r"linger is .*500ms"):
        parse_duration(text, name="linger")


@given(text=st.text(max_size=30))
def test_parse_duration_when_text_is_arbitrary_then_gives_seconds_or_refuses(text):
    with suppress(ConfigurationError):
        assert parse_duration(text) >= 0


@given(span=st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=40_000)))
def test_to_microseconds_when_span_is_a_timedelta_then_is_exact(span):
    assert to_microseconds(span) == span // timedelta(microseconds=1)
    assert to_seconds(span) == span.total_seconds()


@given(seconds=st.floats(0, 1e9))
def test_to_microseconds_when_span_is_a_float_then_rounds(seconds):
    assert abs(to_microseconds(seconds) - seconds * 1e6) <= 1
    assert to_seconds(seconds) == seconds


@pytest.mark.parametrize("span", [-1, -0.5, timedelta(seconds=-1), math.nan, True, "5s", None])
def test_to_seconds_when_span_is_none_then_refuses(span):
    with pytest.raises(ConfigurationError):
        to_seconds(span)


@pytest.mark.parametrize("span", [math.inf, 1e20])
def test_to_microseconds_when_the_wire_cannot_say_it_then_refuses(span):
    with pytest.raises(ConfigurationError, match="shorter"):
        to_microseconds(span)

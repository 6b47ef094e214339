"""Sizes as text, against every size that a real server wrote, and durations as text."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol.errors import InvalidField, LocalProtocolError
from iggy_protocol.rest import format_size, parse_size
from iggy_protocol.status_table import StatusCode
from iggy_protocol.unit_text import parse_duration
from tests.protocol.http_recordings import EXCHANGES

if TYPE_CHECKING:
    from collections.abc import Iterator

SECOND = 1_000_000
DURATIONS = {
    "5ms": 5_000,
    "1 m": 60 * SECOND,
    "7 days": 7 * 86_400 * SECOND,
    "30s": 30 * SECOND,
    "1h 1m 1s": 3661 * SECOND,
    "2 days 4 hours 15 minutes": (2 * 86_400 + 4 * 3600 + 15 * 60) * SECOND,
    "1w": 7 * 86_400 * SECOND,
    "1 month": 2_630_016 * SECOND,
    "1year": 31_557_600 * SECOND,
    "100MS": 100_000,
    "1.5s": 1_500_000,
    "1500 ns 500ns": 2,
    "3 us": 3,
    "3µs": 3,
    "0": 0,
    "0 s": 0,
    "none": 0,
    "Unlimited": 0,
    "disabled": 0,
}
SIZES = {
    "0 B": 0,
    "1 B": 1,
    "69 B": 69,
    "999 B": 999,
    "1 KB": 1000,
    "1.023 KB": 1023,
    "1 KiB": 1024,
    "1.133 KB": 1133,
    "1.202 KB": 1202,
    "1.5 KiB": 1536,
    "10 KiB": 10240,
    "15.5 KB": 15500,
    "80 KiB": 81920,
    "492 KiB": 503808,
    "1 MB": 10**6,
    "3136.5 KiB": 3211776,
    "106436 KiB": 108990464,
    "1 GiB": 2**30,
    "264212084 KiB": 270553174016,
    "1 EB": 10**18,
    "18446744073709551.615 KB": 2**64 - 1,
}


@pytest.mark.parametrize("text", SIZES)
def test_size_when_worked_by_hand_then_reads_and_writes_alike(text):
    assert parse_size(text) == SIZES[text]
    assert format_size(parse_size(text)) == text


def recorded_sizes(value: Any) -> Iterator[str]:
    """Walk every text in a JSON value that is a size."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for element in value:
            yield from recorded_sizes(element)
    elif isinstance(value, str) and re.fullmatch(r"[0-9.]+ [A-Za-z]*B", value):
        yield value


def test_size_when_recorded_then_is_written_as_the_real_server_wrote_it():
    texts = {size for exchange in EXCHANGES for size in recorded_sizes(exchange.response)}

    assert {text: format_size(parse_size(text)) for text in texts} == {text: text for text in texts}
    assert len(texts) >= 10


U64S = st.integers(min_value=0, max_value=2**64 - 1)
ROUND_U64S = st.builds(
    lambda number, unit: number * unit,
    st.integers(min_value=0, max_value=9999),
    st.sampled_from([1024**rank for rank in range(6)] + [1000**rank for rank in range(6)]),
).filter(lambda size: size < 2**64)


@given(U64S | ROUND_U64S)
def test_size_when_written_then_reads_back_to_the_same_byte(size):
    assert parse_size(format_size(size)) == size


@given(U64S | ROUND_U64S)
def test_size_when_written_then_no_larger_unit_is_exact_with_three_decimals(size):
    units = {"B": 1}
    for rank, prefix in enumerate("KMGTPE", start=1):
        units[f"{prefix}B"] = 1000**rank
        units[f"{prefix}iB"] = 1024**rank
    number, unit = format_size(size).split(" ")

    assert Fraction(number) * units[unit] == size
    assert len(number.partition(".")[2]) <= 3
    for name, factor in units.items():
        if factor > units[unit] and size >= factor:
            assert (Fraction(size, factor) * 1000).denominator != 1, name


@pytest.mark.parametrize("size", [-1, 2**64])
def test_format_size_when_out_of_range_then_refuses(size):
    with pytest.raises(LocalProtocolError):
        format_size(size)


@pytest.mark.parametrize(
    ("text", "size"), [("42", 42), ("1GB", 10**9), ("1.5  KiB", 1536), ("0.5KB", 500)]
)
def test_parse_size_when_written_more_loosely_then_still_reads(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    [
        *("", "B", "-1 B", "1 b", "1 kB", "1 XB", "1,5 KB", "1. KB", ".5 KB", "1 KB ", "٣ B"),
        *("0.5 B", "1.0001 KB", "18446744073709551616", "16 EiB", "1" * 21, "1 K"),
    ],
)
def test_parse_size_when_it_is_no_size_then_refuses_with_status_80(text):
    with pytest.raises(InvalidField) as caught:
        parse_size(text)

    assert caught.value.status == StatusCode.INVALID_SIZE_BYTES


@pytest.mark.parametrize("text", DURATIONS)
def test_duration_when_written_as_people_do_then_is_read(text):
    assert parse_duration(text) == DURATIONS[text]


@pytest.mark.parametrize("text", ["", " ", "5", "s", "5 parsecs", "5s5", "-5s", "1 s, 2 s", "1ns"])
def test_duration_when_it_is_none_then_refused(text):
    with pytest.raises(ValueError, match=r"duration|microseconds"):
        parse_duration(text)


def test_duration_when_it_does_not_fit_64_bits_then_refused():
    with pytest.raises(ValueError, match="64 bits"):
        parse_duration("99999999999 years")

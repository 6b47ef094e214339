"""Durations and sizes, read and written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol import parse_duration
from iggy_ref_server.config.syntax import (
    EXPIRY_US_MAX,
    NEVER_US,
    SERVER_DEFAULT,
    UNLIMITED_BYTES,
    format_duration,
    format_expiry,
    format_size,
    format_topic_size,
    parse_expiry,
    parse_size,
    parse_topic_size,
)

U64S = st.integers(0, 2**64 - 1)
SIZES = {
    "1 GiB": 2**30,
    "100 KB": 100_000,
    "100.00 KB": 100_000,
    "512B": 512,
    "512": 512,
    "0 B": 0,
    "5KiB": 5 * 1024,
    "5 kib": None,
    "1 k": 1000,
    "1 kB": 1000,
    "4 Gi": 4 * 2**30,
    "1.5 MiB": 1_572_864,
    "unlimited": 0,
    "none": 0,
}


@given(U64S)
def test_duration_when_written_then_reads_back(duration_us):
    assert parse_duration(format_duration(duration_us)) == duration_us


def test_duration_when_written_then_is_short():
    assert format_duration(90_061_000_005) == "1days 1h 1m 1s 5us"
    assert format_duration(0) == "0s"


@pytest.mark.parametrize("text", [text for text, size in SIZES.items() if size is not None])
def test_size_when_written_as_people_do_then_is_read(text):
    assert parse_size(text) == SIZES[text]


@pytest.mark.parametrize("text", ["", "GB", "5 kib", "5 kb", "1 XB", "1.0005 KB", "-1", "1 GB 2"])
def test_size_when_it_is_none_then_refused(text):
    with pytest.raises(ValueError, match=r"size|bytes"):
        parse_size(text)


@given(U64S)
def test_size_when_written_then_reads_back(size_bytes):
    assert parse_size(format_size(size_bytes)) == size_bytes


@given(st.text(max_size=12))
def test_units_when_given_any_text_then_answer_or_refuse(text):
    for parse in (parse_duration, parse_size, parse_expiry, parse_topic_size):
        try:
            value = parse(text)
        except ValueError:
            continue
        assert 0 <= value < 2**64


@pytest.mark.parametrize("text", ["none", "None", "unlimited", "never_expire"])
def test_expiry_when_never_then_is_what_the_wire_says(text):
    assert parse_expiry(text) == NEVER_US


@pytest.mark.parametrize("text", ["server_default", "default", "Server_default"])
def test_expiry_when_left_to_the_server_then_is_what_the_wire_says(text):
    assert parse_expiry(text) == SERVER_DEFAULT


@pytest.mark.parametrize("text", ["0", "0 s", "200 years", "soon"])
def test_expiry_when_senseless_then_refused(text):
    with pytest.raises(ValueError):
        parse_expiry(text)


@given(st.integers(0, EXPIRY_US_MAX) | st.just(NEVER_US))
def test_expiry_when_written_then_reads_back(expiry_us):
    assert parse_expiry(format_expiry(expiry_us)) == expiry_us


def test_topic_size_when_written_as_people_do_then_is_read():
    assert parse_topic_size("unlimited") == UNLIMITED_BYTES
    assert parse_topic_size("server_default") == parse_topic_size("0") == SERVER_DEFAULT
    assert parse_topic_size("10 GiB") == 10 * 2**30


@given(U64S)
def test_topic_size_when_written_then_reads_back(size_bytes):
    assert parse_topic_size(format_topic_size(size_bytes)) == size_bytes

"""Dialects: the versions that clients announce, and what a command has in each."""

from __future__ import annotations

import pytest

from iggy_protocol import (
    CLASSIC,
    V0_11,
    V0_12_0,
    V0_12_2,
    VERSION_WINDOWS,
    ByDialect,
    Dialect,
    Version,
    dialect_of,
    dialect_of_sdk,
)


@pytest.mark.parametrize(
    ("announced", "sdk_version", "expected"),
    [
        ("0.10.0", "", None),
        ("0.11.0", "0.11.0", V0_11),
        ("0.11.1", "0.11.1", V0_11),
        ("0.12.0", "0.11.1-edge.5", V0_12_0),
        ("0.12.0", "0.12.0", V0_12_2),
        ("0.12.0", "no number", V0_12_0),
        ("0.12.1", "0.11.1-edge.5", None),
        ("0.12.2", "0.11.1-edge.9", V0_12_2),
        ("0.13.0", "0.13.0", None),
        ("1.0.0", "1.0.0", None),
    ],
)
def test_dialect_when_a_client_announces_a_version_then_follows_the_table(
    announced, sdk_version, expected
):
    version = Version(*map(int, announced.split(".")))

    assert dialect_of(version, sdk_version) is expected


def test_version_when_packed_then_is_the_number_of_the_wire():
    assert Version(0, 11, 0).pack() == 0x2C00
    assert Version(0, 12, 2).pack() == 0x3002
    assert Version.unpack(0x3002) == Version(0, 12, 2)
    assert str(Version.unpack(0x2C00)) == "0.11.0"


def test_windows_when_read_in_order_then_do_not_overlap():
    ends = [end for window in VERSION_WINDOWS for end in (window.lowest, window.highest)]

    assert ends == sorted(ends)
    assert [window.dialect for window in VERSION_WINDOWS] == [V0_11, V0_12_0, V0_12_2]


def test_by_dialect_when_a_dialect_is_not_named_then_has_the_value_of_the_one_before():
    sizes = ByDialect(16, {V0_12_0: 40})

    assert [sizes[dialect] for dialect in Dialect] == [16, 16, 40, 40]


def test_dialect_when_asked_what_its_connections_are_like_then_says_so_by_generation():
    assert [one for one in Dialect if one.is_lockstep] == [V0_11]
    assert [one for one in Dialect if one.binds_sessions] == [V0_12_0, V0_12_2]
    assert [one.generation for one in Dialect] == ["0.8", "0.9", "0.10", "0.10"]


@pytest.mark.parametrize(
    ("version", "dialect"),
    [
        ("0.10.0", CLASSIC),
        ("0.11.0", V0_11),
        ("0.11.1-edge.5", V0_12_0),
        ("0.12.0", V0_12_2),
        ("0.12.3-rc.1", V0_12_2),
        ("1.0.0", V0_12_2),
        ("", CLASSIC),
        ("1", CLASSIC),
        ("0.12", CLASSIC),
        ("0.12.0.1", CLASSIC),
        ("v0.12.0", CLASSIC),
        ("9" * 5000 + ".1.1", CLASSIC),
        ("0.12.٣", CLASSIC),
    ],
)
def test_version_of_an_sdk_when_told_then_says_what_its_client_speaks(version, dialect):
    assert dialect_of_sdk(version) is dialect

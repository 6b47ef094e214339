"""Names inside the data directory."""

from __future__ import annotations

import os
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_ref_server.storage.interface import StorageError
from iggy_ref_server.storage.paths import aside, checked, checked_directory, is_aside, parent


@given(st.text("a./\0é", max_size=8))
def test_checked_when_it_accepts_then_the_path_stays_inside(path):
    with suppress(StorageError):
        accepted = checked("open", path)

        assert os.path.normpath(f"root/{accepted}") == f"root/{path}"


@pytest.mark.parametrize("path", ["a", "a/b/c", "state/metadata.log", "..a", "a..b", "...", "é"])
def test_checked_when_the_path_is_plain_then_accepts(path):
    assert checked("open", path) == checked_directory("entries", path) == path


def test_checked_when_empty_then_only_a_directory_may_be():
    assert checked_directory("entries", "") == ""
    with pytest.raises(StorageError):
        checked("open", "")


@pytest.mark.parametrize(("path", "expected"), [("a", ""), ("a/b", "a"), ("a/b/c", "a/b")])
def test_parent_when_asked_then_names_the_directory(path, expected):
    assert parent(path) == expected


@pytest.mark.parametrize(("path", "expected"), [("a", ".a.aside"), ("a/b", "a/.b.aside")])
def test_aside_when_asked_then_is_in_the_same_directory(path, expected):
    assert aside(path) == expected
    assert is_aside(expected.rpartition("/")[2])


@pytest.mark.parametrize("name", ["a", "a.aside", ".a", "00000000000000000000.log"])
def test_is_aside_when_an_ordinary_name_then_no(name):
    assert not is_aside(name)

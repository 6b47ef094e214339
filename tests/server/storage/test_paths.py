"""Names inside the data directory."""

from __future__ import annotations

import os
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_ref_server.storage.interface import (
    StorageError,
    check_directory_path,
    check_path,
    is_temporary,
    parent_path,
    temporary_path,
)


@given(st.text("a./\0é", max_size=8))
def test_checked_when_it_accepts_then_the_path_stays_inside(path):
    with suppress(StorageError):
        accepted = check_path("open", path)

        assert os.path.normpath(f"root/{accepted}") == f"root/{path}"


@pytest.mark.parametrize("path", ["a", "a/b/c", "state/metadata.log", "..a", "a..b", "...", "é"])
def test_checked_when_the_path_is_plain_then_accepts(path):
    assert check_path("open", path) == check_directory_path("entries", path) == path


def test_checked_when_empty_then_only_a_directory_may_be():
    assert check_directory_path("entries", "") == ""
    with pytest.raises(StorageError):
        check_path("open", "")


@pytest.mark.parametrize(("path", "expected"), [("a", ""), ("a/b", "a"), ("a/b/c", "a/b")])
def test_parent_when_asked_then_names_the_directory(path, expected):
    assert parent_path(path) == expected


@pytest.mark.parametrize(("path", "expected"), [("a", ".a.aside"), ("a/b", "a/.b.aside")])
def test_aside_when_asked_then_is_in_the_same_directory(path, expected):
    assert temporary_path(path) == expected
    assert is_temporary(expected.rpartition("/")[2])


@pytest.mark.parametrize("name", ["a", "a.aside", ".a", "00000000000000000000.log"])
def test_is_aside_when_an_ordinary_name_then_no(name):
    assert not is_temporary(name)

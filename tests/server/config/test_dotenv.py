"""The grammar of ``.env`` files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_ref_server.config.sources import parse_dotenv

LINES = {
    "A=1": "1",
    "export A=1": "1",
    "  A = 1  ": "1",
    "A=": "",
    "A=''": "",
    "A='$HOME # it is'": "$HOME # it is",
    'A="two words"': "two words",
    r'A="a\nb\"c"': 'a\nb"c',
    "A=one two # comment": "one two",
    "A=one#two": "one#two",
    "A=#5": None,
    'A="${HOME}/data" # comment': "/here/data",
    "A=$HOME/data": "/here/data",
    r"A=\$HOME": "$HOME",
    "A=$GONE.": ".",
}


@pytest.mark.parametrize("line", [line for line, value in LINES.items() if value is not None])
def test_line_when_written_as_shells_do_then_is_read(line):
    variables, complaints = parse_dotenv(f"# first\n\n{line}\n", {"HOME": "/here"})

    assert (variables, complaints) == ({"A": LINES[line]}, [])


def test_lines_when_they_refer_to_earlier_ones_then_are_filled_in():
    assert parse_dotenv("A=1\nB=${A}2\n", {})[0] == {"A": "1", "B": "12"}


@pytest.mark.parametrize("line", ["A", "=1", "1A=2", "A='x", 'A="x', "A B=1"])
def test_line_when_it_is_none_then_complained_about(line):
    assert parse_dotenv(f"\n{line}", {}) == ({}, ["line 2 is not NAME=VALUE"])


@given(st.text(max_size=40))
def test_text_when_it_is_anything_then_never_fails(text):
    parse_dotenv(text, {})

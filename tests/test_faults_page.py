"""The page of faults is correct: each row says what happens and names tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "faults.md"
PROOF = re.compile(r"`([\w/]+\.py)::(\w+)`")
HEADS = (
    ["fault", "`memory`", "`written`", "`fsync`", "tested by"],
    ["fault", "what happens", "tested by"],
)


def rows() -> list[list[str]]:
    """Return the cells of all rows, those of heads included."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    found = [line for line in lines if line.startswith("|") and not line.startswith("|---")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in found]


FAULTS = [row for row in rows() if row not in HEADS]


@cache
def names_in(file: str) -> frozenset[str]:
    """Name the tests of a file below tests."""
    tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
    return frozenset(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    )


def test_tables_when_read_then_every_fault_is_there_once_and_says_all():
    widths = {len(head) for head in HEADS}
    names = [row[0] for row in FAULTS]

    assert len(FAULTS) > 30
    assert {len(row) for row in FAULTS} <= widths
    assert all(all(row) for row in FAULTS)
    assert len(names) == len(set(names))


@pytest.mark.parametrize("row", FAULTS, ids=lambda row: row[0])
def test_fault_when_a_row_has_it_then_its_tests_exist(row):
    proofs = PROOF.findall(row[-1])

    assert proofs
    assert PROOF.sub("", row[-1]).strip(" ,") == ""
    assert [name for file, name in proofs if name not in names_in(file)] == []

"""The list of accepted differences is in order: real lines, real weaknesses, real tests."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.server.replay.deviations import Deviation, deviations, listed_lines, verdict
from tests.server.replay.recording import GOLDEN

ROOT = Path(__file__).parents[3]


def functions(path: Path) -> set[str]:
    """Name the tests of a file."""
    tree = ast.parse(path.read_text())
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


@pytest.mark.parametrize(
    "deviation", deviations(), ids=lambda found: f"{found.file} {found.weakness}"
)
def test_deviation_when_read_then_it_names_what_it_betters_and_what_proves_it(
    deviation: Deviation,
):
    lines = (GOLDEN / deviation.file).read_text().splitlines()
    file, _, name = deviation.test.partition("::")

    assert deviation.lines
    assert 1 < min(deviation.lines) <= max(deviation.lines) <= len(lines)
    assert re.fullmatch(r"[CDS]\d+", deviation.weakness)
    assert len(deviation.reason.split()) > 3
    assert name in functions(ROOT / file)


def test_deviations_when_counted_then_no_line_is_listed_twice():
    listed = [(found.file, line) for found in deviations() for line in found.lines]

    assert len(listed) == len(set(listed))


def test_verdict_when_a_listed_line_is_equal_then_it_is_complained_of():
    file = deviations()[0].file
    listed = dict.fromkeys(listed_lines(file), "differs")
    first = next(iter(listed))

    assert verdict(listed, file) == ""
    assert str(first) in verdict(
        {line: what for line, what in listed.items() if line != first}, file
    )
    assert "news" in verdict({**listed, 10_000: "news"}, file)

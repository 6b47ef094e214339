"""The page about Arrow is correct: its Python runs, and prints what the page says."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest

from iggy_sdk.arrow.columns import FIELDS
from tests.test_readme import blocks_of

PAGE = Path(__file__).resolve().parents[3] / "docs" / "arrow.md"
ADDRESS = "iggy://iggy:iggy@127.0.0.1:8090"


@pytest.mark.timeout(90)
def test_page_when_its_python_runs_then_it_prints_what_the_page_says(iggy_server):
    names: dict[str, object] = {"__name__": "__page__"}
    printed, different = "", []
    for block in blocks_of(PAGE):
        if block.language == "text" and printed != block.body:
            different.append((block.line, printed, block.body))
        printed = ""
        if block.language == "python":
            output = io.StringIO()
            text = "\n" * (block.line - 1) + block.body.replace(ADDRESS, iggy_server.url)
            with contextlib.redirect_stdout(output):
                exec(compile(text, str(PAGE), "exec"), names)
            printed = output.getvalue()

    assert not different


def test_page_when_read_then_names_each_column():
    text = PAGE.read_text(encoding="utf-8")

    assert [name for name in FIELDS if f"`{name}`" not in text] == []

"""The front pages are correct: their Python runs and prints what they show, commands exist."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "protocol" / "README.md", ROOT / "docs" / "server.md"]
OTHER_PAGES = [ROOT / "CONTRIBUTING.md", ROOT / "examples" / "README.md"]

FENCE = re.compile(r"^```(?P<language>\w*)[^\n]*\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
MAKE_INLINE = re.compile(r"`make ([a-z][a-z-]*)")
MAKE_LINE = re.compile(r"^\$? ?make ([a-z][a-z-]*)", re.MULTILINE)
TARGET = re.compile(r"^([a-z][a-z-]*):", re.MULTILINE)


class Block(NamedTuple):
    """A fenced block of a page, the line it starts on, and whether it follows another at once."""

    language: str
    body: str
    line: int
    follows: bool


def blocks_of(page: Path) -> list[Block]:
    """Cut the fenced blocks out of a page."""
    text = page.read_text(encoding="utf-8")
    blocks, end = [], 0
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 2
        follows = end > 0 and not text[end : match.start()].strip()
        blocks.append(Block(match["language"], match["body"], line, follows))
        end = match.end()
    return blocks


def page_name(page: Path) -> str:
    """Name a page in the report."""
    return page.relative_to(ROOT).as_posix()


def run(page: Path, block: Block, names: dict[str, object]) -> str:
    """Run a block after those before it and return what it prints."""
    # The newlines in front let a traceback name the page's own line.
    code = compile("\n" * (block.line - 1) + block.body, str(page), "exec")
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(code, names)
    return output.getvalue()


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_page_when_its_python_runs_then_prints_the_text_block_that_follows(page):
    names: dict[str, object] = {"__name__": "__page__"}
    output = ""
    for block in blocks_of(page):
        if block.language == "text" and block.follows and output:
            assert output == block.body
        output = run(page, block, names) if block.language == "python" else ""


@pytest.mark.parametrize("page", [*PAGES, *OTHER_PAGES], ids=page_name)
def test_page_when_it_names_a_make_target_then_the_target_exists(page):
    text = page.read_text(encoding="utf-8")
    targets = set(TARGET.findall((ROOT / "Makefile").read_text(encoding="utf-8")))
    shell = "\n".join(block.body for block in blocks_of(page) if block.language in {"", "sh"})

    named = set(MAKE_INLINE.findall(text)) | set(MAKE_LINE.findall(shell))

    assert named <= targets


def test_readme_when_read_then_shows_python_and_commands():
    readme = PAGES[0]

    languages = [block.language for block in blocks_of(readme)]

    assert {"python", "sh"} <= set(languages)

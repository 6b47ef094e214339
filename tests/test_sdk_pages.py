"""The pages of the SDK are correct: their Python runs on both engines and prints what they show."""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import re
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import pytest

from iggy_sdk import compat
from iggy_sdk.client import IggyClient
from iggy_sdk.consumer import IggyConsumer
from iggy_sdk.producer import Producer
from iggy_sdk.request_reply import envelope
from tests.fix_backends import ENGINES
from tests.test_readme import Block, blocks_of

ROOT = Path(__file__).resolve().parent.parent
TASKS = ROOT / "docs" / "sdk.md"
MIGRATION = ROOT / "docs" / "sdk-migration.md"
REQUEST_REPLY = ROOT / "docs" / "request-reply.md"
FRAMEWORKS = ROOT / "docs" / "web-frameworks.md"
WEB_SHOP = ROOT / "examples" / "fastapi_app" / "app.py"
REPLAY = ROOT / "docs" / "replay.md"
PRINTED_ADDRESS = "127.0.0.1:8090"

pytestmark = pytest.mark.timeout(90)


async def run(block: Block, page: Path, names: dict[str, Any], address: str) -> str:
    """Run a block, awaiting at its top if it does, and return what it prints."""
    text = "\n" * (block.line - 1) + block.body.replace(PRINTED_ADDRESS, address)
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(text, str(page), "exec", flags=flags, dont_inherit=True)
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        result = eval(code, names)
        if inspect.isawaitable(result):
            await result
    return output.getvalue()


async def run_page(page: Path, address: str) -> list[tuple[int, str, str]]:
    """Run all blocks of a page and return where it says something else than it prints."""
    names, output, different = vars(sys.modules["__page__"]), "", []
    for block in blocks_of(page):
        if block.language == "text" and block.follows:
            said = block.body.replace(PRINTED_ADDRESS, address)
            if output != said:
                different.append((block.line, said, output))
        output = await run(block, page, names, address) if block.language == "python" else ""
    return different


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "page", [TASKS, MIGRATION, REPLAY, REQUEST_REPLY], ids=lambda page: page.name
)
def test_page_when_its_python_runs_then_prints_the_text_block_that_follows(
    iggy_server, engine, page, monkeypatch
):
    # Classes that a page defines look up their own module.
    monkeypatch.setitem(sys.modules, "__page__", ModuleType("__page__"))
    host, port = iggy_server.address

    different = anyio.run(partial(run_page, page, f"{host}:{port}"), backend=engine)

    assert different == []


def test_tasks_when_read_then_every_block_of_python_is_run():
    languages = {block.language for block in blocks_of(TASKS)}

    # The diagrams of states are generated, and ``test_state_diagrams`` compares them.
    assert languages <= {"python", "text", "mermaid"}


def test_frameworks_when_read_then_its_python_is_that_of_the_example():
    blocks = [block for block in blocks_of(FRAMEWORKS) if block.language == "python"]
    source = WEB_SHOP.read_text(encoding="utf-8")

    assert blocks
    assert [block.line for block in blocks if block.body not in source] == []


def test_request_reply_when_read_then_names_every_header():
    text = REQUEST_REPLY.read_text(encoding="utf-8")
    names = [
        value for name, value in vars(envelope).items() if name.isupper() and isinstance(value, str)
    ]

    assert len(names) == 5
    assert [name for name in names if f"| `{name}` |" not in text] == []


OURS = re.compile(r"`(?:await |async with )?(client|producer|consumer)\.(\w+)")
KINDS: dict[str, type] = {"client": IggyClient, "producer": Producer, "consumer": IggyConsumer}


def test_migration_when_it_names_a_method_then_the_method_exists():
    text = MIGRATION.read_text(encoding="utf-8")

    missing = [
        f"{owner}.{name}" for owner, name in OURS.findall(text) if not hasattr(KINDS[owner], name)
    ]

    assert OURS.findall(text)
    assert not missing


def test_migration_when_read_then_names_everything_that_compat_offers():
    text = MIGRATION.read_text(encoding="utf-8")

    unnamed = [name for name in compat.__all__ if f"`{name}" not in text]

    assert not unnamed

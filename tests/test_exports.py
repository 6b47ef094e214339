"""The public modules: ``__all__`` is complete, sorted, and nothing else is public."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import iggy_sdk

# Names that a module needs for lazy imports.
LAZY_IMPORT_NAMES = frozenset({"TYPE_CHECKING", "annotations", "import_module"})
# The values that both sides speak are the protocol's, and the SDK hands them on.
REEXPORTED_FROM = {"iggy_sdk": "iggy_protocol"}

PUBLIC_MODULES = (
    "iggy_protocol",
    "iggy_protocol.quic",
    "iggy_protocol.rest",
    "iggy_protocol.websocket",
    "iggy_sdk",
    "iggy_ref_server",
    "spark_jobs",
)


def sort_key(name: str) -> tuple[int, list[int | str]]:
    """Order names as the linter does: CONSTANTS, Classes, functions; numbers by their value."""
    rank = 0 if name.isupper() else 1 if name[0].isupper() else 2
    parts = re.split(r"(\d+)", name)
    return rank, [int(part) if part.isdigit() else part for part in parts]


def public_names(module: ModuleType) -> set[str]:
    """List the public names at run time, without submodules and lazy-import helpers."""
    offered = {name: getattr(module, name) for name in dir(module) if name not in LAZY_IMPORT_NAMES}
    return {
        name
        for name, value in offered.items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }


def has_docstring(value: object) -> bool:
    """Tell whether someone wrote a docstring; what ``dataclass`` and ``Enum`` invent is none."""
    own = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
    docstring: str = own or ""
    return bool(docstring) and not docstring.startswith(f"{getattr(value, '__name__', '')}(")


@pytest.mark.parametrize("name", PUBLIC_MODULES)
def test_public_module_when_imported_then_all_is_sorted_and_without_duplicates(name):
    promised = importlib.import_module(name).__all__

    assert list(promised) == sorted(set(promised), key=sort_key)


@pytest.mark.parametrize("name", PUBLIC_MODULES)
def test_public_module_when_imported_then_offers_exactly_what_it_promises(name):
    module = importlib.import_module(name)

    assert public_names(module) == set(module.__all__)


@pytest.mark.parametrize("name", PUBLIC_MODULES)
def test_public_module_when_imported_then_leaks_nothing_private_or_foreign(name):
    module = importlib.import_module(name)
    values = {promised: getattr(module, promised) for promised in module.__all__}

    private = [promised for promised in values if promised.startswith("_")]
    foreign = [
        promised
        for promised, value in values.items()
        if (inspect.isclass(value) or inspect.isroutine(value))
        and value.__module__.partition(".")[0]
        not in {name.partition(".")[0], REEXPORTED_FROM.get(name)}
    ]

    assert (private, foreign) == ([], [])


@pytest.mark.parametrize("name", PUBLIC_MODULES)
def test_public_module_when_read_then_every_class_and_function_has_a_docstring(name):
    module = importlib.import_module(name)
    values = {promised: getattr(module, promised) for promised in module.__all__}

    silent = [
        promised
        for promised, value in values.items()
        if (inspect.isclass(value) or inspect.isroutine(value)) and not has_docstring(value)
    ]

    assert not silent


def test_sdk_when_imported_then_it_loads_nothing():
    script = "import sys, iggy_sdk; print(sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=20
    )

    assert "'iggy_sdk'" in done.stdout
    assert "iggy_protocol" not in done.stdout
    assert "anyio" not in done.stdout


def test_sdk_when_type_checkers_read_it_then_they_see_what_programs_get():
    tree = ast.parse(Path(inspect.getfile(iggy_sdk)).read_text(encoding="utf-8"))
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name: node.module
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    assert seen == iggy_sdk._HOME_OF

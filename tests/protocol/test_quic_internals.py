"""What is used of ``aioquic`` beyond its documented interface: the table, and the check of it."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import aioquic
import pytest
from aioquic.quic import connection, stream
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.packet import QuicFrameType
from aioquic.quic.recovery import QuicPacketPacer

from iggy_protocol.quic import (
    AIOQUIC_INTERNALS,
    AIOQUIC_VERSIONS,
    AioquicInternal,
    check_aioquic,
    core,
)

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "protocol/iggy_protocol/quic/aioquic_internals.py"
# The modules that hold objects of aioquic.
FILES = sorted(
    file
    for pattern in (
        "protocol/iggy_protocol/quic/*.py",
        "iggy_ref_server/net/quic/*.py",
        "iggy_sdk/transport/quic*.py",
        "iggy_sdk/session/quic*.py",
    )
    for file in ROOT.glob(pattern)
    if file != TABLE
)
# Objects as the library makes them, of each class that has a subclass here.
PLAIN: dict[type, object] = {
    connection.QuicConnection: connection.QuicConnection(
        configuration=QuicConfiguration(is_client=True)
    ),
    connection.Limit: connection.Limit(QuicFrameType.MAX_DATA, "max_data", 1),
    QuicPacketPacer: QuicPacketPacer(max_datagram_size=1200),
}


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def base_of(name: str) -> object | None:
    """Return a plain object of the class of aioquic that a class of the core extends."""
    parents: tuple[type, ...] = getattr(core, name).__mro__
    return next((plain for base, plain in PLAIN.items() if base in parents), None)


def reached_privates(tree: ast.AST) -> set[str]:
    """Return private attributes of anything but ``self``."""
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and is_private(node.attr)
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    }


def inherited_privates(tree: ast.AST) -> set[str]:
    """Return private attributes that classes of the core use or override of those they extend."""
    found = set()
    for made in [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]:
        plain = base_of(made.name)
        for node in ast.walk(made):
            name = getattr(node, "attr", getattr(node, "name", None))
            if isinstance(name, str) and is_private(name) and hasattr(plain, name):
                found.add(name)
    return found


def used_names(tree: ast.AST) -> set[str]:
    """Return every attribute, method and imported name."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.FunctionDef | ast.alias):
            names.add(node.name)
    return names


# The table


def test_private_attributes_when_used_then_are_in_the_table():
    core_tree = parsed(ROOT / "protocol/iggy_protocol/quic/core.py")
    used = set().union(*map(reached_privates, map(parsed, FILES))) | inherited_privates(core_tree)

    assert used == {row.attribute for row in AIOQUIC_INTERNALS if is_private(row.attribute)}


def test_private_modules_when_imported_then_are_in_the_table():
    imported = {
        (node.module.removeprefix("aioquic."), name.name)
        for tree in map(parsed, FILES)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("aioquic._")
        for name in node.names
    }

    private = {row for row in AIOQUIC_INTERNALS if is_private(row.module)}
    assert imported == {(row.module, row.attribute) for row in private}


def test_rows_when_compared_with_the_code_then_each_is_used_and_is_there_once():
    used = set().union(*map(used_names, map(parsed, FILES)))

    assert [row.name for row in AIOQUIC_INTERNALS if row.attribute not in used] == []
    assert len({row[:3] for row in AIOQUIC_INTERNALS}) == len(AIOQUIC_INTERNALS)
    assert all(row.reason for row in AIOQUIC_INTERNALS)


def test_versions_when_compared_with_the_distribution_then_are_those_of_each_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    required = {
        name: requirement.removeprefix("aioquic")
        for name, requirements in extras.items()
        for requirement in requirements
        if requirement.startswith("aioquic")
    }

    assert required["quic"] == AIOQUIC_VERSIONS
    assert set(required.values()) == {AIOQUIC_VERSIONS}


# The check


def sentence(internals: Any = AIOQUIC_INTERNALS) -> str:
    with pytest.raises(ImportError) as caught:
        check_aioquic(internals)
    assert caught.value.name == "aioquic"
    assert not isinstance(caught.value, ModuleNotFoundError)
    return str(caught.value)


def test_check_when_all_is_there_then_says_nothing():
    check_aioquic()


def test_check_when_an_attribute_is_missing_then_names_it_its_use_and_the_versions(monkeypatch):
    monkeypatch.delattr(connection.QuicConnection, "_close_begin")

    assert sentence() == (
        f"aioquic {aioquic.__version__} has no QuicConnection._close_begin, which QUIC connections "
        "need (a stateless reset ends the connection); versions that work: >=1.7,<1.8. "
        "Run: pip install 'iggy-python[quic]'"
    )


def test_check_when_a_class_is_missing_then_names_its_first_attribute(monkeypatch):
    fake = ModuleType(stream.__name__)
    vars(fake).update(vars(stream))
    monkeypatch.setitem(sys.modules, stream.__name__, fake)
    monkeypatch.delattr(fake, "QuicStream")

    assert "has no QuicStream.receiver, which" in sentence()


def test_check_when_a_name_of_a_module_is_missing_then_names_the_module(monkeypatch):
    fake = ModuleType("aioquic._buffer")
    monkeypatch.setitem(sys.modules, fake.__name__, fake)

    assert "has no _buffer.Buffer, which" in sentence()


def test_check_when_a_module_is_missing_then_names_what_was_wanted_of_it():
    row = AioquicInternal("quic.nowhere", "", "Nothing", "an example")

    assert "has no quic.nowhere.Nothing, which QUIC connections need (an example)" in sentence(
        [row]
    )


@pytest.mark.parametrize("row", AIOQUIC_INTERNALS, ids=lambda row: row.name)
def test_check_when_one_row_has_another_name_then_refuses(row):
    assert f"{row.name}_renamed" in sentence([row._replace(attribute=f"{row.attribute}_renamed")])


# Loading


def test_protocol_when_imported_then_loads_no_library_of_a_transport():
    script = "import sys, iggy_protocol; print({'aioquic', 'websockets'} & {*sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=20
    )

    assert done.stdout == "set()\n"


def test_package_when_the_library_is_missing_then_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "aioquic", None)
    monkeypatch.delitem(sys.modules, "iggy_protocol.quic")

    with pytest.raises(ModuleNotFoundError, match=r"pip install 'iggy-python\[quic\]'") as caught:
        importlib.import_module("iggy_protocol.quic")

    assert caught.value.name == "aioquic"

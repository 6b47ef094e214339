"""The import contracts of pyproject.toml hold, and each reports a violation."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {
    "iggy_protocol": ROOT / "protocol" / "iggy_protocol",
    "iggy_sdk": ROOT / "iggy_sdk",
    "iggy_ref_server": ROOT / "iggy_ref_server",
    "spark_jobs": ROOT / "spark_jobs",
}

# Other packages import from these modules only.
PUBLIC_MODULES = frozenset(
    {
        *PACKAGES,
        "iggy_protocol.quic",
        "iggy_protocol.rest",
        "iggy_protocol.websocket",
        "iggy_sdk.arrow",
        "iggy_sdk.blocking",
        "iggy_sdk.compat",
        "iggy_sdk.duckdb",
        "iggy_sdk.otel",
        "iggy_sdk.polars",
        "iggy_sdk.testing",
    }
)

LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    """Check the contracts on a tree."""
    path = os.pathsep.join([str(root), str(root / "protocol")])
    return subprocess.run(
        [sys.executable, "-c", LINT, "--no-cache", "--no-logo"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200"},
        capture_output=True,
        text=True,
    )


def test_contracts_when_checked_then_all_are_kept():
    result = lint_imports(ROOT)

    assert result.returncode == 0, result.stdout + result.stderr


# One stray import for each contract.
STRAYS = (
    ("protocol/iggy_protocol/errors.py", "import socket"),
    ("protocol/iggy_protocol/errors.py", "from iggy_protocol import connection"),
    ("iggy_sdk/__init__.py", "import trio"),
    ("iggy_sdk/errors.py", "from iggy_sdk import client"),
    ("iggy_ref_server/__init__.py", "import iggy_sdk"),
    ("iggy_ref_server/clock.py", "from iggy_ref_server import shard"),
    ("spark_jobs/__init__.py", "from iggy_protocol import errors"),
    ("iggy_ref_server/net/pipeline.py", "from iggy_ref_server.net import tcp"),
    ("iggy_ref_server/shard/messages.py", "from iggy_ref_server.shard import assembly"),
    ("iggy_ref_server/partitions/journal.py", "from iggy_ref_server.partitions import partition"),
    ("iggy_ref_server/metadata/state.py", "from iggy_ref_server.metadata import store"),
    ("iggy_sdk/consumer/cursor.py", "from iggy_sdk.consumer import builder"),
    ("iggy_sdk/producer/routing.py", "from iggy_sdk.producer import builder"),
)


def test_contracts_when_a_stray_import_breaks_each_then_all_complain(tmp_path):
    for package in PACKAGES.values():
        shutil.copytree(package, tmp_path / package.relative_to(ROOT))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for name, stray in STRAYS:
        with (tmp_path / name).open("a") as module:
            module.write(f"\n{stray}\n")

    report = lint_imports(tmp_path).stdout

    assert "Contracts: 0 kept," in report, report
    assert "iggy_protocol.errors -> socket" in report


def foreign_imports(path: Path) -> list[str]:
    """List the modules of our packages that a file imports."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    modules = [
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    ]
    modules += [
        node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module
    ]
    return [module for module in modules if module.partition(".")[0] in PACKAGES]


@pytest.mark.parametrize("folder", ["examples", "iggy_sdk", "iggy_ref_server", "spark_jobs"])
def test_outsiders_when_they_import_then_use_public_modules(folder):
    violations = [
        f"{path.relative_to(ROOT)}: {module}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for module in foreign_imports(path)
        if module.partition(".")[0] != folder and module not in PUBLIC_MODULES
    ]

    assert not violations

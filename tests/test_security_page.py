"""The security page is correct: its keys exist, and a server accepts its limits."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from iggy_ref_server.config.defaults import DEFAULT_TOML
from iggy_ref_server.config.tree import known_paths
from tests.server.config.loading import load_text

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
EXAMPLE = re.compile(r"^```toml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
KEY = re.compile(r"`([a-z_]+(?:\.[a-z_]+)+)(?: = [^`]*)?`")
NO_KEYS = {"pyproject.toml"}


def bounds_of(text: str) -> dict[str, Any]:
    """List all that a configuration says about limits."""
    limits = tomllib.loads(text)["limits"]
    parts = {name: part for name, part in limits.items() if isinstance(part, dict)}
    return {
        **{name: value for name, value in limits.items() if name not in parts},
        **{f"{name}.{key}": part[key] for name, part in parts.items() for key in part},
    }


def test_keys_when_the_page_names_them_then_they_exist():
    named = set(KEY.findall(PAGE)) - NO_KEYS
    known = {re.sub(r"\[\d*\]", "", path) for path in known_paths()}

    assert len(named) > 10
    assert [
        key for key in named if not any(f"{path}.".startswith(f"{key}.") for path in known)
    ] == []


def test_limits_when_taken_from_the_page_then_the_server_accepts_them(tmp_path):
    [example] = EXAMPLE.findall(PAGE)

    loaded = load_text(tmp_path, example)

    assert loaded.warnings == ()
    assert loaded.config.limits.max_unauthenticated_connections == 64


def test_limits_when_compared_with_the_defaults_then_the_page_leaves_no_bound_wider():
    [example] = EXAMPLE.findall(PAGE)
    advised, defaults = bounds_of(example), bounds_of(DEFAULT_TOML)

    counts = {name: value for name, value in advised.items() if isinstance(value, int)}

    assert set(advised) <= set(defaults)
    assert len(counts) > 5
    assert [name for name, value in counts.items() if value > defaults[name]] == []

"""Where the official clients are that tests run, and what they run there."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = Path(__file__).parent / "scenarios"
SCENARIO_SECONDS_MAX = 60


def wheel_python(version: str = "0.8.0") -> Path:
    """Return the interpreter of an environment with an official client; skip where there is none.

    The gate makes these environments first and ends where it cannot, so it skips nothing.
    """
    interpreter = ROOT / ".venv-wheels" / f"apache-iggy-{version}" / "bin" / "python"
    if not interpreter.exists():
        pytest.skip("the wheel is not installed; tests/interop/make_wheel_venvs.sh does that")
    return interpreter

"""The gate fails because of a change, never by luck; searches are where luck is wanted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from tests.fix_seeds import GATE, SEARCH

ROOT = Path(__file__).resolve().parent.parent
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
GATE_TARGETS = (
    "test",
    "others-part",
    "check",
    "coverage",
    "sanitize-short",
    "test-dialects",
    "test-lowest",
    "test-python",
)
SEARCH_TARGETS = ("fuzz", "slow")

# Hypothesis takes other defaults where `CI` is set: neither the gate nor a search may care.
ON_A_CI_MACHINE = pytest.mark.parametrize("machine", [{}, {"CI": "true"}], ids=["own", "ci"])

# Prints all that chance decides: examples, numbers, and the order in which tasks run.
LUCKY = """
import random, trio
from hypothesis import given, strategies as st

@given(st.lists(st.integers()))
def test_examples(numbers):
    print("example", numbers)

def test_numbers():
    print("number", random.random())

def test_tasks():
    order = []
    async def task(number):
        await trio.lowlevel.checkpoint()
        order.append(number)
    async def main():
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(task, number)
    trio.run(main)
    print("tasks", order)
"""


def recipe(target: str) -> str:
    """Return what a target of the Makefile runs."""
    found = re.search(rf"^{target}:[^\n]*\n((?:\t[^\n]*\n)+)", MAKEFILE, re.MULTILINE)
    assert found is not None, f"there is no target {target}"
    return found[1]


def luck(folder: Path, **environment: str) -> list[str]:
    """Run the lucky tests in a process of their own; return what chance decided."""
    (folder / "test_lucky.py").write_text(LUCKY, encoding="utf-8")
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in ("HYPOTHESIS_PROFILE", "IGGY_SIM_SEED", "CI")
    }
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "tests.fix_seeds", "test_lucky.py"]
    result = subprocess.run(
        command,
        cwd=folder,
        env={**inherited, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    lines = re.findall(r"(?:example|number|tasks) .*", result.stdout)
    assert len(lines) > 20
    return lines


@pytest.mark.timeout(60)
def test_gate_when_run_twice_then_chance_decides_the_same(tmp_path):
    assert luck(tmp_path) == luck(tmp_path, CI="true")


@ON_A_CI_MACHINE
@pytest.mark.timeout(60)
def test_search_when_run_twice_then_chance_decides_otherwise(tmp_path, machine):
    wanted = {"HYPOTHESIS_PROFILE": SEARCH, "HYPOTHESIS_EXAMPLES": "40", "IGGY_SIM_SEED": "random"}

    first, second = (luck(tmp_path, **wanted, **machine) for _ in range(2))

    assert first[:-2] != second[:-2]
    assert first[-2:] != second[-2:]


def test_profile_of_the_gate_when_used_then_is_derandomized_and_remembers_nothing():
    gate, search = settings.get_profile(GATE), settings.get_profile(SEARCH)

    for profile in (gate, settings.get_profile("brief")):
        assert profile.derandomize
        assert profile.database is None
    assert not search.derandomize


@pytest.mark.parametrize("target", GATE_TARGETS)
def test_target_when_part_of_the_gate_then_leaves_nothing_to_luck(target):
    named = re.search(r"HYPOTHESIS_PROFILE=(\w+)", recipe(target))

    assert named is None or settings.get_profile(named[1]).derandomize
    assert "IGGY_SIM_SEED" not in recipe(target)
    assert re.search(rf"^{' '.join(GATE_TARGETS)}: export PYTHONHASHSEED := 0$", MAKEFILE, re.M)


@pytest.mark.parametrize("target", SEARCH_TARGETS)
def test_target_when_a_search_then_takes_another_seed_each_time(target):
    assert "$(SEARCHING)" in recipe(target)
    assert re.search(
        rf"^SEARCHING := IGGY_SIM_SEED=random HYPOTHESIS_PROFILE={SEARCH}$", MAKEFILE, re.M
    )


# What was reached when the floors were set, less about a point: processes and clocks differ from
# run to run. A floor may be raised, and this with it.
REACHED = {"iggy_ref_server": 92, "iggy_sdk": 96, "spark_jobs": 93}


def test_floors_of_coverage_when_set_then_are_those_once_reached_or_higher():
    floors = re.search(r"^COVERAGE_FLOORS := (.+)$", MAKEFILE, re.M)
    assert floors is not None
    chosen = {name: float(floor) for name, floor in (one.split(":") for one in floors[1].split())}

    assert chosen.keys() == REACHED.keys()
    assert not [name for name, floor in chosen.items() if floor < REACHED[name]]
    assert "--branch --source=iggy_protocol" in recipe("coverage")
    assert "floor=100;" in recipe("coverage")


def test_floors_of_coverage_when_the_gate_runs_then_are_in_force():
    assert "$(MAKE) --no-print-directory coverage-floors || status=1" in recipe("test")
    for part in ("test", "others-part"):
        assert "$(COVERED_PYTEST) " in recipe(part)
    assert "coverage" in recipe("others-part")
    assert '--fail-under="$${floor#*:}" || status=1' in recipe("coverage-floors")


def test_sanitizers_when_the_gate_runs_then_try_both_extensions():
    assert "sanitize-short" in recipe("others-part")
    for target in ("sanitize", "sanitize-short"):
        for script in ("tests/protocol/sanitize.sh", "tests/server/sanitize_uring.sh"):
            assert script in recipe(target)


# What the gate has to choose itself, search programs that choose a seed and print it, and ports,
# which two runs on one machine must not choose alike.
BY_CHANCE = {
    "tests/fix_seeds.py",
    "tests/protocol/fuzz_connection.py",
    "tests/server/free_ports.py",
    "tests/server/soak/run.py",
    "tests/test_gate.py",
}


def test_tests_when_they_choose_settings_then_none_brings_luck_back():
    chosen = re.compile(r"derandomize=False|database=(?!None)|SystemRandom\(")
    unexpected = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("*.py")
        if chosen.search(path.read_text(encoding="utf-8"))
    ]

    assert set(unexpected) <= BY_CHANCE

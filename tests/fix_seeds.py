"""Luck: the same each time in the gate, another one in every run of `make fuzz` and `make slow`.

Three things decide by chance in tests: Hypothesis, Python's own ``random`` and trio, which shuffles
the tasks that are ready. The gate gives all of them the same seed each time, so that a change is
what makes it fail. ``IGGY_SIM_SEED`` in the environment names another seed; ``random`` makes one
up, and the first lines of the run say which. Real processes and real clocks have no seed.
"""

from __future__ import annotations

import os
import random

import pytest
import trio
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

GATE, SEARCH = "gate", "fuzz"
GATE_SEED = 0
EXAMPLES_MIN = 4  # some tests take a quarter of them

# Machines that run the gate are busy ones, so no single example has a deadline; pytest-timeout
# guards each test as a whole. What an earlier run left in .hypothesis must not matter either.
# A profile inherits what it does not say, and Hypothesis inherits otherwise when the environment
# has `CI`: whatever differs there is said in both profiles.
settings.register_profile(
    GATE,
    deadline=None,
    max_examples=40,
    derandomize=True,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
# As many as reach every branch of the protocol: what coverage runs.
settings.register_profile("brief", settings.get_profile(GATE), max_examples=20)
# Searches: other examples each time, and first those that failed before.
settings.register_profile(
    SEARCH,
    deadline=None,
    max_examples=max(EXAMPLES_MIN, int(os.environ.get("HYPOTHESIS_EXAMPLES", "1000"))),
    derandomize=False,
    database=DirectoryBasedExampleDatabase(".hypothesis/examples"),
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", GATE))


def _chosen_seed() -> int:
    text = os.environ.get("IGGY_SIM_SEED", str(GATE_SEED))
    return random.SystemRandom().randrange(1 << 32) if text == "random" else int(text)


RUN_SEED = _chosen_seed()


def plant(seed: int | str) -> None:
    """Let everything in this process that decides by chance begin at a seed."""
    random.seed(seed)
    # The generator that trio shuffles ready tasks with; pytest-trio has it sort them before that.
    trio._core._run._r.seed(seed)


def pytest_report_header() -> str:
    """Say what plays this run again."""
    profile = settings.get_current_profile_name()
    return f"luck: IGGY_SIM_SEED={RUN_SEED} HYPOTHESIS_PROFILE={profile}"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin every test at its own place, whichever tests ran before it."""
    plant(f"{RUN_SEED}/{item.nodeid}")

"""Switches of the whole suite: how hard Hypothesis tries, and whether slow tests run."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.fix_backends", "tests.fix_server", "tests.fix_spark"]

# Machines that run the gate are busy ones, so no single example has a deadline; pytest-timeout
# guards each test as a whole.
settings.register_profile("ci", deadline=None, max_examples=40, print_blob=True)
# The same few examples each time, so that the measured coverage does not depend on luck.
settings.register_profile("brief", deadline=None, max_examples=20, derandomize=True)
settings.register_profile(
    "fuzz",
    deadline=None,
    max_examples=max(4, int(os.environ.get("HYPOTHESIS_EXAMPLES", "1000"))),
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_configure() -> None:
    """See that Ctrl-C can be tested: shells have what runs in the background ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the switch that lets slow tests run."""
    parser.addoption("--run-slow", action="store_true", help="run tests marked slow as well")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip slow tests unless they were asked for."""
    if config.getoption("--run-slow"):
        return
    skip = pytest.mark.skip(reason="slow: runs with --run-slow")
    for item in items:
        if item.get_closest_marker("slow") is not None:
            item.add_marker(skip)

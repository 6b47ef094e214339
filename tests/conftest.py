"""Switches of the whole suite: its fixtures, its luck, and whether slow tests run."""

from __future__ import annotations

import signal

import pytest

pytest_plugins = [
    "tests.fix_backends",
    "tests.fix_seeds",
    "tests.fix_server",
    "tests.fix_spark",
]


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

"""The two engines that the SDK runs on, in real and in virtual time.

Tests marked ``anyio`` run once on asyncio and once on trio. Those that are marked ``virtual_time``
as well run on clocks that jump to the next timer as soon as every task waits: hours cost nothing,
and a test that would sleep takes no time. Sockets and processes know no virtual time, so such
tests talk through memory.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio.testing

from tests.virtual_asyncio import VirtualEventLoop

ENGINES = ("asyncio", "trio")


def pytest_configure(config: pytest.Config) -> None:
    """Announce the marker."""
    config.addinivalue_line("markers", "virtual_time: the clock jumps to the next timer")


def virtual_engine(name: str) -> tuple[str, dict[str, Any]]:
    """Return an engine with a fresh virtual clock, as ``anyio.run`` and its plugin want it."""
    if name == "trio":
        return name, {"clock": trio.testing.MockClock(autojump_threshold=0)}
    return name, {"loop_factory": VirtualEventLoop}


@pytest.fixture(params=ENGINES)
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Run the test on both engines, in the time that its marker asks for."""
    if request.node.get_closest_marker("virtual_time") is not None:
        return virtual_engine(request.param)
    return request.param, {}

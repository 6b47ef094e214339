"""Fixtures around servers that run as processes of their own.

``server`` is one per test file, shared by tests that leave each other's streams alone; the module
may choose its settings with ``SERVER_SETTINGS`` and ``SERVER_SHARDS``. ``start_server`` makes one
for a single test that needs settings, a restart or an empty server.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from iggy_sdk.testing import NotOursError
from iggy_sdk.testing import RunningServer as SdkServer
from iggy_sdk.testing.server import external_server_address
from tests.server.running import RunningServer

if TYPE_CHECKING:
    from tests.server.wire_client import WireClient

StartServer = Callable[..., RunningServer]

TESTS = Path(__file__).parent
SDK = TESTS / "sdk"
# Tests that start processes wait for whatever else the machine does.
PATIENT = (TESTS / "server" / "features", TESTS / "server" / "replay", TESTS / "interop")
PATIENT_SECONDS_MAX = 90


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests that start processes more time before they count as stuck."""
    for item in items:
        if any(folder in item.path.parents for folder in PATIENT):
            item.add_marker(pytest.mark.timeout(PATIENT_SECONDS_MAX))


class StandingServer:
    """A running server, such as Apache Iggy; all its data are deleted first."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        with SdkServer(address=address) as standing:
            standing.reset()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Skip tests that stop or kill a server which the tests did not start."""
    try:
        return (yield)
    except NotOursError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer | StandingServer]:
    """Run one server for all tests of a file, or take the one of ``IGGY_TEST_SERVER``."""
    standing = external_server_address()
    if standing is not None and SDK in request.path.parents:
        yield StandingServer(standing)
        return
    running = RunningServer(
        tmp_path_factory.mktemp("server"),
        shards=getattr(request.module, "SERVER_SHARDS", 1),
        settings=getattr(request.module, "SERVER_SETTINGS", None),
    )
    with running:
        yield running


@pytest.fixture
def start_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartServer]:
    """Start servers for one test; those that still run at its end are killed."""
    with ExitStack() as stack:

        def start(**options: Any) -> RunningServer:
            running = RunningServer(tmp_path_factory.mktemp("server"), **options)
            stack.callback(running.close)
            running.start()
            return running

        yield start


@pytest.fixture
def connect(server: RunningServer) -> Iterator[Callable[..., WireClient]]:
    """Open connections to the shared server that end with the test; root is logged in."""
    opened: list[WireClient] = []

    def open_connection(username: str = "iggy", password: str = "iggy") -> WireClient:
        client = server.login(username, password)
        opened.append(client)
        return client

    yield open_connection
    for client in opened:
        client.close()


@pytest.fixture
def root(connect: Callable[..., WireClient]) -> WireClient:
    """Open one connection to the shared server, logged in as root."""
    return connect()

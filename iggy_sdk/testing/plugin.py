"""Fixtures for pytest: ``iggy_server``, found by itself once the SDK is installed.

    async def test_roundtrip(iggy_server):
        async with IggyClient(iggy_server.url) as client:
            await client.ping()

The server is started when the first test asks for it and serves all tests of the session. Before
each test that asks for it, it is emptied, faults are healed and connections closed; a server that
was stopped, killed or given another password is replaced or started again. Nothing is imported
before a fixture is used, so that tests without Iggy do not pay for it.

Where ``IGGY_TEST_SERVER`` names the ``host:port`` of a server with the root user ``iggy`` and the
password ``iggy``, that one is used instead, such as an Apache Iggy of your own. It is emptied, so
name none that is needed; what a test wants to stop or kill raises ``NotOursError`` then.

With ``IGGY_TEST_PROTOCOL=0.9`` in the environment, or another value of the option ``protocol``, the
clients of ``iggy_server.url`` speak that generation; the server speaks all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from iggy_sdk.testing.server import RunningServer, SharedServer


@pytest.fixture(scope="session")
def iggy_server_settings() -> dict[str, str]:
    """Return settings of the server, ``IGGY_*`` names; override it in your conftest.py."""
    return {}


@pytest.fixture(scope="session")
def iggy_shared_server(iggy_server_settings: dict[str, str]) -> Iterator[SharedServer]:
    """Keep the server of the session; tests ask for ``iggy_server``."""
    from iggy_sdk.testing.server import SharedServer

    with SharedServer(settings=iggy_server_settings) as shared:
        yield shared


@pytest.fixture
def iggy_server(iggy_shared_server: SharedServer) -> RunningServer:
    """Return a server that is running and empty."""
    return iggy_shared_server.fresh()


@pytest.fixture
def iggy_server_factory() -> Iterator[Callable[..., RunningServer]]:
    """Return a function that starts more servers, with settings of their own, for one test.

    It takes the arguments of ``RunningServer``.
    """
    from contextlib import ExitStack

    from iggy_sdk.testing.server import RunningServer

    with ExitStack() as servers:

        def start(**options: object) -> RunningServer:
            running = RunningServer(**options)  # type: ignore[arg-type]
            return servers.enter_context(running)

        yield start

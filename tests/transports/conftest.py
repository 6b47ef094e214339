"""The matrix: transport x shards x engine, on servers that are started once for all of it.

Logging in takes a server longer than most of the tests, so those of a file share one client for
each place in the matrix. They leave each other's streams alone, by names that are used once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
import trustme

from iggy_sdk.client import IggyClient
from tests.certificates import Certificate
from tests.fix_backends import ENGINES
from tests.transports.servers import SECURED, TRANSPORTS, TransportServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

OpenServer = Callable[..., TransportServer]


@pytest.fixture(scope="session")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenServer]:
    """Start a server of each kind when the first test wants it."""
    certificate = Certificate.make(trustme.CA(), tmp_path_factory.mktemp("certificate"))
    opened: dict[tuple[int, bool], TransportServer] = {}
    with ExitStack() as stack:

        def open_one(*, shards: int, secured: bool) -> TransportServer:
            key = shards, secured
            if key not in opened:
                folder = tmp_path_factory.mktemp("transports")
                opened[key] = TransportServer.open(
                    folder, shards=shards, secured=secured, certificate=certificate
                )
                stack.callback(opened[key].server.close)
            return opened[key]

        yield open_one


@pytest.fixture(params=ENGINES, scope="module")
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Which engine the client runs on."""
    name: str = request.param
    return name


@pytest.fixture(params=[1, 2], ids=["1-shard", "2-shards"], scope="module")
def shards(request: pytest.FixtureRequest) -> int:
    """How many shards serve."""
    count: int = request.param
    return count


@pytest.fixture(params=TRANSPORTS, scope="module")
def transport(request: pytest.FixtureRequest) -> str:
    """How the client comes."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def transport_server(transport: str, shards: int, open_server: OpenServer) -> TransportServer:
    """The server with a listener for this transport."""
    return open_server(shards=shards, secured=transport in SECURED)


@pytest.fixture(scope="module")
async def client(
    anyio_backend: object, transport_server: TransportServer, transport: str
) -> AsyncIterator[IggyClient]:
    """Connect as root."""
    async with IggyClient(transport_server.url(transport)) as connected:
        yield connected


@pytest.fixture
def name(transport_server: TransportServer) -> str:
    """Make a name that no other test uses."""
    return transport_server.fresh_name()


@pytest.fixture
async def topic(client: IggyClient, name: str) -> str:
    """Make a stream with the topic "orders" of three partitions, and name the stream."""
    await client.create_stream(name)
    await client.create_topic(name, "orders", 3)
    return name

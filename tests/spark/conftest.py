"""What the tests of the Spark source share: a stream for each, topics with messages, options."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from iggy_sdk.blocking import IggyClient
from spark_jobs.topics import close_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from iggy_sdk.testing import RunningServer


@pytest.fixture(autouse=True, scope="session")
def closed_connections() -> Iterator[None]:
    """Close what readers opened in this process, before their server goes."""
    yield
    close_all()


@pytest.fixture
def client(spark_server: RunningServer) -> Iterator[IggyClient]:
    """Connect to the server."""
    with IggyClient(spark_server.url) as connected:
        yield connected


@pytest.fixture
def stream(client: IggyClient, request: pytest.FixtureRequest) -> str:
    """Create a stream for one test."""
    name = re.sub(r"\W+", "_", request.node.nodeid)[-200:]
    client.create_stream(name)
    return name


@pytest.fixture
def topic(client: IggyClient, stream: str) -> Callable[..., str]:
    """Return a function that creates a topic and fills each partition with so many messages."""

    def make(name: str = "t", counts: tuple[int, ...] = (10, 20, 30), **settings: Any) -> str:
        client.create_topic(stream, name, len(counts), **settings)
        for partition, count in enumerate(counts):
            payloads = [b"%d-%d" % (partition, number) for number in range(count)]
            client.send_messages(stream, name, payloads, partition_id=partition)
        return name

    return make


@pytest.fixture
def options(spark_server: RunningServer, stream: str) -> dict[str, str]:
    """Return the options that every query of the test needs."""
    return {"server": spark_server.url, "stream": stream, "topic": "t"}

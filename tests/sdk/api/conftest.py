"""A client of the shared server for tests of verbs, and names that no other test uses."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from iggy_sdk.client import IggyClient
from iggy_sdk.testing.server import in_test_protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.server.running import RunningServer


@pytest.fixture
def url(server: RunningServer) -> str:
    """Tell where root logs in."""
    host, port = server.address
    return in_test_protocol(f"iggy://iggy:iggy@{host}:{port}")


@pytest.fixture
async def client(anyio_backend: object, url: str) -> AsyncIterator[IggyClient]:
    """Connect as root."""
    async with IggyClient(url) as connected:
        yield connected


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Make a name of this test on this engine, short enough for users and tokens."""
    engine = "trio" if "trio" in request.node.name else "asyncio"
    words = re.findall(r"[a-z]+", request.node.originalname)
    return f"{engine}-{abs(hash(tuple(words))) % 10**8}"

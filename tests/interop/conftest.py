"""What tests with official clients share: one interpreter for each version, and a few servers."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.interop.wheels import OfficialClient
from tests.server.running import RunningServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="session")
def official(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], OfficialClient]]:
    """Return the interpreter with a version, started when it is first used."""
    started: dict[str, OfficialClient] = {}
    with ExitStack() as stack:

        def client(version: str) -> OfficialClient:
            if version not in started:
                made = OfficialClient(version, tmp_path_factory.mktemp("official"))
                started[version] = stack.enter_context(made)
            return started[version]

        yield client


@pytest.fixture(scope="session")
def shared_server(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[int], RunningServer]]:
    """Return the server with so many shards, for tests that leave each other's streams alone."""
    started: dict[int, RunningServer] = {}
    with ExitStack() as stack:

        def server(shards: int) -> RunningServer:
            if shards not in started:
                made = RunningServer(tmp_path_factory.mktemp("shared"), shards=shards)
                started[shards] = stack.enter_context(made)
            return started[shards]

        yield server

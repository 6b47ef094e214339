"""Clients of the official kind, with scripted servers of each generation."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import Any

import iggy_protocol
from iggy_protocol import (
    Options,
)
from iggy_sdk.compat import (
    IggyClient,
)
from iggy_sdk.connection_string import ServerProtocol
from tests.sdk.net.vsr_sessions import VsrRecorder
from tests.sdk.scripted_peer import options as client_options
from tests.sdk.scripted_peer import scripted_server
from tests.sdk.vsr_peer import vsr_peers

TOPIC = iggy_protocol.TopicDetails(
    *(1, 2, 1, 0, iggy_protocol.CompressionAlgorithm.GZIP, 0, 1, 3, 4, "orders"),
    (iggy_protocol.Partition(0, 1, 1, 0, 0, 0),),
    options=Options({"durability": "persisted"}),
)


class Table(VsrRecorder):
    """Answers commands as a table says, and all others politely."""

    def __init__(self, answers: dict[type, Any]) -> None:
        super().__init__()
        self.answers = answers

    async def answer(self, peer: Any, command: Any) -> None:
        if type(command) in self.answers:
            await peer.reply(self.answers[type(command)])
        else:
            await super().answer(peer, command)

    def last(self, kind: type) -> Any:
        """Return the last command of a kind."""
        return [command for command in self.all_heard() if isinstance(command, kind)][-1]


@asynccontextmanager
async def client_at(dialect, **answers):
    """Run a server of one generation, and a client of it; ``answers`` go by the command's name."""
    table = Table({getattr(iggy_protocol, name): answer for name, answer in answers.items()})
    async with client_with(dialect, table) as found:
        yield found


@asynccontextmanager
async def client_with(dialect, script):
    """Run a server of one generation with a script, and a client of it."""
    async with scripted_server(script, peers=vsr_peers(dialect)) as server:
        client = IggyClient.from_options(
            client_options(protocol=ServerProtocol.AUTO), dial=server.dial
        )
        async with client:
            yield client, script

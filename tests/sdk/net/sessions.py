"""One session and its scripted server, for tests of the session alone."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from iggy_protocol import GetStream, Partitioning, SendMessages, StreamDetails
from iggy_sdk.connection_string import Endpoint
from iggy_sdk.session.stream import StreamSession
from tests.sdk.memory_transport import CAPACITY_BYTES
from tests.sdk.scripted_peer import Peer, Script, options, polite, scripted_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ENDPOINT = Endpoint("one.example", 8090)
WATCHED = pytest.mark.parametrize("watched", [True, False], ids=["watched", "alone"])
TIMEOUT = 30.0


def details(name: str) -> StreamDetails:
    return StreamDetails(
        id=1, created_at_us=0, topics_count=0, size_bytes=0, messages_count=0, name=name, topics=()
    )


def large_send(size: int) -> SendMessages:
    return SendMessages("shop", "orders", Partitioning.partition(0), [bytes(size)])


async def tell_names(peer: Peer) -> None:
    """Answer every question for a stream with its own name."""
    while True:
        command = await peer.hear()
        if isinstance(command, GetStream):
            await peer.reply(details(str(command.stream)))
        else:
            await peer.reply(None)


@asynccontextmanager
async def open_session(
    script: Script = polite,
    *,
    watched: bool = True,
    capacity_bytes: int = CAPACITY_BYTES,
    **changes: Any,
) -> AsyncIterator[StreamSession]:
    """Connect a session to a script.

    Args:
        script: what the server does.
        watched: whether ``run`` is running, as in a client that is hosted.
        capacity_bytes: what fits into one direction of the wire.
        changes: options of the session.
    """
    async with scripted_server(script, capacity_bytes=capacity_bytes) as server:
        session = await StreamSession.open(ENDPOINT, options(**changes), dial=server.dial)
        async with anyio.create_task_group() as tasks:
            if watched:
                tasks.start_soon(session.run)
            yield session
            await session.aclose()
            tasks.cancel_scope.cancel()

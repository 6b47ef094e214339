"""Topics of a service on a real server, and a responder that runs beside a test."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio

from iggy_sdk.testing.server import in_test_protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from iggy_sdk import IggyClient, Responder

GENERATIONS = ("0.8", "0.9", "0.10")

REQUESTS = "requests"
REPLIES = "replies"


def url_of(server: Any, protocol: str | None = None) -> str:
    """Name a running server as root does, in one generation of the wire."""
    host, port = server.address
    plain = f"iggy://iggy:iggy@{host}:{port}"
    return in_test_protocol(plain) if protocol is None else f"{plain}?protocol={protocol}"


async def make_service(
    client: IggyClient, stream: str, *, partitions_count: int = 1, reply_partitions_count: int = 1
) -> None:
    """Make the topics of a service."""
    await client.create_stream(stream)
    await client.create_topic(stream, REQUESTS, partitions_count=partitions_count)
    await client.create_topic(stream, REPLIES, partitions_count=reply_partitions_count)


@asynccontextmanager
async def answering(
    client: IggyClient, stream: str, handler: Any, *, concurrency: int = 16, **settings: Any
) -> AsyncIterator[Responder[Any, Any]]:
    """Answer requests while the block runs; the requests in progress are answered at its end."""
    async with (
        client.responder(stream, REQUESTS, **settings) as responder,
        anyio.create_task_group() as tasks,
    ):

        async def serve() -> None:
            await responder.serve(handler, concurrency=concurrency)

        tasks.start_soon(serve)
        yield responder
        responder.stop()


async def shout(message: Any) -> bytes:
    """Answer with the same text in capitals."""
    payload: bytes = message.payload
    return payload.upper()

"""A server that is restarted under clients of all its transports at once."""

from __future__ import annotations

from contextlib import AsyncExitStack

import anyio
import anyio.to_thread
import pytest

from iggy_protocol import Partitioning
from iggy_sdk.client import IggyClient
from iggy_sdk.options import Reconnect, Retry
from tests.transports.servers import PLAIN, SECURED, TransportServer

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(90)]

PARTITION = Partitioning.partition(0)


@pytest.mark.parametrize("secured", [False, True], ids=["plain", "secured"])
async def test_clients_when_the_server_restarts_then_all_come_back(open_server, shards, secured):
    transport_server: TransportServer = await anyio.to_thread.run_sync(
        lambda: open_server(shards=shards, secured=secured)
    )
    transports = SECURED if secured else PLAIN
    async with AsyncExitStack() as stack:
        clients = {
            name: await stack.enter_async_context(
                IggyClient(
                    transport_server.url(name), reconnect=Reconnect(delay=0.02, max_delay=0.2)
                )
            )
            for name in transports
        }
        streams = {name: transport_server.fresh_name() for name in transports}
        for name, client in clients.items():
            await client.create_stream(streams[name])
            await client.create_topic(streams[name], "orders", 1)
            await client.send_messages(streams[name], "orders", [b"before"], partitioning=PARTITION)
        await anyio.to_thread.run_sync(transport_server.server.restart)
        async with anyio.create_task_group() as tasks:
            for name, client in clients.items():
                tasks.start_soon(check_after, client, streams[name])
        for name, client in clients.items():
            # Over HTTP nothing is lost with the connections, and the login is simply repeated.
            assert client.epoch == 2 or (name in ("http", "https") and client.epoch == 1)


async def check_after(client: IggyClient, stream: str) -> None:
    """See what was sent before, and send more with the retries of a producer."""
    assert await client.get_stream(stream) is not None
    retry = Retry(attempts=10, backoff=0.05)
    async with client.producer(stream, "orders", partitioning=PARTITION, retry=retry) as producer:
        await producer.send(b"after")
    async with client.consumer("late", stream, "orders", partition_id=0, until_end=True) as reader:
        assert [message.payload async for message in reader] == [b"before", b"after"]

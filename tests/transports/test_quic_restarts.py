"""A consumer over QUIC whose server is restarted again and again, or killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import pytest

from iggy_protocol import Partitioning
from iggy_sdk.client import IggyClient
from iggy_sdk.options import Reconnect, Retry

if TYPE_CHECKING:
    from tests.transports.servers import TransportServer

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

RESTARTS = {"stop": 5, "kill": 2}
# Less than the ten seconds after which a client gives up a server that says nothing.
NOTICED_SECONDS_MAX = 8.0
PARTITION = Partitioning.partition(0)


@pytest.mark.parametrize("way", RESTARTS)
async def test_consumer_over_quic_when_its_server_is_restarted_many_times_then_reads_on_each_time(
    open_server, way
):
    transport_server: TransportServer = await anyio.to_thread.run_sync(
        lambda: open_server(shards=1, secured=False)
    )
    server, stream = transport_server.server, transport_server.fresh_name()
    reconnect = Reconnect(delay=0.02, max_delay=0.2)
    async with (
        IggyClient(transport_server.url("tcp"), reconnect=reconnect) as sender,
        IggyClient(transport_server.url("quic"), reconnect=reconnect) as reader,
    ):
        await sender.create_stream(stream)
        await sender.create_topic(stream, "orders", 1)
        retry = Retry(attempts=10, backoff=0.05)
        async with (
            sender.producer(stream, "orders", partitioning=PARTITION, retry=retry) as producer,
            reader.consumer("steady", stream, "orders", partition_id=0) as consumer,
        ):
            messages = aiter(consumer)
            for number in range(RESTARTS[way]):
                await anyio.to_thread.run_sync(getattr(server, way))
                await anyio.to_thread.run_sync(server.start)
                await producer.send(b"%d" % number)
                with anyio.fail_after(NOTICED_SECONDS_MAX):
                    assert (await anext(messages)).payload == b"%d" % number

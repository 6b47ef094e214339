"""Sends in every way that the official client 0.9 has, and reads it back.

Run with an interpreter that has the wheel: ``sending.py HOST:PORT``. Prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import timedelta

from apache_iggy import (  # type: ignore[import-not-found]
    AutoLogin,
    BackgroundProducerConfig,
    BackpressureMode,
    Consumer,
    DirectProducerConfig,
    HeaderKey,
    HeaderValue,
    IggyClient,
    Partitioning,
    PollingStrategy,
    ProducerSendError,
    ProducerSharding,
    SendMessage,
    TcpConfig,
    TcpReconnectionConfig,
    UserHeaders,
)

SECOND = timedelta(seconds=1)


async def connect(address):
    """Connect with a configuration, which logs in by itself."""
    config = TcpConfig(
        server_address=address,
        auto_login=AutoLogin.username_password("iggy", "iggy"),
        reconnection=TcpReconnectionConfig(max_retries=3, interval=SECOND),
        heartbeat_interval=5 * SECOND,
        nodelay=True,
    )
    client = IggyClient(config)
    await client.connect()
    return client, [config.server_address == address, config.auto_login.username, repr(config)]


async def read(client, topic, partition_id=0):
    """Return the payloads of a partition."""
    messages = await client.poll_messages(
        "shop",
        topic,
        consumer=Consumer.Single("reader"),
        polling_strategy=PollingStrategy.First(),
        count=1000,
        auto_commit=False,
        partition_id=partition_id,
    )
    return [message.payload().decode() for message in messages]


async def send_directly(client):
    """Send with a direct producer, which makes what is missing."""
    lost, runtime = [], False
    async with await client.producer(
        "shop",
        "orders",
        partitioning=Partitioning.partition_id(1),
        mode=DirectProducerConfig(batch_length=2),
        topic_partitions_count=3,
        send_retries=None,
        send_retry_interval=SECOND,
    ) as producer:
        first = await producer.send([SendMessage(text) for text in ("a", "b", "c")])
        await producer.send_one(SendMessage(b"d"))
        key = Partitioning.messages_key("customer 1")
        await producer.send_with_partitioning([SendMessage("e"), SendMessage("f")], key)
        await producer.send_to("shop", "orders", [SendMessage("g")], Partitioning.partition_id(0))
        try:
            await producer.send_to("shop", "missing", [SendMessage("x"), SendMessage("y")])
        except ProducerSendError as error:
            lost = [len(error.failed), error.committed, bool(error.cause), str(error) != ""]
            runtime = isinstance(error, RuntimeError)
    topic = await client.get_topic("shop", "orders")
    return {
        "partition 1": (await read(client, "orders", 1))[:4],
        "counted": topic.messages_count,
        "confirmations": [[one.partition_id, one.base_offset] for one in first.confirmations],
        "lost": lost,
        "runtime": runtime,
    }


async def send_in_the_background(client):
    """Send with a producer that gathers messages."""
    mode = BackgroundProducerConfig(
        linger_time=timedelta(milliseconds=5),
        batch_length=50,
        failure_mode=BackpressureMode.block_with_timeout(5 * SECOND),
        sharding=ProducerSharding.ORDERED,
    )
    producer = await client.producer("shop", "gathered", mode=mode)
    response = await producer.send([SendMessage("0")])
    for number in range(1, 200):
        await producer.send([SendMessage(str(number))])
    await producer.shutdown()
    return {
        "in order": await read(client, "gathered") == [str(number) for number in range(200)],
        "confirmations": response.confirmations,
        "timeout": mode.failure_mode.timeout == 5 * SECOND,
        "shards": mode.num_shards,
    }


async def send_headers(client):
    """Send headers of many kinds."""
    await client.create_topic("shop", "headers", partitions_count=1)
    headers = UserHeaders({"plain": "text"})
    headers[HeaderKey.String("typed")] = HeaderValue.UnsignedInt32(5)
    headers[HeaderKey.UnsignedInt8(7)] = HeaderValue.Raw(b"raw")
    await client.send_messages(
        "shop", "headers", 0, [SendMessage("h", headers, id=9), SendMessage("none")]
    )
    messages = await client.poll_messages(
        "shop",
        "headers",
        consumer=Consumer.Single("reader"),
        polling_strategy=PollingStrategy.Offset(value=0),
        count=10,
        auto_commit=True,
        partition_id=0,
    )
    received = messages[0].user_headers()
    kinds = []
    for value in received.values():
        match value:
            case HeaderValue.UnsignedInt32(value=number):
                kinds.append(["u32", number])
            case HeaderValue.String(value=text):
                kinds.append(["string", text])
            case HeaderValue.Raw(value=data):
                kinds.append(["raw", data.decode()])
    return {
        "id": messages[0].id(),
        "typed": received[HeaderKey.String("typed")] == HeaderValue.UnsignedInt32(5),
        "scalars": sorted(map(str, received.to_scalar_dict())),
        "kinds": sorted(kinds),
        "none": messages[1].user_headers(),
        "partition": messages[1].partition_id(),
    }


async def main():
    client, config = await connect(sys.argv[1])
    await client.ping()
    report = {
        "config": [*config[:2], config[2].count("iggy")],
        "direct": await send_directly(client),
        "background": await send_in_the_background(client),
        "headers": await send_headers(client),
    }
    response = await client.send_messages(
        "shop", "orders", Partitioning.balanced(), [SendMessage("last")]
    )
    report["response"] = isinstance(response.confirmations, list)
    sys.stdout.write(json.dumps(report))


asyncio.run(main())

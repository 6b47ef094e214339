"""What a newcomer does with the official client: log in, make a topic, send, poll, err.

Run with an interpreter that has the wheel: ``basics.py HOST:PORT``. Prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time

from apache_iggy import (  # type: ignore[import-not-found]
    IggyClient,
    PollingStrategy,
    SendMessage,
)

HOUR_US = 3_600_000_000


async def refused(awaitable):
    """Return what the client says when the server refuses."""
    try:
        await awaitable
    except Exception as error:
        return str(error) or type(error).__name__
    return ""


async def poll(client, strategy, *, partition=0, count=100, auto_commit=False):
    messages = await client.poll_messages("s", "t", partition, strategy, count, auto_commit)
    return [(message.offset(), message.payload().decode()) for message in messages]


async def make_things(client):
    """Create a stream and a topic, and look at them."""
    await client.create_stream("s")
    await client.create_topic("s", "t", 3, message_expiry=None)
    stream, topic = await client.get_stream("s"), await client.get_topic("s", "t")
    by_id = await client.get_topic(stream.id, topic.id)
    return {
        "stream": [stream.id, stream.name, stream.topics_count, stream.messages_count],
        "topic": [topic.id, topic.name, topic.partitions_count, topic.messages_count],
        "same by id": by_id.name == topic.name,
        "missing stream": await client.get_stream("missing"),
        "missing topic": await client.get_topic("s", "missing"),
    }


async def exchange(client):
    """Send to partitions and poll with every strategy."""
    for partition in range(3):
        batch = [SendMessage(f"{partition} {number}") for number in range(5)]
        await client.send_messages("s", "t", partition, batch)
    await client.send_messages("s", "t", 0, [SendMessage(b"bytes")])
    stored = await client.poll_messages("s", "t", 0, PollingStrategy.First(), 100, False)
    moment = stored[-1].timestamp()
    return {
        "first": await poll(client, PollingStrategy.First()),
        "offset": await poll(client, PollingStrategy.Offset(value=4)),
        "last": await poll(client, PollingStrategy.Last(), count=2),
        "next": await poll(client, PollingStrategy.Next(), count=2, auto_commit=True),
        "next again": await poll(client, PollingStrategy.Next(), count=2, auto_commit=True),
        "timestamp": await poll(client, PollingStrategy.Timestamp(value=moment)),
        "future": await poll(client, PollingStrategy.Timestamp(value=moment + HOUR_US)),
        "partition 2": await poll(client, PollingStrategy.First(), partition=2),
        "ids": len({message.id() for message in stored}),
        "partitions": sorted({message.partition_id() for message in stored}),
        "lengths": [message.length() for message in stored],
        "recent": abs(moment - time.time() * 1e6) < 60e6,
        "counted": (await client.get_topic("s", "t")).messages_count,
    }


async def large(client):
    """Send a megabyte and get it back."""
    payload = bytes(range(256)) * 4096
    await client.create_topic("s", "large", 1)
    await client.send_messages("s", "large", 0, [SendMessage(payload)])
    [message] = await client.poll_messages("s", "large", 0, PollingStrategy.First(), 1, False)
    return message.payload() == payload


async def errors(client):
    """Ask for what cannot be."""
    message = [SendMessage("x")]
    return {
        "stream again": await refused(client.create_stream("s")),
        "topic again": await refused(client.create_topic("s", "t", 1)),
        "topic in missing stream": await refused(client.create_topic("missing", "t", 1)),
        "too many partitions": await refused(client.create_topic("s", "many", 1001)),
        "send to missing stream": await refused(client.send_messages("missing", "t", 0, message)),
        "send to missing topic": await refused(client.send_messages("s", "missing", 0, message)),
        "send to missing partition": await refused(client.send_messages("s", "t", 9, message)),
        "poll of missing partition": await refused(
            client.poll_messages("s", "t", 9, PollingStrategy.First(), 1, False)
        ),
    }


async def main(address):
    client = IggyClient(address)
    await client.connect()
    await client.ping()
    wrong = await refused(client.login_user("iggy", "not-the-password"))
    await client.login_user("iggy", "iggy")
    await client.login_user("iggy", "iggy")
    report = {"wrong password": wrong, **await make_things(client), **await exchange(client)}
    report["large"] = await large(client)
    report["errors"] = await errors(client)
    await client.ping()
    return report


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(main(sys.argv[1]))))
    sys.stdout.flush()
    # Threads of the client outlive the interpreter and abort it when it ends in good order.
    os._exit(0)

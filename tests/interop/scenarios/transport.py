"""What the official client does over a transport that only its connection string offers.

Run with an interpreter that has the wheel: ``transport.py CONNECTION_STRING``, with the login in
it, and behind it user and password for a transport that ignores those. Prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from apache_iggy import (  # type: ignore[import-not-found]
    IggyClient,
    PollingStrategy,
    SendMessage,
)

SMALL_COUNT = 50


async def refused(awaitable):
    """Return what the client says when the server refuses."""
    try:
        await awaitable
    except Exception as error:
        return str(error) or type(error).__name__
    return ""


async def payloads(client, partition, strategy, count):
    messages = await client.poll_messages("s", "t", partition, strategy, count, True)
    return [message.payload() for message in messages]


async def main(url, *login):
    client = IggyClient.from_connection_string(url)
    await client.connect()
    if login:
        await client.login_user(*login)
    await client.ping()
    await client.create_stream("s")
    await client.create_topic("s", "t", 4)
    for partition in range(4):
        batch = [SendMessage(f"{partition} {number}") for number in range(SMALL_COUNT)]
        await client.send_messages("s", "t", partition, batch)
    read = [
        await payloads(client, partition, PollingStrategy.First(), 100) for partition in range(4)
    ]
    large = bytes(range(256)) * 4096
    for _ in range(5):
        await client.send_messages("s", "t", 0, [SendMessage(large)])
    tail = await payloads(client, 0, PollingStrategy.Offset(value=SMALL_COUNT), 5)
    topic = await client.get_topic("s", "t")
    return {
        "read": [
            [payload.decode() for payload in part]
            == [f"{partition} {number}" for number in range(SMALL_COUNT)]
            for partition, part in enumerate(read)
        ],
        "large": tail == [large] * 5,
        "counted": topic.messages_count,
        "missing stream": await client.get_stream("missing"),
        "stream again": (await refused(client.create_stream("s"))).partition("(")[0],
        "wrong password": await refused(client.login_user("iggy", "not-the-password")),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(main(*sys.argv[1:]))))
    sys.stdout.flush()
    # Threads of the client outlive the interpreter and abort it when it ends in good order.
    os._exit(0)

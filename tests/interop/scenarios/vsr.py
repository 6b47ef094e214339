"""What the official client of 0.9 does over one transport, on a topic that is there already.

Run with an interpreter that has the wheel: ``vsr.py CONNECTION_STRING``, with the login in it. The
server has a stream ``s`` with a topic ``t`` of four partitions. Prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from apache_iggy import (  # type: ignore[import-not-found]
    Consumer,
    IggyClient,
    Partitioning,
    PollingStrategy,
    SendMessage,
)

PARTITIONS = 4
SMALL_COUNT = 20
# A client that hangs is what this is about as well.
SECONDS_MAX = 15


async def refused(awaitable):
    """Return what the client says when the server refuses."""
    try:
        await asyncio.wait_for(awaitable, SECONDS_MAX)
    except TimeoutError:
        return "it hangs"
    except Exception as error:
        return str(error) or type(error).__name__
    return ""


async def payloads(client, partition, strategy, count):
    messages = await client.poll_messages(
        "s",
        "t",
        consumer=Consumer.Single(1),
        partition_id=partition,
        polling_strategy=strategy,
        count=count,
        auto_commit=True,
    )
    return [message.payload() for message in messages]


async def work(client):
    """Use the topic in all ways that need no options."""
    await client.ping()
    for partition in range(PARTITIONS):
        batch = [SendMessage(f"{partition} {number}") for number in range(SMALL_COUNT)]
        await client.send_messages("s", "t", partition, batch)
    read = [
        await payloads(client, partition, PollingStrategy.First(), 100)
        for partition in range(PARTITIONS)
    ]
    large = bytes(range(256)) * 4096
    for _ in range(3):
        await client.send_messages("s", "t", 0, [SendMessage(large)])
    tail = await payloads(client, 0, PollingStrategy.Offset(value=SMALL_COUNT), 5)
    for _ in range(PARTITIONS):
        await client.send_messages("s", "t", Partitioning.balanced(), [SendMessage("balanced")])
    topic = await client.get_topic("s", "t")
    await client.logout_user()
    return {
        "read": [
            [payload.decode() for payload in part]
            == [f"{partition} {number}" for number in range(SMALL_COUNT)]
            for partition, part in enumerate(read)
        ],
        "large": tail == [large] * 3,
        "after the logout": await refused(payloads(client, 1, PollingStrategy.Next(), 5)),
        "counted": topic.messages_count,
        "wrong password": await refused(client.login_user("iggy", "not-the-password")),
    }


async def main(url):
    client = IggyClient.from_connection_string(url)
    said = await refused(client.connect())
    return {"connect": said, **({} if said else await work(client))}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(main(*sys.argv[1:]))))
    sys.stdout.flush()
    # Threads of the client outlive the interpreter and abort it when it ends in good order.
    os._exit(0)

"""The official consumer from every starting point it can name.

Run with an interpreter that has the wheel: ``strategies.py HOST:PORT``. Prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from datetime import timedelta

from apache_iggy import (  # type: ignore[import-not-found]
    AutoCommit,
    IggyClient,
    PollingStrategy,
    SendMessage,
)

MESSAGES = 2000
BATCH = 100


async def first_offsets(client, name, strategy):
    """Consume one batch under a strategy and return where it began and ended."""
    consumer = await client.consumer_group(
        name,
        "s",
        "t",
        polling_strategy=strategy,
        batch_length=BATCH,
        auto_commit=AutoCommit.Disabled(),
        create_consumer_group_if_not_exists=True,
        auto_join_consumer_group=True,
        poll_interval=timedelta(milliseconds=5),
    )
    offsets, done = [], asyncio.Event()

    async def note(message):
        offsets.append(message.offset())
        if len(offsets) == BATCH:
            done.set()

    await asyncio.wait_for(consumer.consume_messages(note, done), 20)
    return [offsets[0], offsets[BATCH - 1]]


async def main(address):
    client = IggyClient.from_connection_string(f"iggy+tcp://iggy:iggy@{address}")
    await client.connect()
    await client.create_stream("s")
    await client.create_topic("s", "t", 1)
    for start in range(0, MESSAGES, BATCH):
        texts = [SendMessage(f"{number}") for number in range(start, start + BATCH)]
        await client.send_messages("s", "t", 0, texts)
    [middle] = await client.poll_messages(
        "s", "t", 0, PollingStrategy.Offset(500), 1, auto_commit=False
    )
    return {
        "first": await first_offsets(client, "first", PollingStrategy.First()),
        "offset": await first_offsets(client, "offset", PollingStrategy.Offset(250)),
        "timestamp": await first_offsets(
            client, "timestamp", PollingStrategy.Timestamp(middle.timestamp())
        ),
        "last": await first_offsets(client, "last", PollingStrategy.Last()),
        "next": await first_offsets(client, "next", PollingStrategy.Next()),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(main(sys.argv[1]))))
    sys.stdout.flush()
    # Threads of the client outlive the interpreter and abort it when it ends in good order.
    os._exit(0)

"""Consumer groups with the official client: iterate, consume with a callback, commit, come back.

Run with an interpreter that has the wheel: ``groups.py HOST:PORT``. Prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from datetime import timedelta

from apache_iggy import (  # type: ignore[import-not-found]
    AutoCommit,
    AutoCommitWhen,
    IggyClient,
    PollingStrategy,
    SendMessage,
)

PARTITIONS = 3
MESSAGES = 20


async def connected(address):
    """Connect by a connection string, which logs in by itself."""
    client = IggyClient.from_connection_string(f"iggy+tcp://iggy:iggy@{address}")
    await client.connect()
    return client


async def consumer_of(client, *, auto_commit=None):
    return await client.consumer_group(
        "readers",
        "s",
        "t",
        polling_strategy=PollingStrategy.Next(),
        batch_length=5,
        auto_commit=auto_commit or AutoCommit.Disabled(),
        create_consumer_group_if_not_exists=True,
        auto_join_consumer_group=True,
        poll_interval=timedelta(milliseconds=5),
    )


async def take(consumer, count):
    """Read so many messages with a callback."""
    taken, done = [], asyncio.Event()

    async def note(message):
        taken.append((message.partition_id(), message.payload().decode()))
        if len(taken) >= count:
            done.set()

    await asyncio.wait_for(consumer.consume_messages(note, done), 40)
    return taken


async def fill(client, first):
    for partition in range(PARTITIONS):
        texts = [f"{partition}:{number}" for number in range(first, first + MESSAGES)]
        await client.send_messages("s", "t", partition, [SendMessage(text) for text in texts])


def in_order(taken):
    """Tell whether each partition came in order and without a gap from its first number."""
    for partition in range(PARTITIONS):
        numbers = [int(text.split(":")[1]) for where, text in taken if where == partition]
        if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
            return False
    return True


async def main(address):
    client = await connected(address)
    await client.create_stream("s")
    await client.create_topic("s", "t", PARTITIONS)
    await fill(client, 0)

    when_polling = AutoCommit.When(AutoCommitWhen.PollingMessages())
    consumer = await consumer_of(client, auto_commit=when_polling)
    taken = await take(consumer, PARTITIONS * MESSAGES)
    report = {
        "name": consumer.name(),
        "stream": consumer.stream(),
        "topic": consumer.topic(),
        "taken": len(set(taken)),
        "in order": in_order(taken),
        "consumed": [consumer.get_last_consumed_offset(n) for n in range(PARTITIONS)],
    }
    await fill(client, MESSAGES)
    iterated = []
    async for message in consumer.iter_messages():
        iterated.append((message.partition_id(), message.payload().decode()))
        if len(iterated) == PARTITIONS * MESSAGES:
            break
    report["iterated"] = len(set(iterated) - set(taken))

    await consumer.store_offset(3, 0)
    await consumer.delete_offset(0)
    try:
        await consumer.store_offset(10_000, 0)
    except Exception as error:
        report["beyond the end"] = str(error)
    return report


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(main(sys.argv[1]))))
    sys.stdout.flush()
    # Threads of the client outlive the interpreter and abort it when it ends in good order.
    os._exit(0)

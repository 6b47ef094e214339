"""Many official clients at once: producers on every partition, and two members of a group.

Run with an interpreter that has the wheel: ``many_clients.py HOST:PORT``. Prints one JSON object.
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

PARTITIONS, PRODUCERS, BATCHES, BATCH = 4, 8, 10, 25


async def connected(address):
    client = IggyClient(address)
    await client.connect()
    await client.login_user("iggy", "iggy")
    return client


async def produce(address, number):
    client = await connected(address)
    for batch in range(BATCHES):
        messages = [SendMessage(f"{number}:{batch}:{index}") for index in range(BATCH)]
        await client.send_messages("s", "t", number % PARTITIONS, messages)


async def consume(address, taken, done):
    client = await connected(address)
    consumer = await client.consumer_group(
        "crowd",
        "s",
        "t",
        polling_strategy=PollingStrategy.Next(),
        batch_length=10,
        auto_commit=AutoCommit.When(AutoCommitWhen.PollingMessages()),
        poll_interval=timedelta(milliseconds=5),
    )

    async def note(message):
        taken.append((message.partition_id(), message.offset()))
        if len(taken) >= PRODUCERS * BATCHES * BATCH:
            done.set()

    await asyncio.wait_for(consumer.consume_messages(note, done), 40)


async def main(address):
    client = await connected(address)
    await client.create_stream("s")
    await client.create_topic("s", "t", PARTITIONS)
    await asyncio.gather(*(produce(address, number) for number in range(PRODUCERS)))
    counted = (await client.get_topic("s", "t")).messages_count
    orders = []
    for partition in range(PARTITIONS):
        polled = await client.poll_messages(
            "s", "t", partition, PollingStrategy.First(), 1000, False
        )
        orders.append([message.offset() for message in polled] == list(range(len(polled))))
    taken: list[tuple[int, int]] = []
    done = asyncio.Event()
    await asyncio.gather(*(consume(address, taken, done) for _ in range(2)))
    return {
        "counted": counted,
        "dense": all(orders),
        "taken": len(taken),
        "twice": len(taken) - len(set(taken)),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(main(sys.argv[1]))))
    sys.stdout.flush()
    # Threads of the client outlive the interpreter and abort it when it ends in good order.
    os._exit(0)

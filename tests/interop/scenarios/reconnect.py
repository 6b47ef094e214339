"""A consumer and a producer of the official client that lose their connection and go on.

Run with an interpreter that has the wheel: ``reconnect.py HOST:PORT``. Says ``first`` once half of
the messages are consumed, and goes on when it is given a line: meanwhile somebody restarts the
server, or waits until it has thrown out the silent consumer. Then prints one JSON object.
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

HALF = 5
# The heart of the consumer does not beat while it waits; lost connections are made again at once.
SILENT = "heartbeat_interval=1h&reconnection_interval=100ms&reestablish_after=100ms"


async def connected(address, options=SILENT):
    client = IggyClient.from_connection_string(f"iggy+tcp://iggy:iggy@{address}?{options}")
    await client.connect()
    return client


async def produce(client, first):
    texts = [f"{number}" for number in range(first, first + HALF)]
    await client.send_messages("s", "t", 0, [SendMessage(text) for text in texts])


async def consumer_of(client):
    return await client.consumer_group(
        "readers",
        "s",
        "t",
        polling_strategy=PollingStrategy.Next(),
        batch_length=1,
        auto_commit=AutoCommit.When(AutoCommitWhen.PollingMessages()),
        create_consumer_group_if_not_exists=True,
        auto_join_consumer_group=True,
        poll_interval=timedelta(milliseconds=20),
        polling_retry_interval=timedelta(milliseconds=100),
    )


async def pause():
    """Say that half is done, and wait to be told to go on."""
    sys.stdout.write("first\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.readline)


async def consume(consumer, producer):
    """Read all messages with a callback that stands still in the middle."""
    taken, done = [], asyncio.Event()

    async def note(message):
        taken.append(message.payload().decode())
        if len(taken) == HALF:
            await pause()
            await produce(producer, HALF)
        if len(taken) >= 2 * HALF:
            done.set()

    await asyncio.wait_for(consumer.consume_messages(note, done), 40)
    return taken


async def main(address):
    producer = await connected(address)
    await producer.create_stream("s")
    await producer.create_topic("s", "t", partitions_count=1)
    await produce(producer, 0)
    return await consume(await consumer_of(await connected(address)), producer)


if __name__ == "__main__":
    sys.stdout.write(json.dumps({"taken": asyncio.run(main(sys.argv[1]))}))
    sys.stdout.flush()
    # Threads of the client outlive the interpreter and abort it when it ends in good order.
    os._exit(0)

"""Make a stream and a topic, and send a few batches: the plain commands, one request each.

Run it with ``python -m examples.getting_started.producer [URL]``, then the consumer beside it.
"""

from __future__ import annotations

import sys

import anyio

from iggy_sdk import IggyClient

URL = "iggy://iggy:iggy@127.0.0.1:8090"
STREAM, TOPIC = "getting-started", "messages"
BATCHES, MESSAGES_PER_BATCH = 3, 10


async def produce(url: str) -> None:
    """Send three batches of ten messages to the one partition of a topic."""
    async with IggyClient(url) as client:
        await client.create_stream(STREAM, exist_ok=True)
        topic = await client.create_topic(STREAM, TOPIC, partitions_count=1, exist_ok=True)
        print(f"topic {topic.name!r} has {topic.partitions_count} partition")
        for batch in range(BATCHES):
            first = batch * MESSAGES_PER_BATCH
            messages = [f"message-{first + number}" for number in range(MESSAGES_PER_BATCH)]
            await client.send_messages(STREAM, TOPIC, messages, partition_id=0)
            print(f"sent {messages[0]} to {messages[-1]}")


def main(arguments: list[str]) -> None:
    """Send to the server that the command line names."""
    anyio.run(produce, arguments[0] if arguments else URL)


if __name__ == "__main__":
    main(sys.argv[1:])

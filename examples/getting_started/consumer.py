"""Poll a partition by offset, batch by batch: the plain command, and no state on the server.

Run the producer beside it first, then ``python -m examples.getting_started.consumer [URL]``.
"""

from __future__ import annotations

import sys

import anyio

from iggy_sdk import ConsumerIdentity, IggyClient, PollingStrategy

URL = "iggy://iggy:iggy@127.0.0.1:8090"
STREAM, TOPIC = "getting-started", "messages"
MESSAGES_PER_POLL = 10


async def consume(url: str) -> None:
    """Read the partition from its beginning to its present end."""
    offset = 0
    async with IggyClient(url) as client:
        while True:
            batch = await client.poll_messages(
                STREAM,
                TOPIC,
                consumer=ConsumerIdentity.single("getting-started"),
                partition_id=0,
                strategy=PollingStrategy.offset(offset),
                count=MESSAGES_PER_POLL,
            )
            if not batch:
                break
            for message in batch:
                print(f"offset {message.offset}: {message.payload.decode()}")
            offset = batch[-1].offset + 1
    print(f"read {offset} messages")


def main(arguments: list[str]) -> None:
    """Read from the server that the command line names."""
    anyio.run(consume, arguments[0] if arguments else URL)


if __name__ == "__main__":
    main(sys.argv[1:])

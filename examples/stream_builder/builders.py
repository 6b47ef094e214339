"""A producer and a consumer described once, as values, and used in several places.

What the official SDK has a stream builder for is here the builder itself: it can be kept, compared,
varied and entered again.

Run it with ``python -m examples.stream_builder.builders [URL]``.
"""

from __future__ import annotations

import sys
from typing import Any

import anyio

from iggy_sdk import (
    AutoCommit,
    ConsumerBuilder,
    IggyClient,
    JsonSerde,
    ProducerBuilder,
    Retry,
)

URL = "iggy://iggy:iggy@127.0.0.1:8090"
STREAM, TOPIC = "stream-builder", "events"


def writer_of(client: IggyClient) -> ProducerBuilder[Any]:
    """Describe how events are written."""
    return (
        client.producer(STREAM, TOPIC)
        .serde(JsonSerde())
        .create_stream_if_not_exists()
        .create_topic_if_not_exists(partitions_count=2)
        .retry(Retry(attempts=5, backoff=0.1))
    )


def reader_of(client: IggyClient) -> ConsumerBuilder[Any]:
    """Describe how events are read."""
    return (
        client.consumer_group("builders", STREAM, TOPIC)
        .serde(JsonSerde())
        .start_if_new("earliest")
        .commit(AutoCommit.after_each())
        .batch_length(100)
    )


async def run(url: str) -> None:
    """Write directly, then in the background, and read both."""
    async with IggyClient(url) as client:
        writer = writer_of(client)
        async with writer as producer:
            await producer.send({"number": 0})
        async with writer.background(linger_time=0.005) as producer:
            await producer.send_many({"number": number} for number in range(1, 10))
        async with reader_of(client).until_end() as consumer:
            numbers = [message.value["number"] async for message in consumer]
    print(f"read {sorted(numbers)}")


def main(arguments: list[str]) -> None:
    """Work on the server that the command line names."""
    anyio.run(run, arguments[0] if arguments else URL)


if __name__ == "__main__":
    main(sys.argv[1:])

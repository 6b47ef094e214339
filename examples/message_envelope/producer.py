"""Send typed events in an envelope; the serde writes them.

Run it with ``python -m examples.message_envelope.producer [URL]``, then the consumer beside it.
"""

from __future__ import annotations

import sys

import anyio

from examples.message_envelope.envelope import SERDE, Envelope, OrderConfirmed, OrderCreated
from iggy_sdk import IggyClient

URL = "iggy://iggy:iggy@127.0.0.1:8090"
STREAM, TOPIC = "message-envelope", "orders"


async def produce(url: str) -> None:
    """Send two events."""
    async with IggyClient(url) as client:
        await client.create_stream(STREAM, exist_ok=True)
        await client.create_topic(STREAM, TOPIC, exist_ok=True)
        async with client.producer(STREAM, TOPIC).serde(SERDE) as producer:
            await producer.send(Envelope("shop", OrderCreated(1, "tea")))
            await producer.send(Envelope("till", OrderConfirmed(1, 4.2)))
    print("sent 2 envelopes")


def main(arguments: list[str]) -> None:
    """Send to the server that the command line names."""
    anyio.run(produce, arguments[0] if arguments else URL)


if __name__ == "__main__":
    main(sys.argv[1:])

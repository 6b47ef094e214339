"""Read typed events from their envelope; what does not fit is set aside, and nothing stops.

Run the producer beside it first, then ``python -m examples.message_envelope.consumer [URL]``.
"""

from __future__ import annotations

import sys

import anyio

from examples.message_envelope.envelope import SERDE, Envelope, OrderConfirmed, OrderCreated
from iggy_sdk import IggyClient, SerdeError

URL = "iggy://iggy:iggy@127.0.0.1:8090"
STREAM, TOPIC = "message-envelope", "orders"


def describe(envelope: Envelope) -> str:
    """Say what happened."""
    match envelope.event:
        case OrderCreated(order_id=order_id, item=item):
            return f"{envelope.source} says: order {order_id} is {item}"
        case OrderConfirmed(order_id=order_id, price=price):
            return f"{envelope.source} says: order {order_id} costs {price}"


async def consume(url: str) -> None:
    """Read the events to their end, after slipping a foreign message in between."""
    async with IggyClient(url) as client:
        await client.send_messages(STREAM, TOPIC, [b"no envelope at all"], partition_id=0)
        reader = client.consumer("reader", STREAM, TOPIC, until_end=True).serde(SERDE)
        async with reader as consumer:
            async for message in consumer:
                try:
                    print(describe(message.value))
                except SerdeError:
                    print(f"set aside: {message.payload!r}")


def main(arguments: list[str]) -> None:
    """Read from the server that the command line names."""
    anyio.run(consume, arguments[0] if arguments else URL)


if __name__ == "__main__":
    main(sys.argv[1:])

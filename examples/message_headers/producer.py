"""Say in a header what kind of message it is, so that consumers need not look inside.

Run it with ``python -m examples.message_headers.producer [URL]``, then the consumer beside it.
"""

from __future__ import annotations

import sys

import anyio

from iggy_sdk import IggyClient, JsonSerde, Message

URL = "iggy://iggy:iggy@127.0.0.1:8090"
STREAM, TOPIC = "message-headers", "orders"
EVENTS = [
    ("order_created", {"id": 1, "item": "tea"}),
    ("order_confirmed", {"id": 1, "price": 4.2}),
    ("order_rejected", {"id": 2, "reason": "no cake"}),
]


async def produce(url: str) -> None:
    """Send three events with their kind, and a number, as headers."""
    async with IggyClient(url) as client:
        await client.create_stream(STREAM, exist_ok=True)
        await client.create_topic(STREAM, TOPIC, exist_ok=True)
        async with client.producer(STREAM, TOPIC, serde=JsonSerde()) as producer:
            for number, (kind, event) in enumerate(EVENTS):
                message = Message(event, headers={"message_type": kind, "number": number})
                await producer.send(message, partition_id=0)
                print(f"sent {kind}")


def main(arguments: list[str]) -> None:
    """Send to the server that the command line names."""
    anyio.run(produce, arguments[0] if arguments else URL)


if __name__ == "__main__":
    main(sys.argv[1:])

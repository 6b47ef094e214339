"""Choose what to do with a message by its headers.

Run the producer beside it first, then ``python -m examples.message_headers.consumer [URL]``.
"""

from __future__ import annotations

import sys
from typing import Any

import anyio

from iggy_sdk import IggyClient, JsonSerde

URL = "iggy://iggy:iggy@127.0.0.1:8090"
STREAM, TOPIC = "message-headers", "orders"


def describe(kind: object, event: dict[str, Any]) -> str:
    """Say what happened."""
    match kind:
        case "order_created":
            return f"order {event['id']}: {event['item']}"
        case "order_confirmed":
            return f"order {event['id']} costs {event['price']}"
        case "order_rejected":
            return f"order {event['id']} is refused: {event['reason']}"
    return f"unknown kind {kind!r}"


async def consume(url: str) -> None:
    """Read the events to their end."""
    async with IggyClient(url) as client:
        reader = client.consumer("reader", STREAM, TOPIC, serde=JsonSerde(), until_end=True)
        async with reader as consumer:
            async for message in consumer:
                print(describe(message.headers["message_type"], message.value))


def main(arguments: list[str]) -> None:
    """Read from the server that the command line names."""
    anyio.run(consume, arguments[0] if arguments else URL)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Send with a producer: keys that keep their order, and batches in the background.

Run it with ``python -m examples.basic.producer [URL]``, then the consumer beside it.
"""

from __future__ import annotations

import sys

import anyio

from iggy_sdk import IggyClient

URL = "iggy://iggy:iggy@127.0.0.1:8090"
STREAM, TOPIC = "basic", "orders"
CUSTOMERS = ("ada", "grace", "alan")
ORDERS = 300


async def produce(url: str) -> None:
    """Send orders of three customers, each in the order in which they came about."""
    async with IggyClient(url) as client:
        await client.create_stream(STREAM, exist_ok=True)
        await client.create_topic(STREAM, TOPIC, partitions_count=3, exist_ok=True)
        async with client.producer(STREAM, TOPIC).background(linger_time=0.005) as producer:
            for number in range(ORDERS):
                customer = CUSTOMERS[number % len(CUSTOMERS)]
                await producer.send(f"{customer} {number}", key=customer)
            await producer.flush()
        print(f"sent {ORDERS} orders of {len(CUSTOMERS)} customers")


def main(arguments: list[str]) -> None:
    """Send to the server that the command line names."""
    anyio.run(produce, arguments[0] if arguments else URL)


if __name__ == "__main__":
    main(sys.argv[1:])

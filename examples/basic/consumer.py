"""Read in a consumer group, and see that the orders of each customer come in their order.

Run the producer beside it first, then ``python -m examples.basic.consumer [URL]``; start several to
see them share the partitions.
"""

from __future__ import annotations

import sys
from collections import defaultdict

import anyio

from iggy_sdk import IggyClient

URL = "iggy://iggy:iggy@127.0.0.1:8090"
STREAM, TOPIC = "basic", "orders"


async def consume(url: str) -> None:
    """Read everything that the group has not read yet."""
    orders: defaultdict[str, list[int]] = defaultdict(list)
    async with IggyClient(url) as client:
        group = client.consumer_group("accounting", STREAM, TOPIC, until_end=True)
        async with group as consumer:
            async for message in consumer:
                customer, number = message.payload.decode().split()
                orders[customer].append(int(number))
    for customer, numbers in sorted(orders.items()):
        order = "in order" if numbers == sorted(numbers) else "out of order"
        print(f"{customer}: {len(numbers)} orders, {order}")


def main(arguments: list[str]) -> None:
    """Read from the server that the command line names."""
    anyio.run(consume, arguments[0] if arguments else URL)


if __name__ == "__main__":
    main(sys.argv[1:])

"""A worker of the order pipeline: puts each order into a table, then commits it by hand.

python order_worker.py URL DATABASE BACKEND

It writes the number of each order that it is given to its output, as soon as the order is in the
table, and runs until it is killed.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from contextlib import suppress

import anyio

from iggy_sdk import AutoCommit, IggyClient, IggyError

WAIT_SECONDS = 30.0


async def main(url: str, database: str) -> None:
    """Work off orders, in a group with the other workers."""
    table = sqlite3.connect(database, timeout=WAIT_SECONDS, isolation_level=None)
    async with IggyClient(url) as client:
        group = client.consumer_group("billing", "shop", "orders", commit=AutoCommit.disabled())
        async with group as consumer:
            async for message in consumer:
                number = int(message.payload)
                table.execute("INSERT OR IGNORE INTO orders VALUES (?)", (number,))
                os.write(sys.stdout.fileno(), b"%d\n" % number)
                # A commit that fails is made up for by the next one, or the order comes again.
                with suppress(IggyError):
                    await message.commit()


if __name__ == "__main__":
    address, path, engine = sys.argv[1:]
    anyio.run(main, address, path, backend=engine)

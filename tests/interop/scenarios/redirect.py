"""The official client connects to a server, perhaps a follower, and makes a stream on the leader.

Run with an interpreter that has the wheel: ``redirect.py HOST:PORT``. Prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from apache_iggy import IggyClient  # type: ignore[import-not-found]


async def main(address):
    client = IggyClient.from_connection_string(f"iggy+tcp://iggy:iggy@{address}")
    await client.connect()
    await client.create_stream("made-by-the-client")
    stream = await client.get_stream("made-by-the-client")
    return {"stream": stream.name}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(main(sys.argv[1]))))
    sys.stdout.flush()
    # Threads of the client outlive the interpreter and abort it when it ends in good order.
    os._exit(0)

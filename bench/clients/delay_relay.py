"""Passes TCP connections on to a port of this machine, each direction half a delay late.

python delay_relay.py PORT DELAY_MS

It writes the port on which it listens to its output.
"""

from __future__ import annotations

import asyncio
import sys

READ_BYTES = 1 << 20


async def carry(source: asyncio.StreamReader, target: asyncio.StreamWriter, delay_s: float) -> None:
    """Write what was read, in its order and later; what is under way does not hold up the rest."""
    loop = asyncio.get_running_loop()
    while data := await source.read(READ_BYTES):
        loop.call_later(delay_s, target.write, data)
    loop.call_later(delay_s, target.close)


async def main(port: int, delay_s: float) -> None:
    """Relay until it is killed."""

    async def relay(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        upstream, downstream = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(carry(source, downstream, delay_s), carry(upstream, target, delay_s))

    server = await asyncio.start_server(relay, "127.0.0.1", 0, limit=READ_BYTES)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2]) / 2e3))

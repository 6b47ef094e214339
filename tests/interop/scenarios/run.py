"""Runs scenarios with the official client that is installed here, as it is told.

    python -m tests.interop.scenarios.run

Reads requests, one JSON object a line: the name of a scenario, what it is given, and how long it
may take. Each scenario writes a line for each of its steps; then comes one that says that it ended.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback
from typing import Any

from tests.interop.scenarios import attempts, exchange, members
from tests.interop.scenarios.report import say
from tests.interop.scenarios.verbs import everything

SCENARIOS: dict[str, Any] = {
    "connect": attempts.connect,
    "create a stream": attempts.create_stream,
    "everything": everything.run,
    "finish": members.finish,
    "join": members.join,
    "join by hand": attempts.join,
    "leave": members.leave,
    "poll as a member": attempts.poll_as_member,
    "produce": members.produce,
    "payloads": attempts.payloads,
    "read": exchange.read,
    "send": attempts.send,
    "taken": members.taken,
    "write": exchange.write,
}


async def answer(request: dict[str, Any]) -> None:
    """Run one scenario and say how it ended."""
    try:
        running = SCENARIOS[request["run"]](**request["given"])
        returned = await asyncio.wait_for(running, request["seconds_max"])
    except Exception:
        say(failed=traceback.format_exc())
    else:
        say(returned=returned)


async def main() -> None:
    while line := await asyncio.to_thread(sys.stdin.readline):
        await answer(json.loads(line))


if __name__ == "__main__":
    asyncio.run(main())
    sys.stdout.flush()
    # Threads of the client outlive the interpreter and abort it when it ends in good order.
    os._exit(0)

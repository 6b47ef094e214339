"""The SDK of this repository over one transport of a server, driven by ``bench_transports``.

python sdk_over_url.py URL TOPIC WORK MESSAGES PAYLOAD_BYTES SECONDS CORE BACKEND SERVER_PID
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio

ROOT = next(path for path in Path(__file__).resolve().parents if (path / "Makefile").exists())
sys.path[:0] = [str(ROOT), str(ROOT / "protocol")]

from bench.clients.sdk import Workloads  # noqa: E402  the same
from bench.clients.stopwatch import Stopwatch  # noqa: E402  the same
from bench.machine import cpu_seconds, descendants  # noqa: E402  the same
from iggy_sdk import IggyClient  # noqa: E402  the path above comes first


async def main(
    url: str, topic: str, work: str, messages: int, payload_bytes: int, seconds: float, server: int
) -> None:
    """Do one kind of work for some seconds, and report."""

    def server_cpu_s() -> float:
        return sum(sum(cpu_seconds(process).values()) for process in descendants(server))

    watch = Stopwatch(seconds, server_cpu_s)
    async with IggyClient(url) as client:
        works = Workloads(client, topic, messages, payload_bytes)
        await watch.repeat(getattr(works, work))
    watch.report(messages)


if __name__ == "__main__":
    place, name, kind, count, size, length, core, backend, pid = sys.argv[1:]
    os.sched_setaffinity(0, {int(core)})
    told = (place, name, kind, int(count), int(size), float(length), int(pid))
    anyio.run(main, *told, backend=backend)

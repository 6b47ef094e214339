"""How long a send takes whose client leaves Nagle's algorithm on, as the official ones do.

    python bench/bench_nagle.py [--sends COUNT]

Each send is written in two pieces, the head and the body. With Nagle's algorithm the kernel of the
client holds the body back until the head is acknowledged, and a server that does not acknowledge an
incomplete frame early lets it wait for some 40 ms. Without the algorithm (``TCP_NODELAY``) nothing
is held back: that is what the other column is held against. ``CPU us`` is the time of the server's
processes for one send.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = next(path for path in Path(__file__).resolve().parents if (path / "Makefile").exists())
sys.path[:0] = [str(ROOT), str(ROOT / "protocol")]

from bench.machine import cpu_seconds, descendants  # noqa: E402  the path comes first
from iggy_protocol import (  # noqa: E402  the path comes first
    CreateStream,
    CreateTopic,
    Partitioning,
    SendMessages,
)
from tests.server.features.topic_calls import frame_of  # noqa: E402  the path comes first
from tests.server.running import RunningServer  # noqa: E402  the path comes first

HEAD_BYTES = 8
SIZES = (1_000, 10_000, 20_000, 40_000, 60_000, 200_000, 1_000_000)


def busy_s(processes: list[int]) -> float:
    """Return how long processes have been on a core."""
    return sum(sum(cpu_seconds(process).values()) for process in processes)


def measure(
    server: RunningServer, size: int, sends: int, *, has_nagle: bool
) -> tuple[float, float, float]:
    """Return the median, the 99th percentile and the processor time of a send, in microseconds."""
    client = server.login()
    client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, not has_nagle)
    frame = frame_of(SendMessages("s", "t", Partitioning.partition(0), [bytes(size)]))
    head, body = frame[:HEAD_BYTES], frame[HEAD_BYTES:]
    processes = descendants(server.pid)
    took_us: list[float] = []
    before_s = busy_s(processes)
    for _ in range(sends):
        begun = time.perf_counter()
        client.socket.sendall(head)
        client.socket.sendall(body)
        client.socket.recv(HEAD_BYTES, socket.MSG_WAITALL)
        took_us.append((time.perf_counter() - begun) * 1e6)
    cpu_us = (busy_s(processes) - before_s) / sends * 1e6
    client.close()
    quantiles = statistics.quantiles(took_us, n=100)
    return statistics.median(took_us), quantiles[98], cpu_us


def main() -> None:
    """Measure all sizes with the algorithm and without it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sends", type=int, default=300)
    sends = parser.parse_args().sends
    print(f"{'bytes':>9}{'Nagle':>8}{'p50 us':>10}{'p99 us':>10}{'CPU us':>9}")
    with tempfile.TemporaryDirectory() as folder, RunningServer(Path(folder)) as server:
        root = server.login()
        root.ask(CreateStream("s"))
        root.ask(CreateTopic("s", "t", 1))
        for size in SIZES:
            for has_nagle in (True, False):
                figures = measure(server, size, sends, has_nagle=has_nagle)
                p50, p99, cpu = figures
                row = f"{p50:>10.0f}{p99:>10.0f}{cpu:>9.0f}"
                print(f"{size:>9}{'on' if has_nagle else 'off':>8}{row}", flush=True)


if __name__ == "__main__":
    main()

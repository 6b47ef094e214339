"""How fast a topic becomes Arrow, as ratios to polls alone and to a list of payloads, in one run.

    python bench/bench_arrow.py [--messages N] [--payload BYTES] [--rounds N] [--json FILE]

A topic of a million messages of 1000 bytes is read from its first message to its last in each of
these ways, in turns, each time by a new process; medians count. The server runs on the first core
and the reader on the second.

    polls                 requests and replies; nothing is done with them
    list, one by one      ``async for``, each payload appended to a list
    list, in batches      ``batches()``, the payloads of each appended to a list
    list, whole polls     ``poll_messages()`` of 4 MiB, ``payloads()`` of each appended to a list
    Arrow, batches        ``client.arrow_batches()``
    Arrow, consumer       ``consumer.arrow_batches()`` with the batch length of the polls above
    Arrow, table          ``client.read_arrow()``

``to polls`` and ``to list`` are speeds relative to those of ``polls`` and ``list, one by one``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

ROOT = next(path for path in Path(__file__).resolve().parents if (path / "Makefile").exists())
sys.path[:0] = [str(ROOT), str(ROOT / "protocol")]

from bench import servers  # noqa: E402  the path above comes first
from bench.machine import LOAD_CORE  # noqa: E402  the same
from bench.servers import BenchFailed, ServerPlan, Topic  # noqa: E402  the same
from iggy_protocol import PollMessages  # noqa: E402  the same
from iggy_sdk import ConsumerIdentity, IggyClient, PollingStrategy  # noqa: E402  the same

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

STREAM = "bench"
READER = ConsumerIdentity.single("bench")
POLL_BYTES = 4 << 20
HEADER_BYTES = 64
RUN_S_MAX = 300.0
LIST, POLLS = "list, one by one", "polls"
BARS = {"Arrow, batches": (2.0, 0.7), "Arrow, table": (2.0, 0.7)}
"""How much faster than a list of payloads, and than polls alone, each should be."""


class Reader:
    """Reads the topic once, in one of the ways."""

    def __init__(self, client: IggyClient, topic: str, count: int, payload_bytes: int) -> None:
        self._client = client
        self._topic = topic
        self._count = count
        self._poll_count = POLL_BYTES // (payload_bytes + HEADER_BYTES)

    async def polls(self) -> int:
        """Poll, and look at nothing but the offsets."""
        read = 0
        while read < self._count:
            strategy = PollingStrategy.offset(read)
            polled = await self._client.request(
                PollMessages(READER, STREAM, self._topic, strategy, self._poll_count, 0)
            )
            read += len(polled.messages)
        return read

    async def one_by_one(self) -> int:
        """Append each payload of a consumer to a list."""
        payloads = []
        async with self._consumer() as consumer:
            async for message in consumer:
                payloads.append(message.payload)  # noqa: PERF401  as people write it
        return len(payloads)

    async def in_batches(self) -> int:
        """Append the payloads of a consumer's batches to a list."""
        payloads: list[bytes] = []
        async with self._consumer() as consumer:
            async for batch in consumer.batches(self._poll_count):
                payloads += batch.payloads()
        return len(payloads)

    async def whole_polls(self) -> int:
        """Append the payloads of polls to a list."""
        payloads: list[bytes] = []
        while len(payloads) < self._count:
            batch = await self._client.poll_messages(
                STREAM,
                self._topic,
                consumer=READER,
                partition_id=0,
                strategy=PollingStrategy.offset(len(payloads)),
                count=self._poll_count,
            )
            payloads += batch.payloads()
        return len(payloads)

    async def arrow_batches(self) -> int:
        """Read record batches."""
        async with self._client.arrow_batches(STREAM, self._topic) as batches:
            return await _rows(batches)

    async def arrow_consumer(self) -> int:
        """Read record batches of a consumer."""
        async with self._consumer() as consumer:
            return await _rows(consumer.arrow_batches())

    async def arrow_table(self) -> int:
        """Read a table."""
        table = await self._client.read_arrow(STREAM, self._topic)
        count: int = table.num_rows
        return count

    def _consumer(self) -> Any:
        # A new name, whose offsets are not stored yet.
        return self._client.consumer(
            f"bench-{os.getpid()}",
            STREAM,
            self._topic,
            batch_length=self._poll_count,
            until_end=True,
        )


WORKS = {
    POLLS: "polls",
    LIST: "one_by_one",
    "list, in batches": "in_batches",
    "list, whole polls": "whole_polls",
    "Arrow, batches": "arrow_batches",
    "Arrow, consumer": "arrow_consumer",
    "Arrow, table": "arrow_table",
}


async def _rows(batches: AsyncIterator[Any]) -> int:
    return sum([batch.num_rows async for batch in batches])


async def fill(address: str, topic: str, count: int, payload_bytes: int) -> None:
    """Fill the topic."""
    async with IggyClient(f"iggy://iggy:iggy@{address}") as client:
        for start in range(0, count, 1000):
            payloads = [os.urandom(payload_bytes) for _ in range(min(1000, count - start))]
            await client.send_messages(STREAM, topic, payloads, partition_id=0)


async def work(address: str, topic: str, name: str, count: int, payload_bytes: int) -> None:
    """Read the topic, and print how long it took."""
    os.sched_setaffinity(0, {LOAD_CORE})
    async with IggyClient(f"iggy://iggy:iggy@{address}") as client:
        reader = Reader(client, topic, count, payload_bytes)
        if "arrow" in name:
            import iggy_sdk.arrow  # noqa: F401  its import is not what is measured
        begun, used = time.perf_counter(), time.process_time()
        read = await getattr(reader, name)()
        seconds, used = time.perf_counter() - begun, time.process_time() - used
    if read != count:
        raise BenchFailed(f"{name} read {read} messages of {count}")
    print(json.dumps({"seconds": seconds, "cpu_seconds": used}))


def turn(address: str, topic: Topic, name: str, count: int, payload_bytes: int) -> dict[str, float]:
    """Let a new process read the topic once."""
    command = [sys.executable, __file__, "--work", WORKS[name], "--address", address]
    command += ["--topic", topic.name, "--messages", str(count), "--payload", str(payload_bytes)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S_MAX, check=False)
    if done.returncode:
        raise BenchFailed(f"{name} failed: {done.stderr[-2000:]}")
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def measure(count: int, payload_bytes: int, rounds: int) -> list[dict[str, Any]]:
    """Run all works in turns, and print the table."""
    with tempfile.TemporaryDirectory() as folder:
        server = servers.ours(ServerPlan(), Path(folder))
        server.start()
        try:
            topic, address = server.create_topic(1), f"127.0.0.1:{server.port}"
            anyio.run(fill, address, topic.name, count, payload_bytes)
            figures: dict[str, list[dict[str, float]]] = {name: [] for name in WORKS}
            for _ in range(rounds):
                for name in WORKS:
                    figures[name].append(turn(address, topic, name, count, payload_bytes))
        finally:
            server.stop()
    seconds = {
        name: statistics.median(one["seconds"] for one in seen) for name, seen in figures.items()
    }
    cpu = {
        name: statistics.median(one["cpu_seconds"] for one in seen)
        for name, seen in figures.items()
    }
    print(f"{count} messages of {payload_bytes} bytes, medians of {rounds} rounds")
    print(f"{'way':<22}{'messages/s':>12}{'MB/s':>8}{'CPU s':>8}{'to polls':>10}{'to list':>9}")
    for name, value in seconds.items():
        print(
            f"{name:<22}{count / value:>12.0f}{count * payload_bytes / value / 1e6:>8.0f}"
            f"{cpu[name]:>8.2f}{seconds[POLLS] / value:>10.2f}{seconds[LIST] / value:>9.2f}"
            f"{_verdict(name, seconds)}"
        )
    return [{"way": name, "seconds": seconds[name], "cpu_seconds": cpu[name]} for name in WORKS]


def _verdict(name: str, seconds: dict[str, float]) -> str:
    if name not in BARS:
        return ""
    to_list, to_polls = BARS[name]
    is_met = seconds[LIST] / seconds[name] >= to_list and seconds[POLLS] / seconds[name] >= to_polls
    return f"  >{to_polls} and >{to_list}: {'met' if is_met else 'short'}"


def main() -> None:
    """Measure, or read as one of the measured processes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--payload", type=int, default=1000, help="bytes of a message")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    for name in ("work", "address", "topic"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        anyio.run(
            work, options.address, options.topic, options.work, options.messages, options.payload
        )
        return
    records = measure(options.messages, options.payload, options.rounds)
    if options.json:
        options.json.write_text(json.dumps(records, indent=2) + "\n")


if __name__ == "__main__":
    main()

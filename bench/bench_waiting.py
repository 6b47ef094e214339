"""How soon a waiting consumer has a message, and what it costs while there is none.

    python bench/bench_waiting.py [--messages COUNT] [--idle SECONDS]

A producer sends single messages with pauses, and a consumer of the SDK at its defaults iterates;
both are in one process, so one clock tells how long it takes from the call of ``send`` until the
loop of the consumer has the message. From 0.10 on the server answers a poll when messages come;
before, the consumer polls again and again. The generations take turns, message by message.

``polls/s`` are those of the idle consumer, ``CPU %`` is what the server's processes need then.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import anyio

ROOT = next(path for path in Path(__file__).resolve().parents if (path / "Makefile").exists())
sys.path[:0] = [str(ROOT), str(ROOT / "protocol")]

from bench import servers  # noqa: E402  the path comes first
from bench.machine import LOAD_CORE, cpu_seconds  # noqa: E402  the path comes first
from bench.servers import BenchServer, ServerPlan, Topic  # noqa: E402  the path comes first
from iggy_sdk import IggyClient, ReceivedMessage  # noqa: E402  the path comes first

PROTOCOLS = ("0.8", "0.9", "0.10")
END = b"the end"
PAUSE_S = (0.005, 0.06)
"""No pace that a polling consumer could fall into step with."""
HEAD = f"{'consumer':<18}{'protocol':>9}{'p50 ms':>9}{'p99 ms':>9}{'polls/s':>9}{'CPU %':>8}"


class Waiter(NamedTuple):
    """A consumer that waits, and what sends to it."""

    name: str
    protocol: str
    polls: Callable[[], int]
    send: Callable[[bytes], Awaitable[object]]
    messages: AsyncIterator[ReceivedMessage]


async def open_waiter(
    stack: AsyncExitStack, url: str, topic: Topic, protocol: str, *, is_group: bool
) -> Waiter:
    """Open a producer and a consumer with clients of their own."""
    told = f"{url}?protocol={protocol}"
    sender = await stack.enter_async_context(IggyClient(told))
    client = await stack.enter_async_context(IggyClient(told))
    producer = await stack.enter_async_context(
        sender.producer(servers.STREAM, topic.name, partitioning=0)
    )
    if is_group:
        builder = client.consumer_group("waiting", servers.STREAM, topic.name)
    else:
        builder = client.consumer("waiting", servers.STREAM, topic.name, partition_id=0)
    consumer = await stack.enter_async_context(builder)
    name = "group" if is_group else "one partition"

    def polls() -> int:
        return consumer.statistics().polls

    return Waiter(name, protocol, polls, producer.send, aiter(consumer))


async def wake(waiter: Waiter, number: int) -> float:
    """Return the milliseconds from sending a message until the consumer has it."""
    received_at = 0.0

    async def receive() -> None:
        nonlocal received_at
        await anext(waiter.messages)
        received_at = time.perf_counter()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(receive)
        await anyio.sleep(random.uniform(*PAUSE_S))
        sent_at = time.perf_counter()
        await waiter.send(b"%d" % number)
    return (received_at - sent_at) * 1e3


async def idle(waiter: Waiter, server: BenchServer, seconds: float) -> tuple[float, float]:
    """Return the polls in a second, and the share of a core that the server needs for them."""
    processes = server.processes()

    def busy_s() -> float:
        return sum(sum(cpu_seconds(process).values()) for process in processes)

    async def receive() -> None:
        # What was not committed in time comes again.
        while (await anext(waiter.messages)).payload != END:
            pass

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(receive)
        await anyio.sleep(0.5)
        polls, before_s = waiter.polls(), busy_s()
        await anyio.sleep(seconds)
        polls, used_s = waiter.polls() - polls, busy_s() - before_s
        await waiter.send(END)
    return polls / seconds, used_s / seconds * 100


async def compare(server: BenchServer, messages: int, idle_s: float, is_group: bool) -> None:
    """Let a consumer of each generation wait for as many messages, and then for none."""
    url = f"iggy://iggy:iggy@127.0.0.1:{server.port}"
    took: dict[str, list[float]] = {protocol: [] for protocol in PROTOCOLS}
    topics = [server.create_topic(1) for _ in PROTOCOLS]
    async with AsyncExitStack() as stack:
        waiters = [
            await open_waiter(stack, url, topic, protocol, is_group=is_group)
            for protocol, topic in zip(PROTOCOLS, topics, strict=True)
        ]
        for number in range(messages):
            for waiter in waiters:
                took[waiter.protocol].append(await wake(waiter, number))
    for protocol, topic in zip(PROTOCOLS, topics, strict=True):
        # Alone, so that the server works for nobody else.
        async with AsyncExitStack() as stack:
            waiter = await open_waiter(stack, url, topic, protocol, is_group=is_group)
            polls, cpu = await idle(waiter, server, idle_s)
        quantiles = statistics.quantiles(took[protocol], n=100)
        figures = f"{quantiles[49]:>9.2f}{quantiles[98]:>9.2f}{polls:>9.1f}{cpu:>8.2f}"
        print(f"{waiter.name:<18}{protocol:>9}{figures}", flush=True)


def main() -> None:
    """Compare consumers of one partition, and those of a group."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, default=300)
    parser.add_argument("--idle", type=float, default=3.0, help="seconds without a message")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = servers.ours(ServerPlan(), Path(folder))
        server.start()
        os.sched_setaffinity(0, {LOAD_CORE})
        try:
            print(HEAD)
            for is_group in (False, True):
                anyio.run(compare, server, chosen.messages, chosen.idle, is_group)
        finally:
            server.stop()


if __name__ == "__main__":
    main()

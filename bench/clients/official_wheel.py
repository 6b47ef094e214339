"""The official wheel at work; run by its own interpreter, driven by ``bench_sdk``.

python official_wheel.py ADDRESS TOPIC WORK MESSAGES PAYLOAD_BYTES SECONDS CORE
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import apache_iggy  # type: ignore[import-not-found]
from apache_iggy import AutoCommit, IggyClient, PollingStrategy, SendMessage

ROOT = next(path for path in Path(__file__).resolve().parents if (path / "Makefile").exists())
sys.path.insert(0, str(ROOT))

from bench.clients.stopwatch import Stopwatch  # noqa: E402  the path above comes first

STREAM = "bench"
TASKS = 64
IS_CLASSIC = not hasattr(apache_iggy, "Consumer")
"""Before 0.9 a poll names no consumer."""
CHUNK = 100
STORED = 10_000
STORED_LONG = 50_000
HANDLER_SECONDS = 50e-6


async def consume_group(client, group, topic, batch_length):
    """Read everything there is as a new group, with a handler that computes for 50 us."""
    consumer = await client.consumer_group(
        group,
        STREAM,
        topic,
        0,
        PollingStrategy.First(),
        batch_length,
        AutoCommit.Interval(timedelta(milliseconds=200)),
    )
    clock, count = time.perf_counter, 0
    async for message in consumer.iter_messages():
        message.payload()
        end = clock() + HANDLER_SECONDS
        while clock() < end:
            pass
        count += 1
        if count == STORED:
            return


async def poll_from(client, topic, offset, count):
    """Poll at an offset."""
    where = PollingStrategy.Offset(offset)
    if IS_CLASSIC:
        return await client.poll_messages(STREAM, topic, 0, where, count, False)
    return await client.poll_messages(
        STREAM,
        topic,
        consumer=apache_iggy.Consumer.Single(1),
        polling_strategy=where,
        count=count,
        auto_commit=False,
        partition_id=0,
    )


async def gather_payloads(client, topic, batch_length):
    """Read everything there is into a list."""
    payloads: list[bytes] = []
    while len(payloads) < STORED_LONG:
        polled = await poll_from(client, topic, len(payloads), batch_length)
        payloads += [message.payload() for message in polled]


async def main(address, topic, work, messages, payload_bytes, seconds):
    client = IggyClient(address)
    await client.connect()
    await client.login_user("iggy", "iggy")
    payloads = [bytes(payload_bytes)] * messages
    watch = Stopwatch(seconds)

    async def send():
        await client.send_messages(STREAM, topic, 0, [SendMessage(each) for each in payloads])

    async def poll():
        for message in await poll_from(client, topic, 0, messages):
            message.payload()

    async def gather():
        await gather_payloads(client, topic, messages)

    async def crowd():
        async def member():
            for _ in range(CHUNK):
                await client.send_messages(STREAM, topic, 0, [SendMessage(payloads[0])])

        await asyncio.gather(*(member() for _ in range(TASKS)))

    groups = itertools.count()

    async def consume():
        await consume_group(client, f"bench-{next(groups)}", topic, messages)

    works = {"send": send, "poll": poll, "crowd": crowd, "consume": consume, "gather": gather}
    await watch.repeat(works[work])
    each = {"crowd": TASKS * CHUNK, "consume": STORED, "gather": STORED_LONG}
    watch.report(each.get(work, messages))


if __name__ == "__main__":
    address, topic, work, messages, payload_bytes, seconds, core = sys.argv[1:]
    os.sched_setaffinity(0, {int(core)})
    asyncio.run(main(address, topic, work, int(messages), int(payload_bytes), float(seconds)))
    # Threads of the client outlive the interpreter and abort it when it ends in good order.
    os._exit(0)

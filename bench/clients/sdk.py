"""The SDK of this repository at work, driven by ``bench_sdk``.

python sdk.py ADDRESS TOPIC WORK MESSAGES PAYLOAD_BYTES SECONDS CORE BACKEND PROTOCOL
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from pathlib import Path

import anyio

ROOT = next(path for path in Path(__file__).resolve().parents if (path / "Makefile").exists())
sys.path[:0] = [str(ROOT), str(ROOT / "protocol")]

from bench.clients.stopwatch import Stopwatch  # noqa: E402  the path above comes first
from iggy_sdk import (  # noqa: E402  the path above comes first
    ConsumerIdentity,
    IggyClient,
    PollingStrategy,
    ReceivedMessage,
)

STREAM = "bench"
TASKS = 64
CHUNK = 100
STORED = 10_000
STORED_LONG = 50_000
"""Messages of a topic that is read to its end, by a handler or into Arrow."""
HANDLER_SECONDS = 50e-6
READER = ConsumerIdentity.single(1)


class Workloads:
    """What the client is asked to do."""

    def __init__(self, client: IggyClient, topic: str, messages: int, payload_bytes: int) -> None:
        self._client = client
        self._topic = topic
        self._payloads = [bytes(payload_bytes)] * messages

    async def send(self) -> None:
        await self._client.send_messages(STREAM, self._topic, list(self._payloads), partition_id=0)

    async def poll(self) -> None:
        polled = await self._client.poll_messages(
            STREAM,
            self._topic,
            consumer=READER,
            partition_id=0,
            strategy=PollingStrategy.offset(0),
            count=len(self._payloads),
        )
        for message in polled:
            message.payload  # noqa: B018  reading it is the work

    async def crowd(self) -> None:
        async def member() -> None:
            for _ in range(CHUNK):
                await self._client.send_messages(
                    STREAM, self._topic, self._payloads[:1], partition_id=0
                )

        async with anyio.create_task_group() as tasks:
            for _ in range(TASKS):
                tasks.start_soon(member)

    async def consume(self, *, prefetch: bool = True) -> None:
        """Read everything there is, with a handler that computes for 50 us."""
        builder = self._client.consumer("bench", STREAM, self._topic, until_end=True)
        builder = builder.batch_length(len(self._payloads)).replay_from("earliest")
        if not prefetch:
            builder = builder.prefetch_messages(0)
        clock = time.perf_counter
        async with builder.commit_backwards() as consumer:
            async for message in consumer:
                message.payload  # noqa: B018  reading it is part of the work
                end = clock() + HANDLER_SECONDS
                while clock() < end:
                    pass

    async def consume_plainly(self) -> None:
        """Read in the same way, without fetching ahead."""
        await self.consume(prefetch=False)

    async def arrow(self) -> None:
        """Read everything there is as record batches."""
        async with self._client.arrow_batches(STREAM, self._topic) as batches:
            rows = sum([batch.num_rows async for batch in batches])
        assert rows == STORED_LONG

    async def background(self, watch: Stopwatch) -> None:
        builder = self._client.producer(STREAM, self._topic, partitioning=0).background()
        async with builder as producer:
            payload = self._payloads[0]

            async def member() -> None:
                for _ in range(CHUNK):
                    await producer.send(payload)

            async def crowd() -> None:
                async with anyio.create_task_group() as tasks:
                    for _ in range(TASKS):
                        tasks.start_soon(member)
                await producer.flush()

            await watch.repeat(crowd)

    async def calls(self, watch: Stopwatch) -> None:
        """Call and answer in one process; ``messages`` says how many calls wait at a time."""
        client, replies = self._client, f"{self._topic}-replies"
        await client.create_topic(STREAM, replies, partitions_count=1)
        async with (
            client.responder(STREAM, self._topic) as responder,
            client.request_reply(STREAM, self._topic, reply_topic=replies) as caller,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(partial(responder.serve, echo, concurrency=len(self._payloads)))

            async def call() -> None:
                await caller.call(self._payloads[0])

            async with anyio.create_task_group() as callers:
                for _ in self._payloads:
                    callers.start_soon(watch.repeat, call)
            responder.stop()
        await client.delete_topic(STREAM, replies)


async def echo(message: ReceivedMessage[bytes]) -> bytes:
    """Answer with the request."""
    return message.payload


async def main(
    address: str,
    topic: str,
    work: str,
    messages: int,
    payload_bytes: int,
    seconds: float,
    protocol: str,
) -> None:
    """Do one kind of work for some seconds, and report."""
    watch = Stopwatch(seconds)
    async with IggyClient(f"iggy://iggy:iggy@{address}?protocol={protocol}") as client:
        works = Workloads(client, topic, messages, payload_bytes)
        if work in {"background", "calls"}:
            await getattr(works, work)(watch)
        else:
            await watch.repeat(getattr(works, work))
    if work.startswith("consume"):
        messages = STORED
    each = {"crowd": TASKS * CHUNK, "background": TASKS * CHUNK, "calls": 1, "arrow": STORED_LONG}
    watch.report(each.get(work, messages))


if __name__ == "__main__":
    place, name, kind, count, size, length, core, backend, spoken = sys.argv[1:]
    os.sched_setaffinity(0, {int(core)})
    told = place, name, kind, int(count), int(size), float(length), spoken
    anyio.run(main, *told, backend=backend)

"""Members of groups and producers that run while other scenarios do.

Each has a name, under which it is asked how far it is and told to stop.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from apache_iggy import AutoCommit, AutoCommitAfter  # type: ignore[import-not-found]

from tests.interop.scenarios.installed import IS_CLASSIC, Client

STOP_SECONDS_MAX = 10
PAUSE_SECONDS = 0.01
BATCH = 5
DISCONNECTED = {"Disconnected", "Not connected"}
DISCONNECTIONS_MAX = 10
RECONNECT_SECONDS = 0.2


@dataclass
class Member:
    """A consumer of a group, in the background.

    Attributes:
        taken: partition, offset, payload and time of each message, in the order of handling.
    """

    client: Client
    place: tuple[str, str, str]
    taken: list[tuple[int, int, str, float]] = field(default_factory=list)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    async def consume(self, consumer: Any) -> None:
        """Handle messages until told to stop.

        The client 0.9 raises when it cannot store an offset because it was disconnected, and then
        connects again by itself, so its application goes on.
        """
        for _ in range(DISCONNECTIONS_MAX):
            try:
                return await consumer.consume_messages(self.handle, self.stop)
            except RuntimeError as error:
                if str(error) not in DISCONNECTED:
                    raise
                await asyncio.sleep(RECONNECT_SECONDS)
        raise RuntimeError(f"it was disconnected {DISCONNECTIONS_MAX} times")

    async def handle(self, message: Any) -> None:
        """Note one message, with the time of the machine, which all processes share."""
        payload = message.payload().decode()
        self.taken.append((message.partition_id(), message.offset(), payload, time.monotonic()))


@dataclass
class Producer:
    """Sends one message after the other to each partition in turn.

    Attributes:
        sent: the payloads whose sends were answered.
    """

    sent: list[str] = field(default_factory=list)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


members: dict[str, Member] = {}
producers: dict[str, Producer] = {}


async def join(
    url: str,
    name: str,
    stream: str,
    topic: str,
    group: str,
    *,
    batch: int = BATCH,
    stores_each: bool = False,
) -> None:
    """Join a group and consume from now on.

    Args:
        batch: how many messages it polls at once.
        stores_each: whether an offset is stored after each message, not by the poll before it.
    """
    client = await Client.connected(url)
    commits = AutoCommit.After(AutoCommitAfter.ConsumingEachMessage()) if stores_each else None
    consumer = await client.consumer(group, stream, topic, batch=batch, commits=commits)
    member = members[name] = Member(client, (stream, topic, group))
    member.task = asyncio.create_task(member.consume(consumer))


async def taken(name: str, least: int = 0, until: str | None = None) -> list[Any]:
    """Wait until a member has handled so many messages, and a certain one, and return them."""
    member = members[name]
    while len(member.taken) < least or until not in {
        None,
        *(text for _, _, text, _ in member.taken),
    }:
        assert member.task is not None
        if member.task.done():
            await member.task
        await asyncio.sleep(PAUSE_SECONDS)
    return member.taken


async def leave(name: str) -> list[Any]:
    """Stop consuming, leave the group where the version can, and return what was handled."""
    member = members.pop(name)
    assert member.task is not None
    member.stop.set()
    await asyncio.wait_for(member.task, STOP_SECONDS_MAX)
    if not IS_CLASSIC:
        await member.client.calls.leave_consumer_group(*member.place)
    return member.taken


async def produce(url: str, name: str, stream: str, topic: str, partitions: int) -> None:
    """Send from now on; payloads begin with the name."""
    client = await Client.connected(url)
    producer = producers[name] = Producer()

    async def send() -> None:
        number = 0
        while not producer.stop.is_set():
            payload = f"{name}:{number}"
            await client.send(stream, topic, number % partitions, [payload])
            producer.sent.append(payload)
            number += 1
            await asyncio.sleep(PAUSE_SECONDS)

    producer.task = asyncio.create_task(send())


async def finish(name: str) -> list[str]:
    """Stop sending, and return what was sent and answered."""
    producer = producers.pop(name)
    assert producer.task is not None
    producer.stop.set()
    await asyncio.wait_for(producer.task, STOP_SECONDS_MAX)
    return producer.sent

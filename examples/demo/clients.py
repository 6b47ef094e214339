"""The producer and the two consumers of the demo, and what they count.

The producer sends in the background, by key, so that the events of a customer stay in order. The
consumers are a group: the server shares out the partitions between them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING

import anyio

from examples.demo.shop import PARTITIONS, STREAM, TOPIC, events, rate
from iggy_sdk import ConsumerIdentity, IggyClient, JsonSerde

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.abc import TaskStatus

TICK_SECONDS = 0.1
LAKE = "lake"
"""The name under which the Spark job tells the server how far it has come."""


@dataclass
class Counts:
    """How far each of them has come.

    Attributes:
        produced: events that the server has acknowledged.
        ingested: events that Spark has committed to files.
        read_by: events that each consumer of the group has read, by its name.
        next_offsets: the next offset of each partition, for the group as a whole.
    """

    produced: int = 0
    ingested: int = 0
    read_by: Counter[str] = field(default_factory=Counter)
    next_offsets: Counter[int] = field(default_factory=Counter)

    @property
    def consumed(self) -> int:
        """Events that the group has read, each counted once."""
        return sum(self.read_by.values())


async def produce(client: IggyClient, counts: Counts, is_enough: Callable[[float], bool]) -> None:
    """Send events, now more and now less, until it is enough."""
    writer = (
        client.producer(STREAM, TOPIC)
        .serde(JsonSerde())
        .create_stream_if_not_exists()
        .create_topic_if_not_exists(partitions_count=PARTITIONS)
        .background(linger_time=0.01)
    )
    source = events(datetime.now(UTC))
    begin = last = anyio.current_time()
    async with writer as producer:
        while not is_enough(last - begin):
            await anyio.sleep(TICK_SECONDS)
            now = anyio.current_time()
            due = list(islice(source, round(rate(now - begin) * (now - last))))
            last = now
            for event in due:
                await producer.send(event, key=event["customer"])
            await producer.flush()
            counts.produced += len(due)


async def consume(
    url: str,
    name: str,
    counts: Counts,
    *,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Read as a member of the group until cancelled."""
    async with (
        IggyClient(url) as client,
        client.consumer_group("accounting", STREAM, TOPIC) as consumer,
    ):
        task_status.started()
        async for message in consumer:
            # What changes hands in the middle of a batch may come twice; it is counted once.
            if message.offset >= counts.next_offsets[message.partition_id]:
                counts.next_offsets[message.partition_id] = message.offset + 1
                counts.read_by[name] += 1


async def ask_for_ingested(client: IggyClient) -> int:
    """Ask the server how many events the Spark job has told it of."""
    total = 0
    for number in range(PARTITIONS):
        found = await client.get_consumer_offset(
            STREAM, TOPIC, consumer=ConsumerIdentity.single(LAKE), partition_id=number
        )
        total += 0 if found is None else found.stored_offset + 1
    return total

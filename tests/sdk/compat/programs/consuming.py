"""Reads in a consumer group in the ways that the official client 0.9 has.

Run with an interpreter that has the wheel: ``consuming.py HOST:PORT``. Prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import timedelta

from apache_iggy import (  # type: ignore[import-not-found]
    AutoCommit,
    AutoCommitAfter,
    AutoCommitWhen,
    Consumer,
    IggyClient,
    PollingStrategy,
    SendMessage,
)

COUNT = 30


async def fill(client):
    """Make a topic of two partitions with messages in both."""
    await client.create_stream("shop")
    await client.create_topic("shop", "orders", partitions_count=2)
    for partition_id in range(2):
        batch = [SendMessage(f"{partition_id} {number}") for number in range(COUNT)]
        await client.send_messages("shop", "orders", partition_id, batch)


async def handle_all(client):
    """Handle every message, and stop when all have come."""
    consumer = await client.consumer_group(
        "handlers",
        "shop",
        "orders",
        polling_strategy=PollingStrategy.First(),
        batch_length=10,
        auto_commit=AutoCommit.After(AutoCommitAfter.ConsumingEveryNthMessage(5)),
        poll_interval=timedelta(milliseconds=5),
    )
    seen, done = [], asyncio.Event()

    async def handle(message):
        seen.append(message.payload().decode())
        if len(seen) == 2 * COUNT:
            done.set()

    await asyncio.wait_for(consumer.consume_messages(handle, done), 30)
    return {
        "name": consumer.name(),
        "seen": sorted(seen) == sorted(f"{p} {n}" for p in range(2) for n in range(COUNT)),
        "consumed": [consumer.get_last_consumed_offset(number) for number in range(2)],
        "places": [consumer.stream(), consumer.topic()],
    }


async def iterate(client):
    """Iterate, and store offsets by hand."""
    consumer = await client.consumer_group(
        "readers",
        "shop",
        "orders",
        polling_strategy=PollingStrategy.Next(),
        auto_commit=AutoCommit.Disabled(),
    )
    taken = 0
    async for message in consumer.iter_messages():
        taken += 1
        await consumer.store_offset(message.offset(), message.partition_id())
        if taken == 2 * COUNT:
            break
    stored = [consumer.get_last_stored_offset(number) for number in range(2)]
    await consumer.delete_offset(0)
    return {"taken": taken, "stored": stored}


async def look(client):
    """Look at groups, and poll as members of one do."""
    await client.create_consumer_group("shop", "orders", "lookers")
    await client.join_consumer_group(stream_id="shop", topic_id="orders", group_id="lookers")
    details = await client.get_consumer_group("shop", "orders", "lookers")
    member = details.members[0]
    polled = await client.poll_messages(
        "shop",
        "orders",
        consumer=Consumer.Group("lookers"),
        polling_strategy=PollingStrategy.First(),
        count=5,
        auto_commit=False,
    )
    await client.leave_consumer_group("shop", "orders", "lookers")
    groups = await client.get_consumer_groups("shop", "orders")
    await client.delete_consumer_group("shop", "orders", "lookers")
    return {
        "members": [details.members_count, member.partitions_count, sorted(member.partitions)],
        "polled": len(polled),
        "groups": "lookers" in {group.name for group in groups},
        "gone": await client.get_consumer_group("shop", "orders", "lookers"),
    }


def choices():
    """Look into values that a program may keep."""
    interval = AutoCommit.IntervalOrWhen(timedelta(seconds=1), AutoCommitWhen.PollingMessages())
    which: list = []
    match interval:
        case AutoCommit.Disabled():
            which = ["disabled"]
        case AutoCommit.IntervalOrWhen(span, when):
            which = [span.total_seconds(), isinstance(when, AutoCommitWhen)]
    return {
        "interval": which,
        "length": [len(interval), len(AutoCommit.Disabled())],
        "first": interval[0] == interval._0,
        "kinds": isinstance(interval, AutoCommit) and not isinstance(interval, AutoCommitWhen),
        "nth": AutoCommitAfter.ConsumingEveryNthMessage(7)[0],
    }


async def main():
    client = IggyClient.from_connection_string(f"iggy://iggy:iggy@{sys.argv[1]}")
    await client.connect()
    await fill(client)
    report = {
        "handled": await handle_all(client),
        "iterated": await iterate(client),
        "groups": await look(client),
        "choices": choices(),
    }
    sys.stdout.write(json.dumps(report))


asyncio.run(main())

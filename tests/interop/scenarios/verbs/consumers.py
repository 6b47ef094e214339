"""The consumer that polls by itself, as every version has it: by callback and by iteration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from apache_iggy import (  # type: ignore[import-not-found]
    AutoCommit,
    AutoCommitAfter,
    PollingStrategy,
)

from tests.interop.scenarios.installed import HAS_TOPIC_OPTIONS, IS_CLASSIC, Client, take
from tests.interop.scenarios.report import step

if TYPE_CHECKING:
    from tests.interop.scenarios.verbs.everything import Scene

PARTITIONS, MESSAGES = 3, 20
ALL = PARTITIONS * MESSAGES
BATCH = 50


async def run(scene: Scene) -> None:
    """Consume in groups, one after the other, and start in every way.

    Each group gets a client of its own: over WebSocket the clients up to 0.8 lose their place among
    the replies when a consumer gives up the poll that it waits for.
    """
    client, stream = scene.client, scene.stream
    await step("create a topic to consume", client.create_topic, stream, "read", PARTITIONS)
    await step("fill it", fill, scene)
    consumer = await member(scene, "readers", "read")
    await step("name the consumer", name, consumer)
    await step("consume it all", consumed, consumer, ALL)
    await step("tell what was consumed last", last, consumer)
    consumer = await member(scene, "iterating", "read")
    await step("iterate over it all", iterated, consumer, ALL)
    consumer = await member(scene, "storing", "read")
    await step("store an offset", consumer.store_offset, 3, 0)
    await step("store one beyond the end", consumer.store_offset, 10_000, 0)
    await step("delete an offset", consumer.delete_offset, 0)
    await step("create a topic of one partition", client.create_topic, stream, "single", 1)
    await step("fill that", fill_single, scene)
    if not IS_CLASSIC:
        await step("go on as another member", goes_on, scene)
    if HAS_TOPIC_OPTIONS:
        await step("store the position of a message", store_position, scene)
    await starts(scene)


async def member(scene: Scene, group: str, topic: str, **options: Any) -> Any:
    """Join a group with a consumer on a client of its own."""
    client = await Client.connected(scene.url_as("iggy:iggy"))
    return await client.consumer(group, scene.stream, topic, **options)


async def fill(scene: Scene) -> None:
    for partition in range(PARTITIONS):
        texts = [f"{partition}:{number}" for number in range(MESSAGES)]
        await scene.client.send(scene.stream, "read", partition, texts)


async def fill_single(scene: Scene) -> None:
    for first in range(0, 4 * BATCH, BATCH):
        texts = [f"{number}" for number in range(first, first + BATCH)]
        await scene.client.send(scene.stream, "single", 0, texts)


def in_order(messages: list[Any]) -> dict[str, Any]:
    """Tell how many messages came, how many only once, and whether each partition was in order."""
    places = [(message.partition_id(), message.offset()) for message in messages]
    ordered = all(
        offsets == sorted(offsets)
        for partition in range(PARTITIONS)
        for offsets in [[offset for where, offset in places if where == partition]]
    )
    texts = [message.payload().decode() for message in messages]
    as_sent = all(
        text == f"{where}:{offset}" for text, (where, offset) in zip(texts, places, strict=True)
    )
    return {"different": len(set(places)), "in order": ordered, "as sent": as_sent}


async def name(consumer: Any) -> list[Any]:
    return [consumer.name(), consumer.topic()]


async def consumed(consumer: Any, count: int) -> dict[str, Any]:
    return in_order(await take(consumer, count))


async def last(consumer: Any) -> list[int | None]:
    return [consumer.get_last_consumed_offset(partition) for partition in range(PARTITIONS)]


async def iterated(consumer: Any, count: int) -> dict[str, Any]:
    """Iterate over so many messages."""
    messages: list[Any] = []
    async for message in consumer.iter_messages():
        messages.append(message)
        if len(messages) == count:
            break
    return in_order(messages)


async def goes_on(scene: Scene) -> bool:
    """Store each offset after its message, leave, and see that another client goes on there.

    The callback does not wait until an offset is stored, so what was consumed last may come again.
    """
    stored = AutoCommit.After(AutoCommitAfter.ConsumingEachMessage())
    seen = []
    for count in (5, 3):
        client = await Client.connected(scene.url_as("iggy:iggy"))
        consumer = await client.consumer(
            "one by one", scene.stream, "single", batch=4, commits=stored
        )
        offsets = [message.offset() for message in await take(consumer, count)]
        seen.append((offsets, consumer.get_last_stored_offset(0)))
        await client.calls.leave_consumer_group(scene.stream, "single", "one by one")
    (first, stored_offset), (second, _) = seen
    assert first == list(range(len(first))), first
    assert second == list(range(second[0], second[0] + len(second))), second
    # A client that was not told yet that an offset is stored says none, or the one before it.
    least = 0 if stored_offset is None else stored_offset + 1
    return bool(least <= second[0] <= len(first) and second[0] > 0)


async def store_position(scene: Scene) -> list[int | None]:
    """Store where a message was, twice, and then one before it; return what is stored."""
    consumer = await member(scene, "positions", "single", commits=AutoCommit.Disabled())
    messages = await take(consumer, 4)
    for number in (2, 2, 1):
        await consumer.store_position(messages[number].position())
    return [consumer.get_last_stored_offset(0), messages[2].offset()]


async def starts(scene: Scene) -> None:
    """Start a consumer at every place that it can name."""
    client, stream = scene.client, scene.stream
    polled = await client.poll(stream, "single", 0, PollingStrategy.Offset(100), 1)
    strategies = {
        "first": PollingStrategy.First(),
        "offset": PollingStrategy.Offset(100),
        "timestamp": PollingStrategy.Timestamp(polled[0].timestamp()),
        "last": PollingStrategy.Last(),
        "next": PollingStrategy.Next(),
    }
    for how, strategy in strategies.items():
        await step(f"start a consumer at: {how}", start, scene, how, strategy)


async def start(scene: Scene, group: str, strategy: Any) -> list[int]:
    """Return where the first batch of a consumer began and ended."""
    consumer = await member(
        scene,
        f"from {group}",
        "single",
        strategy=strategy,
        batch=BATCH,
        commits=AutoCommit.Disabled(),
    )
    taken = await take(consumer, BATCH)
    return [taken[0].offset(), taken[BATCH - 1].offset()]

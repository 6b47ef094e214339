"""The producers that send by themselves: one that waits for the answer, one in the background."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import apache_iggy  # type: ignore[import-not-found]
from apache_iggy import PollingStrategy, SendMessage

from tests.interop.scenarios.installed import confirmed
from tests.interop.scenarios.report import step

if TYPE_CHECKING:
    from tests.interop.scenarios.verbs.everything import Scene

MESSAGES = 50


async def run(scene: Scene) -> None:
    """Send with each of the producers."""
    await step("send with a producer", direct, scene)
    await step("read what it sent", payloads, scene, "produced")
    await step("send in the background", background, scene)
    await step("read what that sent", payloads, scene, "behind")
    await step("produce to a missing topic", nowhere, scene)


async def direct(scene: Scene) -> list[Any]:
    """Send in each way that a producer has; it makes its topic."""
    way = apache_iggy.Partitioning.partition_id(0)
    producer = await scene.calls.producer(scene.stream, "produced", partitioning=way)
    one = await producer.send_one(SendMessage("one"))
    many = await producer.send([SendMessage("two"), SendMessage("three")])
    named = await producer.send_with_partitioning([SendMessage("four")], way)
    await producer.shutdown()
    return [confirmed(one), confirmed(many), confirmed(named)]


async def background(scene: Scene) -> None:
    """Send many messages without waiting for any, and end in good order."""
    mode = apache_iggy.BackgroundProducerConfig(
        batch_length=7, linger_time=timedelta(milliseconds=5)
    )
    way = apache_iggy.Partitioning.partition_id(0)
    producer = await scene.calls.producer(scene.stream, "behind", partitioning=way, mode=mode)
    async with producer:
        for number in range(MESSAGES):
            await producer.send_one(SendMessage(f"{number}"))


async def nowhere(scene: Scene) -> None:
    """Ask for a producer on a topic that it may not make."""
    await scene.calls.producer(
        scene.stream, "missing", create_stream_if_not_exists=False, create_topic_if_not_exists=False
    )


async def payloads(scene: Scene, topic: str) -> list[str]:
    polled = await scene.client.poll(scene.stream, topic, 0, PollingStrategy.First(), 2 * MESSAGES)
    return [message.payload().decode() for message in polled]

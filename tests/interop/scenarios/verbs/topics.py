"""Streams, topics and partitions: made, shown, renamed, emptied and deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from apache_iggy import PollingStrategy  # type: ignore[import-not-found]

from tests.interop.scenarios.installed import HAS_TOPIC_OPTIONS, IS_CLASSIC, IS_OF_0_9
from tests.interop.scenarios.report import quiet, step

if TYPE_CHECKING:
    from tests.interop.scenarios.verbs.everything import Scene

PARTITIONS = 3


async def run(scene: Scene) -> None:
    """Make what the other families use, and go through the life of something else."""
    calls, stream = scene.calls, scene.stream
    await step("create a stream", quiet, calls.create_stream, stream)
    await step("create it again", quiet, calls.create_stream, stream)
    await step("show it", show_stream, scene, stream)
    await step("show a missing stream", calls.get_stream, "missing")
    await step("create a topic", scene.client.create_topic, stream, "t", PARTITIONS)
    await step("create that again", scene.client.create_topic, stream, "t", PARTITIONS)
    await step("create a topic nowhere", scene.client.create_topic, "missing", "t", 1)
    await step("create too many partitions", scene.client.create_topic, stream, "big", 1001)
    await step("show the topic", show_topic, scene, stream, "t")
    await step("show the topic by number", show_topic, scene, stream, 0)
    await step("show a missing topic", calls.get_topic, stream, "missing")
    if not IS_CLASSIC:
        await lives(scene)


async def show_stream(scene: Scene, stream: str) -> list[Any]:
    """Return what all versions know of a stream."""
    found = await scene.calls.get_stream(stream)
    return [found.name == stream, found.topics_count, found.messages_count]


async def show_topic(scene: Scene, stream: str, topic: str | int) -> list[Any] | None:
    """Return what all versions know of a topic."""
    found = await scene.calls.get_topic(stream, topic)
    if found is None:
        return None
    return [found.name, found.partitions_count, found.messages_count]


async def lives(scene: Scene) -> None:
    """Go through the life of a stream and a topic that nothing else uses."""
    calls = scene.calls
    old, new = f"{scene.stream}-old", f"{scene.stream}-new"
    await step("create another stream", quiet, calls.create_stream, old)
    await step("rename it", calls.update_stream, old, new)
    await step("show it by its old name", calls.get_stream, old)
    await step("list streams", listed, {scene.stream, old, new}, calls.get_streams)
    await step("create a topic in it", scene.client.create_topic, new, "t", 2)
    await step("fill the other", fill, scene, new)
    await step("rename the topic", calls.update_topic, new, "t", "renamed")
    await step("list topics", listed, {"t", "renamed"}, calls.get_topics, new)
    await step("add partitions", calls.create_partitions, new, "renamed", 3)
    await step("take partitions away", calls.delete_partitions, new, "renamed", 1)
    await step("take too many away", calls.delete_partitions, new, "renamed", 100)
    await step("show what is left", show_topic, scene, new, "renamed")
    await step("show its partitions", show_partitions, scene, new, "renamed")
    if IS_OF_0_9:
        await step("purge the topic", calls.purge_topic, new, "renamed")
        await step("show the purged topic", show_topic, scene, new, "renamed")
        await step("send after the purge", scene.client.send, new, "renamed", 0, ["a"])
        await step("purge the stream", calls.purge_stream, new)
        await step("show the purged stream", show_stream, scene, new)
        await step("send after that purge", scene.client.send, new, "renamed", 0, ["a"])
        await step("read after the purge", read, scene, new, "renamed")
    if HAS_TOPIC_OPTIONS:
        await step("delete segments", calls.delete_segments, new, "renamed", 0, 1)
    await step("delete the topic", calls.delete_topic, new, "renamed")
    await step("delete it again", calls.delete_topic, new, "renamed")
    await step("delete the stream", calls.delete_stream, new)
    await step("delete that again", calls.delete_stream, new)
    await step("show the deleted stream", calls.get_stream, new)


async def listed(names: set[str], ask: Any, *args: Any) -> list[bool]:
    """Tell which of some names are in a list, in the order of the names."""
    found = [each.name for each in await ask(*args)]
    return [found.count(name) == 1 for name in sorted(names)]


async def fill(scene: Scene, stream: str) -> list[Any]:
    """Send three messages to each partition."""
    return [
        await scene.client.send(stream, "t", partition, ["a", "b", "c"]) for partition in range(2)
    ]


async def show_partitions(scene: Scene, stream: str, topic: str) -> list[list[int]]:
    """Return the number, newest offset and count of each partition."""
    found = await scene.calls.get_topic(stream, topic)
    return [[part.id, part.current_offset, part.messages_count] for part in found.partitions]


async def read(scene: Scene, stream: str, topic: str) -> list[Any]:
    """Return the offsets and payloads of the first partition."""
    polled = await scene.client.poll(stream, topic, 0, PollingStrategy.First(), 10)
    return [[message.offset(), message.payload().decode()] for message in polled]

"""Sending and polling: to partitions, balanced, by key; from every starting point."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import apache_iggy  # type: ignore[import-not-found]
from apache_iggy import PollingStrategy, SendMessage

from tests.interop.scenarios.installed import IS_CLASSIC, confirmed
from tests.interop.scenarios.report import step

if TYPE_CHECKING:
    from tests.interop.scenarios.verbs.everything import Scene

LARGE = bytes(range(256)) * 4096
KEY = "order-7"
AT_ONCE = 20


async def run(scene: Scene) -> None:
    """Send and poll in every way that the installed version knows."""
    await sends(scene)
    await polls(scene)
    await missing(scene)
    await step("send large messages", large, scene)
    await step("ask for much at once", at_once, scene)
    if not IS_CLASSIC:
        await partitioned(scene)
        await step("send headers and numbers", headers, scene)
        await step("poll as consumers of their own", consumers, scene)
        await step("read a stored offset", stored_offset, scene, 7)
        await step("read an offset that nobody stored", stored_offset, scene, 9)


async def sends(scene: Scene) -> None:
    client, stream = scene.client, scene.stream
    texts = [f"0 {number}" for number in range(5)]
    await step("send texts", client.send, stream, "t", 0, texts)
    await step("send bytes", client.send, stream, "t", 0, [b"\x00\xff"])
    await step("send elsewhere", client.send, stream, "t", 2, ["2 0", "2 1"])


async def read(scene: Scene, strategy: Any, count: int, *, commits: bool = False) -> list[Any]:
    polled = await scene.client.poll(scene.stream, "t", 0, strategy, count, commits=commits)
    return [[message.offset(), message.payload().decode("latin-1")] for message in polled]


async def polls(scene: Scene) -> None:
    client, strategy = scene.client, PollingStrategy
    await step("poll from the first", read, scene, strategy.First(), 10)
    await step("poll two from the first", read, scene, strategy.First(), 2)
    await step("poll from an offset", read, scene, strategy.Offset(4), 10)
    await step("poll beyond the end", read, scene, strategy.Offset(1000), 10)
    await step("poll the last two", read, scene, strategy.Last(), 2)
    await step("poll the next two", read, scene, strategy.Next(), 2, commits=True)
    await step("poll the two after them", read, scene, strategy.Next(), 2, commits=True)
    await step("poll without storing", read, scene, strategy.Next(), 1)
    await step("poll it again", read, scene, strategy.Next(), 1)
    await step("poll from a time", from_a_time, scene)
    polled = await client.poll(scene.stream, "t", 0, strategy.First(), 1)
    later = polled[0].timestamp() + 3_600_000_000
    await step("poll from a time to come", read, scene, strategy.Timestamp(later), 10)
    await step("look at a message", look, scene)


async def from_a_time(scene: Scene) -> list[Any]:
    """Poll from the timestamp of the newest message, which was sent by itself."""
    [newest] = await scene.client.poll(scene.stream, "t", 0, PollingStrategy.Last(), 1)
    return await read(scene, PollingStrategy.Timestamp(newest.timestamp()), 10)


async def look(scene: Scene) -> dict[str, Any]:
    """Return what must hold of any message."""
    [message] = await scene.client.poll(scene.stream, "t", 2, PollingStrategy.Offset(1), 1)
    seen = {
        "has a number": message.id() != 0,
        "has a checksum": message.checksum() != 0,
        "length": message.length(),
        "partition": message.partition_id(),
        "payload": message.payload().decode(),
    }
    if not IS_CLASSIC:
        seen["was made before it came"] = 0 < message.origin_timestamp() <= message.timestamp()
        seen["headers"] = message.user_headers()
    return seen


async def missing(scene: Scene) -> None:
    client, stream, first = scene.client, scene.stream, PollingStrategy.First()
    await step("send to no stream", client.send, "missing", "t", 0, ["a"])
    await step("send to no topic", client.send, stream, "missing", 0, ["a"])
    await step("send to no partition", client.send, stream, "t", 99, ["a"])
    await step("poll from no stream", client.poll, "missing", "t", 0, first, 1)
    await step("poll from no topic", client.poll, stream, "missing", 0, first, 1)
    await step("poll from no partition", client.poll, stream, "t", 99, first, 1)


async def large(scene: Scene) -> list[bool]:
    """Send messages of a MiB by themselves, and read them together."""
    for number in range(3):
        await scene.client.send(scene.stream, "t", 1, [bytes([number]) + LARGE])
    polled = await scene.client.poll(scene.stream, "t", 1, PollingStrategy.First(), 3)
    payloads = [message.payload() for message in polled]
    return [payload == bytes([number]) + LARGE for number, payload in enumerate(payloads)]


async def at_once(scene: Scene) -> list[int]:
    """Send and ask without waiting for one another; return how much came back."""

    async def both(number: int) -> int:
        await scene.client.send(scene.stream, "t", number % 3, [f"at once {number}"])
        return len(await scene.client.poll(scene.stream, "t", 0, PollingStrategy.First(), 3))

    return sorted(await asyncio.gather(*(both(number) for number in range(AT_ONCE))))


async def partitioned(scene: Scene) -> None:
    """Leave the choice of the partition to the client."""
    way, client, stream = apache_iggy.Partitioning, scene.client, scene.stream
    await step("create a topic for it", client.create_topic, stream, "chosen", 3)
    await step("send to a partition", client.send, stream, "chosen", way.partition_id(1), ["a"])
    await step("send balanced", balanced, scene)
    await step("send by key", client.send, stream, "chosen", way.messages_key(KEY), ["k"])
    await step("send by that key", client.send, stream, "chosen", way.messages_key(KEY), ["k"])


async def balanced(scene: Scene) -> list[int]:
    """Return how many of six sends each partition took."""
    where = []
    for _ in range(6):
        way = apache_iggy.Partitioning.balanced()
        sent = await scene.client.send(scene.stream, "chosen", way, ["a"])
        where.append(sent[0][0])
    return [where.count(partition) for partition in range(3)]


HEADERS = {
    "text": "x",
    "flag": True,
    "small": apache_iggy.HeaderValue.Int8(-5) if not IS_CLASSIC else None,
    "big": apache_iggy.HeaderValue.UnsignedInt128(1 << 100) if not IS_CLASSIC else None,
    "float": apache_iggy.HeaderValue.Float64(0.5) if not IS_CLASSIC else None,
    "raw": b"\x00\x01",
}


async def headers(scene: Scene) -> list[Any]:
    """Send messages with headers and numbers of their own, and return what comes back."""
    messages = [
        SendMessage("with", user_headers=HEADERS, id=(1 << 127) + 5),
        SendMessage("without", id=6),
    ]
    sent = confirmed(await scene.calls.send_messages(scene.stream, "chosen", 2, messages))
    assert sent is not None
    [[_, base]] = sent
    polled = await scene.client.poll(
        scene.stream, "chosen", 2, PollingStrategy.Offset(base), len(messages)
    )
    return [
        [message.payload().decode(), message.id(), shown(message.user_headers())]
        for message in polled
    ]


def shown(found: Any) -> dict[str, str] | None:
    """Return headers as texts that JSON can hold."""
    if found is None:
        return None
    return {str(key): repr(value) for key, value in found.to_scalar_dict().items()}


async def consumers(scene: Scene) -> list[list[Any]]:
    """Poll with a number, a name and another number: each has its own place."""
    single = apache_iggy.Consumer.Single
    taken = []
    for who, count in ((7, 2), ("by name", 3), (7, 2), ("by name", 1)):
        polled = await scene.client.poll(
            scene.stream,
            "t",
            0,
            PollingStrategy.Next(),
            count,
            commits=True,
            consumer=single(who),
        )
        taken.append([who, [message.offset() for message in polled]])
    return taken


GET_CONSUMER_OFFSET = 120


async def stored_offset(scene: Scene, consumer: int) -> list[int] | None:
    """Return the partition and the stored offset of a consumer."""
    number = bytes([1, 4]) + consumer.to_bytes(4, "little")
    stream, topic = (bytes([2, len(name)]) + name.encode() for name in (scene.stream, "t"))
    body = b"\x01" + number + stream + topic + b"\x01" + bytes(4)
    reply = await scene.calls.send_binary_request(GET_CONSUMER_OFFSET, body)
    if not reply:
        return None
    return [int.from_bytes(reply[:4], "little"), int.from_bytes(reply[12:20], "little")]

"""What tests of several transports do with a client: make a topic, send there, read it back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol import (
    Consumer,
    CreateStream,
    CreateTopic,
    GetStream,
    Partitioning,
    PollingStrategy,
    PollMessages,
    SendMessages,
)

if TYPE_CHECKING:
    from iggy_sdk.client import IggyClient


async def make_topic(client: IggyClient, name: str, *, partitions_count: int = 1) -> None:
    """Make a stream with the topic "orders", unless an earlier test has."""
    if await client.request(GetStream(name)) is None:
        await client.request(CreateStream(name))
        await client.request(CreateTopic(name, "orders", partitions_count=partitions_count))


def batch_of(name: str, payload: bytes, count: int = 1) -> SendMessages:
    """Send the same payload so many times, to the first partition."""
    return SendMessages(name, "orders", Partitioning.partition(0), [payload] * count)


def last_of(name: str, count: int = 1) -> PollMessages:
    """Poll the last messages of the first partition."""
    return PollMessages(Consumer.single(1), name, "orders", PollingStrategy.last(), count, 0)


async def check_echo(client: IggyClient, size_bytes: int) -> None:
    """Send a payload of so many bytes, and see it come back."""
    payload = (bytes(range(251)) * (size_bytes // 251 + 1))[:size_bytes]
    name = f"size-{size_bytes}"
    await make_topic(client, name)
    await client.request(batch_of(name, payload))
    polled = await client.request(last_of(name))

    assert [bytes(message.payload) for message in polled.messages] == [payload]

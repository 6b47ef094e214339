"""What tests of several transports do with a client: make a topic, send there, read it back."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from iggy_protocol import (
    ConsumerIdentity,
    CreateStream,
    CreateTopic,
    GetStream,
    Partitioning,
    PollingStrategy,
    PollMessages,
    SendMessages,
)
from iggy_sdk.connection_string import ServerProtocol
from iggy_sdk.errors import UnsupportedByServerError
from iggy_sdk.session.repeater import is_missing

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from iggy_protocol import Command
    from iggy_sdk.client import IggyClient


async def make_topic(client: IggyClient, name: str, *, partitions_count: int = 1) -> None:
    """Make a stream with the topic "orders", unless an earlier test has."""
    if await client.request(GetStream(name)) is None:
        await client.request(CreateStream(name))
        await client.request(CreateTopic(name, "orders", partitions_count=partitions_count))


def lacks(client: IggyClient, command: type[Command[Any]]) -> bool:
    """Say whether a client that may speak one protocol alone has no word for a command."""
    is_free = client.options.protocol is ServerProtocol.AUTO
    return not is_free and is_missing(command, client.dialect)


def refused_if_missing(
    client: IggyClient, command: type[Command[Any]]
) -> AbstractContextManager[object]:
    """Expect a refusal, if the protocol that was chosen has no word for a command."""
    return pytest.raises(UnsupportedByServerError) if lacks(client, command) else nullcontext()


def batch_of(name: str, payload: bytes, count: int = 1) -> SendMessages:
    """Send the same payload so many times, to the first partition."""
    return SendMessages(name, "orders", Partitioning.partition(0), [payload] * count)


def last_of(name: str, count: int = 1) -> PollMessages:
    """Poll the last messages of the first partition."""
    return PollMessages(
        ConsumerIdentity.single(1), name, "orders", PollingStrategy.last(), count, 0
    )


async def check_echo(client: IggyClient, size_bytes: int) -> None:
    """Send a payload of so many bytes, and see it come back."""
    payload = (bytes(range(251)) * (size_bytes // 251 + 1))[:size_bytes]
    name = f"size-{size_bytes}"
    await make_topic(client, name)
    await client.request(batch_of(name, payload))
    polled = await client.request(last_of(name))

    assert [bytes(message.payload) for message in polled.messages] == [payload]

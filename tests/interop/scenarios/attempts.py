"""Single calls of clients that stay, whatever happens to their connections meanwhile."""

from __future__ import annotations

from typing import Any

import apache_iggy  # type: ignore[import-not-found]
from apache_iggy import PollingStrategy

from tests.interop.scenarios.installed import Client
from tests.interop.scenarios.report import refusal

READ_MAX = 1000

clients: dict[str, Client] = {}


async def connect(name: str, url: str) -> Any:
    """Connect a client that is called by a name from now on; return what it says if it cannot."""
    try:
        clients[name] = await Client.connected(url)
    except Exception as error:
        return refusal(error)
    return None


async def send(name: str, stream: str, topic: str, payloads: list[str]) -> Any:
    """Send a batch to the first partition; return where it is, or what the client says."""
    try:
        return await clients[name].send(stream, topic, 0, payloads)
    except Exception as error:
        return refusal(error)


async def create_stream(name: str, stream: str) -> Any:
    """Create a stream; return what the client says if it cannot."""
    try:
        await clients[name].calls.create_stream(stream)
    except Exception as error:
        return refusal(error)
    return None


async def payloads(name: str, stream: str, topic: str) -> Any:
    """Read the first partition."""
    try:
        polled = await clients[name].poll(stream, topic, 0, PollingStrategy.First(), READ_MAX)
    except Exception as error:
        return refusal(error)
    return [message.payload().decode() for message in polled]


async def join(name: str, stream: str, topic: str, group: str) -> Any:
    """Join a group without polling by itself; return what the client says if it cannot."""
    try:
        await clients[name].calls.join_consumer_group(stream, topic, group)
    except Exception as error:
        return refusal(error)
    return None


async def poll_as_member(name: str, stream: str, topic: str, group: str) -> Any:
    """Poll the first message as a member of a group; such a poll may be repeated."""
    try:
        polled = await clients[name].calls.poll_messages(
            stream,
            topic,
            consumer=apache_iggy.Consumer.Group(group),
            polling_strategy=PollingStrategy.First(),
            count=1,
            auto_commit=False,
        )
    except Exception as error:
        return refusal(error)
    return [message.payload().decode() for message in polled]

"""Requests with options as clients of each release write them over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import httpx

    from tests.server.web.web_harness import Web

SDK_0_8, SDK_0_9, SDK_PREVIEW, SDK_0_10 = "0.10.0", "0.11.0", "0.11.1-edge.5", "0.12.0"
NEWER = pytest.mark.parametrize("version", [SDK_0_9, SDK_PREVIEW, SDK_0_10])
OLD_TOPIC = {
    "name": "t",
    "partitions_count": 1,
    "compression_algorithm": "none",
    "message_expiry": 0,
    "max_topic_size": 0,
    "replication_factor": None,
}
# As official clients write them.
TOPIC_OF_0_9 = {
    "partitions_count": 2,
    "compression_algorithm": "none",
    "message_expiry": 2**64 - 1,
    "max_topic_size": 0,
    "name": "t",
    "options": {
        "consumer_offset_durability": "replicated",
        "durability": "persisted",
        "segment_size": "67108864",
    },
}
TOPIC_OF_0_10 = {
    "partitions_count": 2,
    "name": "t",
    "options": {
        "consumer_offset_durability": "replicated",
        "durability": "replicated",
        "message_expiry": "18446744073709551615",
        "segment_size": 67108864,
    },
}


async def log_in(web: Web, version: str | None, user: str = "iggy", password: str = "iggy") -> None:
    """Log in as a client with this version of the SDK."""
    body: dict[str, Any] = {"username": user, "password": password, "context": ""}
    if version is not None:
        body["version"] = version
    answer = await web.ask("POST", "/users/login", body, token="")
    assert answer.status_code == 200, answer.text
    web.token = answer.json()["access_token"]["token"]


async def make_topic(web: Web, body: dict[str, Any]) -> httpx.Response:
    """Make a stream s, and a topic in it."""
    await web.ask("POST", "/streams", {"name": "s"})
    return await web.ask("POST", "/streams/s/topics", body)


async def topic_of(web: Web) -> dict[str, Any]:
    """Return the topic as this client is told of it."""
    answer = await web.ask("GET", "/streams/s/topics/0")
    assert answer.status_code == 200, answer.text
    topic: dict[str, Any] = answer.json()
    return topic


def explicit(topic: dict[str, Any]) -> dict[str, str]:
    """Return what a client has set."""
    return {key: it["value"] for key, it in topic["options"].items() if it["explicit"]}

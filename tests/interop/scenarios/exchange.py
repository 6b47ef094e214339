"""Writes messages that others read, and reads what others wrote, as far as the version shows it."""

from __future__ import annotations

from typing import Any

from apache_iggy import PollingStrategy, SendMessage  # type: ignore[import-not-found]

from tests.interop.scenarios.installed import IS_CLASSIC, Client

READ_MAX = 1000


async def write(
    url: str, stream: str, topic: str, partitions: int, batches: list[list[dict[str, Any]]]
) -> None:
    """Send batches to each partition, with numbers and headers where the version has them.

    Args:
        batches: each message is a payload, a number and headers, all of them texts.
    """
    client = await Client.connected(url)
    for partition in range(partitions):
        for batch in batches:
            messages = [message_of(each, partition) for each in batch]
            await client.calls.send_messages(stream, topic, partition, messages)


def message_of(given: dict[str, Any], partition: int) -> Any:
    """Make a message; each partition gets numbers of its own."""
    payload = f"{partition}:{given['payload']}"
    if IS_CLASSIC:
        return SendMessage(payload)
    return SendMessage(payload, user_headers=given["headers"], id=int(given["id"]) + partition)


async def read(url: str, stream: str, topic: str, partitions: int) -> list[list[dict[str, Any]]]:
    """Return all messages of each partition."""
    client = await Client.connected(url)
    return [
        [
            shown(message)
            for message in await client.poll(
                stream, topic, partition, PollingStrategy.First(), READ_MAX
            )
        ]
        for partition in range(partitions)
    ]


def shown(message: Any) -> dict[str, Any]:
    """Return what the version tells of a message; numbers beyond 64 bits as texts."""
    told = {
        "partition": message.partition_id(),
        "offset": message.offset(),
        "id": str(message.id()),
        "payload": message.payload().decode(),
        "length": message.length(),
        "timestamp_us": message.timestamp(),
        "checksum": message.checksum(),
    }
    if not IS_CLASSIC:
        found = message.user_headers()
        told["origin_timestamp_us"] = message.origin_timestamp()
        told["headers"] = {} if found is None else dict(found.to_scalar_dict())
    return told

"""Checking before the first message that stream and topic exist, or creating them.

Another client may create them at the same time; then those are used. Nothing is created unless the
options say so, because a typing error would otherwise become a topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol import (
    SERVER_DEFAULT,
    CreateStream,
    CreateTopic,
    GetStream,
    GetTopic,
    Identifier,
    TopicDetails,
)
from iggy_sdk.durations import to_microseconds
from iggy_sdk.errors import (
    PermissionDeniedError,
    StreamExists,
    StreamNotFound,
    TopicExists,
    TopicNotFound,
)

if TYPE_CHECKING:
    from iggy_sdk.door import ClientDoor
    from iggy_sdk.producer.options import NewTopic, ProducerOptions

__all__ = ["prepare_topic"]


async def prepare_topic(
    client: ClientDoor, stream: Identifier, topic: Identifier, options: ProducerOptions
) -> int | None:
    """Make sure that the topic exists.

    Returns:
        How many partitions it has, or None without the permission to read it.

    Raises:
        StreamNotFound, TopicNotFound: it does not, and was not to be created.
    """
    try:
        details = await _find_topic(client, stream, topic)
    except PermissionDeniedError:
        return None
    if details is None:
        await _prepare_stream(client, stream, options)
        details = await _create_topic(client, stream, topic, options.create_topic_if_not_exists)
    return details.partitions_count


async def _find_topic(
    client: ClientDoor, stream: Identifier, topic: Identifier
) -> TopicDetails | None:
    try:
        return await client.request(GetTopic(stream, topic))
    except (StreamNotFound, TopicNotFound):
        return None


async def _prepare_stream(client: ClientDoor, stream: Identifier, options: ProducerOptions) -> None:
    if await client.request(GetStream(stream)) is not None:
        return
    if not options.create_stream_if_not_exists or isinstance(stream, int):
        raise StreamNotFound(
            f"there is no stream {stream!r}",
            advice="Check its name, or set create_stream_if_not_exists.",
        )
    try:
        await client.request(CreateStream(stream))
    except StreamExists:
        return


async def _create_topic(
    client: ClientDoor, stream: Identifier, topic: Identifier, new: NewTopic | None
) -> TopicDetails:
    absent = TopicNotFound(
        f"stream {stream!r} has no topic {topic!r}",
        advice="Check its name, or set create_topic_if_not_exists.",
    )
    if new is None or isinstance(topic, int):
        raise absent
    try:
        return await client.request(_creation(stream, topic, new))
    except TopicExists:
        details = await client.request(GetTopic(stream, topic))
    if details is None:
        raise absent
    return details


def _creation(stream: Identifier, name: str, new: NewTopic) -> CreateTopic:
    expiry = new.message_expiry
    return CreateTopic(
        stream,
        name,
        new.partitions_count,
        message_expiry_us=SERVER_DEFAULT if expiry is None else to_microseconds(expiry),
        max_topic_size_bytes=SERVER_DEFAULT if new.max_topic_size is None else new.max_topic_size,
        replication_factor=new.replication_factor or 0,
    )

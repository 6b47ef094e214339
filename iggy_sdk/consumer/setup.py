"""Opening a consumer: find the topic, join the group, assemble the parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from iggy_protocol import GetStream, GetTopic, StatusCode
from iggy_sdk.consumer.membership import Independence, Membership
from iggy_sdk.consumer.poller import Rotation
from iggy_sdk.consumer.works import Works
from iggy_sdk.durations import to_seconds
from iggy_sdk.errors import InvalidRequestError, StreamNotFound, TopicNotFound

if TYPE_CHECKING:
    from iggy_protocol import TopicDetails
    from iggy_sdk.consumer.membership import Seat
    from iggy_sdk.consumer.options import ConsumerOptions
    from iggy_sdk.consumer.place import Place
    from iggy_sdk.door import ClientDoor

__all__ = ["check_transport", "make_works"]


def check_transport(client: ClientDoor, place: Place) -> None:
    """Refuse a group over HTTP at once.

    Raises:
        InvalidRequestError: a group is wanted over HTTP.
    """
    if place.is_group and client.options.transport == "http":
        raise InvalidRequestError(
            "a member of a consumer group needs a lasting connection, which HTTP does not have",
            code=StatusCode.FEATURE_UNAVAILABLE,
            advice="Use consumer() with partitions of its own, or connect with iggy://.",
        )


async def make_works(
    client: ClientDoor, place: Place, options: ConsumerOptions, *, owns_client: bool
) -> Works[Any]:
    """Find the topic, join the group if there is one, and assemble a consumer.

    Raises:
        StreamNotFound, TopicNotFound, ConsumerGroupNotFound: there is none.
        IggyError: the server refuses.
    """
    topic = await _await_topic(client, place, options)
    seat = _choose_seat(client, place, options)
    await seat.take()
    rotation = None
    if options.partitions is not None:
        rotation = Rotation(options.partitions)
    elif not place.is_group or options.partition_id == "all":
        rotation = Rotation(range(topic.partitions_count))
    return Works(
        client,
        seat=seat,
        place=place,
        options=options,
        rotation=rotation,
        owns_client=owns_client,
    )


def _choose_seat(client: ClientDoor, place: Place, options: ConsumerOptions) -> Seat:
    if not place.is_group or not options.auto_join_consumer_group:
        return Independence(client)
    return Membership(
        client,
        stream=place.stream,
        topic=place.topic,
        group=place.consumer.id,
        create=options.create_consumer_group_if_not_exists,
    )


async def _await_topic(client: ClientDoor, place: Place, options: ConsumerOptions) -> TopicDetails:
    """Request the topic, with ``init_retries`` retries."""
    for _ in range(options.init_retries):
        topic = await client.request(GetTopic(place.stream, place.topic))
        if topic is not None:
            return topic
        await anyio.sleep(to_seconds(options.init_retry_interval))
    topic = await client.request(GetTopic(place.stream, place.topic))
    if topic is not None:
        return topic
    advice = "Create it first, or let the consumer wait for it with init_retries."
    if await client.request(GetStream(place.stream)) is None:
        raise StreamNotFound(f"there is no stream {place.stream!r}", advice=advice)
    raise TopicNotFound(f"{place.stream!r} has no topic {place.topic!r}", advice=advice)

"""The lag of a consumer, by partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol import GetTopic
from iggy_sdk.errors import TopicNotFound

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iggy_protocol import Partition
    from iggy_sdk.consumer.membership import Seat
    from iggy_sdk.consumer.place import Place

__all__ = ["measure_lag"]


async def measure_lag(
    seat: Seat,
    place: Place,
    positions: Mapping[int, int],
    partitions: tuple[int, ...] | None,
) -> dict[int, int]:
    """Count the messages after the position of the consumer.

    Args:
        seat: sends the requests.
        place: the consumer and its topic.
        positions: known positions; for other partitions the stored offset counts.
        partitions: the partitions to count, or None for all of the topic.

    Raises:
        TopicNotFound: the topic was deleted.
    """
    topic = await seat.request(GetTopic(place.stream, place.topic))
    if topic is None:
        raise TopicNotFound(f"there is no topic {place.topic!r} in {place.stream!r}")
    lags: dict[int, int] = {}
    for partition in topic.partitions:
        if partitions is not None and partition.id not in partitions:
            continue
        position = positions.get(partition.id)
        if position is None:
            stored = await seat.request(place.get_offset_command(partition.id))
            position = 0 if stored is None else stored.stored_offset + 1
        lags[partition.id] = behind(partition, position)
    return lags


def behind(partition: Partition, position: int) -> int:
    """Count the messages of a partition from a position on.

    The number of messages is an upper limit: old ones may be deleted, and an empty partition has
    the same current offset as one with a single message.
    """
    return max(0, min(partition.messages_count, partition.current_offset + 1 - position))

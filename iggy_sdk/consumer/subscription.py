"""The subscription of a consumer: the consumer or group, its topic, their commands, the lag."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from iggy_protocol import (
    ConsumerIdentity,
    ConsumerKind,
    DeleteConsumerOffset,
    GetConsumerOffset,
    GetTopic,
    Identifier,
    Partition,
    PollingStrategy,
    PollMessages,
    StoreConsumerOffset,
    record,
)
from iggy_sdk.errors import TopicNotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iggy_protocol import Command


R = TypeVar("R")


class CommandSender(Protocol):
    """A client, or a member of a group."""

    async def request(self, command: Command[R], /) -> R:
        """Send a command and return the reply."""


@record
class Subscription:
    """A consumer or a group, and the topic that it reads."""

    consumer: ConsumerIdentity
    stream: Identifier
    topic: Identifier

    @property
    def is_group(self) -> bool:
        """Whether offsets belong to a group."""
        return self.consumer.kind is ConsumerKind.GROUP

    @property
    def log_fields(self) -> dict[str, object]:
        """The fields of each record in the log."""
        kind = "group" if self.is_group else "consumer"
        return {kind: self.consumer.id, "stream": self.stream, "topic": self.topic}

    def __str__(self) -> str:
        kind = "group" if self.is_group else "consumer"
        return f"{kind} {self.consumer.id!r} of {self.stream!r}/{self.topic!r}"

    def poll_command(
        self,
        partition_id: int | None,
        strategy: PollingStrategy,
        count: int,
        *,
        auto_commit: bool = False,
    ) -> PollMessages:
        """Make the poll of a partition; None lets the server choose the next one of the member."""
        return PollMessages(
            self.consumer, self.stream, self.topic, strategy, count, partition_id, auto_commit
        )

    def store_command(self, partition_id: int, offset: int) -> StoreConsumerOffset:
        """Make the command that stores an offset."""
        return StoreConsumerOffset(self.consumer, self.stream, self.topic, offset, partition_id)

    def get_offset_command(self, partition_id: int) -> GetConsumerOffset:
        """Make the command that reads the stored offset."""
        return GetConsumerOffset(self.consumer, self.stream, self.topic, partition_id)

    def delete_offset_command(self, partition_id: int) -> DeleteConsumerOffset:
        """Make the command that deletes the stored offset."""
        return DeleteConsumerOffset(self.consumer, self.stream, self.topic, partition_id)


# The lag of a consumer, by partition.


async def measure_lag(
    sender: CommandSender,
    subscription: Subscription,
    positions: Mapping[int, int],
    partitions: tuple[int, ...] | None,
) -> dict[int, int]:
    """Count the messages after the position of the consumer.

    Args:
        sender: sends the requests; to look at a group it needs no membership.
        subscription: the consumer and its topic.
        positions: known positions; for other partitions the stored offset counts.
        partitions: the partitions to count, or None for all of the topic.

    Raises:
        TopicNotFoundError: the topic was deleted.
    """
    topic = await sender.request(GetTopic(subscription.stream, subscription.topic))
    if topic is None:
        raise TopicNotFoundError(
            f"there is no topic {subscription.topic!r} in {subscription.stream!r}"
        )
    lags: dict[int, int] = {}
    for partition in topic.partitions:
        if partitions is not None and partition.id not in partitions:
            continue
        position = positions.get(partition.id)
        if position is None:
            stored = await sender.request(subscription.get_offset_command(partition.id))
            position = 0 if stored is None else stored.stored_offset + 1
        lags[partition.id] = messages_behind(partition, position)
    return lags


async def stored_lag(
    sender: CommandSender,
    name: Identifier,
    stream: Identifier,
    topic: Identifier,
    *,
    is_group: bool,
) -> dict[int, int]:
    """Count the messages behind the stored offsets of a group or a consumer.

    Raises:
        TopicNotFoundError: there is no such topic.
    """
    consumer = ConsumerIdentity.group(name) if is_group else ConsumerIdentity.single(name)
    return await measure_lag(sender, Subscription(consumer, stream, topic), {}, None)


def messages_behind(partition: Partition, position: int) -> int:
    """Count the messages of a partition from a position on.

    The number of messages is an upper limit: old ones may be deleted, and an empty partition has
    the same current offset as one with a single message.
    """
    return max(0, min(partition.messages_count, partition.current_offset + 1 - position))

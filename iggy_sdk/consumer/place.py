"""The subscription of a consumer: the consumer or group, its topic, their commands, the lag."""

from __future__ import annotations

from iggy_protocol import (
    Consumer,
    ConsumerKind,
    DeleteConsumerOffset,
    GetConsumerOffset,
    Identifier,
    PollingStrategy,
    PollMessages,
    StoreConsumerOffset,
    record,
)

__all__ = ["Place"]


@record
class Place:
    """A consumer or a group, and the topic that it reads."""

    consumer: Consumer
    stream: Identifier
    topic: Identifier

    @property
    def is_group(self) -> bool:
        """Whether offsets belong to a group."""
        return self.consumer.kind is ConsumerKind.GROUP

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

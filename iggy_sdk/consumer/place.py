"""Who reads what: a consumer or a group, and its topic, with the commands that need all three.

Values only; it sends nothing.
"""

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
    """A consumer or a group at its topic."""

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
        """Ask for messages; without a partition, of the one whose turn it is."""
        return PollMessages(
            self.consumer, self.stream, self.topic, strategy, count, partition_id, auto_commit
        )

    def store_command(self, partition_id: int, offset: int) -> StoreConsumerOffset:
        """Store that everything up to this offset is done."""
        return StoreConsumerOffset(self.consumer, self.stream, self.topic, offset, partition_id)

    def get_offset_command(self, partition_id: int) -> GetConsumerOffset:
        """Ask for the stored offset."""
        return GetConsumerOffset(self.consumer, self.stream, self.topic, partition_id)

    def delete_offset_command(self, partition_id: int) -> DeleteConsumerOffset:
        """Delete the stored offset."""
        return DeleteConsumerOffset(self.consumer, self.stream, self.topic, partition_id)

"""Commands for stored offsets: how far a consumer or a group has come.

A stored offset is that of the last message that was processed, not of the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

from iggy_protocol import (
    Consumer,
    ConsumerOffset,
    DeleteConsumerOffset,
    GetConsumerOffset,
    Identifier,
    StatusCode,
    StoreConsumerOffset,
)
from iggy_sdk.errors import NotFoundError
from iggy_sdk.families.asking import Asking

if TYPE_CHECKING:
    from iggy_sdk.durations import Seconds

__all__ = ["OffsetsFamily"]


class OffsetsFamily(Asking):
    """Commands for stored offsets."""

    async def store_consumer_offset(
        self,
        stream: Identifier,
        topic: Identifier,
        offset: int,
        *,
        consumer: Consumer,
        partition_id: int | None = None,
        timeout: Seconds | None = None,
    ) -> None:
        """Store the last offset that was processed; the next poll goes on behind it.

        Args:
            stream: name or id.
            topic: name or id.
            offset: the offset of a message that exists.
            consumer: a single consumer, or a group that this connection has joined.
            partition_id: None means 0, or the partition that the group's member polled last.
            timeout: how long it may take.

        Raises:
            InvalidOffset: the partition has no such offset.
            PartitionNotOwned: the group gave the partition to another member.
        """
        command = StoreConsumerOffset(consumer, stream, topic, offset, partition_id)
        await self.request(command, timeout=timeout)

    @overload
    async def get_consumer_offset(
        self,
        stream: Identifier,
        topic: Identifier,
        *,
        consumer: Consumer,
        partition_id: int | None = None,
        required: Literal[True],
        timeout: Seconds | None = None,
    ) -> ConsumerOffset: ...
    @overload
    async def get_consumer_offset(
        self,
        stream: Identifier,
        topic: Identifier,
        *,
        consumer: Consumer,
        partition_id: int | None = None,
        required: bool = False,
        timeout: Seconds | None = None,
    ) -> ConsumerOffset | None: ...
    async def get_consumer_offset(
        self,
        stream: Identifier,
        topic: Identifier,
        *,
        consumer: Consumer,
        partition_id: int | None = None,
        required: bool = False,
        timeout: Seconds | None = None,
    ) -> ConsumerOffset | None:
        """Ask for a stored offset.

        Args:
            stream: name or id.
            topic: name or id.
            consumer: a single consumer or a group; membership is not needed.
            partition_id: None means 0.
            required: raise ``NotFoundError`` rather than return None.
            timeout: how long it may take.
        """
        command = GetConsumerOffset(consumer, stream, topic, partition_id)
        found = await self.request(command, timeout=timeout)
        if found is None and required:
            raise NotFoundError(
                f"no offset is stored for {consumer.kind.name.lower()} {consumer.id!r} in "
                f"partition {partition_id or 0} of {stream!r}/{topic!r}",
                code=StatusCode.CONSUMER_OFFSET_NOT_FOUND,
            )
        return found

    async def delete_consumer_offset(
        self,
        stream: Identifier,
        topic: Identifier,
        *,
        consumer: Consumer,
        partition_id: int | None = None,
        timeout: Seconds | None = None,
    ) -> None:
        """Forget a stored offset.

        Raises:
            NotFoundError: none is stored.
        """
        command = DeleteConsumerOffset(consumer, stream, topic, partition_id)
        await self.request(command, timeout=timeout)

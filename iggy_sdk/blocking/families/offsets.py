"""Blocking: Commands for stored offsets: how far a consumer or a group has come.

Made from iggy_sdk.families.offsets by ``python -m tests.sdk.blocking.facade``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

from iggy_sdk.blocking.calls import ClientCalls

if TYPE_CHECKING:
    from iggy_protocol import Consumer, ConsumerOffset, Identifier
    from iggy_sdk.durations import Seconds

__all__ = ["OffsetsFamily"]


class OffsetsFamily(ClientCalls):
    """Commands for stored offsets."""

    def store_consumer_offset(
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
        self._run(
            self._inner.store_consumer_offset(
                stream, topic, offset, consumer=consumer, partition_id=partition_id, timeout=timeout
            )
        )

    @overload
    def get_consumer_offset(
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
    def get_consumer_offset(
        self,
        stream: Identifier,
        topic: Identifier,
        *,
        consumer: Consumer,
        partition_id: int | None = None,
        required: bool = False,
        timeout: Seconds | None = None,
    ) -> ConsumerOffset | None: ...

    def get_consumer_offset(
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
        return self._run(
            self._inner.get_consumer_offset(
                stream,
                topic,
                consumer=consumer,
                partition_id=partition_id,
                required=required,
                timeout=timeout,
            )
        )

    def delete_consumer_offset(
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
        self._run(
            self._inner.delete_consumer_offset(
                stream, topic, consumer=consumer, partition_id=partition_id, timeout=timeout
            )
        )

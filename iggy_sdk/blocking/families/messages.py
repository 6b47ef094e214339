"""Blocking: Commands for messages, stored offsets and consumer groups.

Made from iggy_sdk.families.messages by ``python -m tools.blocking_facade``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

from iggy_sdk.blocking.wrapper import BlockingClientBase, as_sequence
from iggy_sdk.families.messages import _NEXT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iggy_protocol import (
        ConsumerGroup,
        ConsumerGroupAssignment,
        ConsumerGroupDetails,
        ConsumerIdentity,
        ConsumerOffset,
        Identifier,
        Partitioning,
        PollingStrategy,
        SendConfirmation,
    )
    from iggy_sdk.durations import Seconds
    from iggy_sdk.families.messages import Outgoing
    from iggy_sdk.message import ReceivedBatch


class MessagesFamily(BlockingClientBase):
    """Commands for messages."""

    def send_messages(
        self,
        stream: Identifier,
        topic: Identifier,
        messages: Iterable[Outgoing],
        *,
        partition_id: int | None = None,
        key: str | bytes | None = None,
        partitioning: Partitioning | None = None,
        timeout: Seconds | None = None,
    ) -> SendConfirmation | None:
        """Append a batch to one partition, all of it or nothing; return when the server has it.

        Args:
            stream: name or id.
            topic: name or id.
            messages: bytes, texts or ``Message``s; without any nothing is sent.
            partition_id: the partition.
            key: batches with equal keys go to the same partition.
            partitioning: either of both, or ``Partitioning.balanced()``, which is the default.
            timeout: how long it may take.

        Returns:
            The partition, and the offset of the first message; None from servers of 0.8.

        Raises:
            InvalidRequestError: a message does not fit the wire, or its keys are not one.
            NotFoundError: there is no such stream, topic or partition.
        """
        return self._run(
            self._inner.send_messages(
                stream,
                topic,
                as_sequence(messages),
                partition_id=partition_id,
                key=key,
                partitioning=partitioning,
                timeout=timeout,
            )
        )

    def poll_messages(
        self,
        stream: Identifier,
        topic: Identifier,
        *,
        consumer: ConsumerIdentity,
        partition_id: int | None = None,
        strategy: PollingStrategy = _NEXT,
        count: int = 100,
        auto_commit: bool = False,
        timeout: Seconds | None = None,
    ) -> ReceivedBatch[bytes]:
        """Ask for messages of one partition; the answer comes at once, with as many as there are.

        Args:
            stream: name or id.
            topic: name or id.
            consumer: a single consumer, or a group that this connection has joined.
            partition_id: None means 0, or the next one in turn of the group's member.
            strategy: where to start.
            count: how many at most.
            auto_commit: whether the server stores the last offset of the reply at once.
            timeout: how long it may take.
        """
        return self._run(
            self._inner.poll_messages(
                stream,
                topic,
                consumer=consumer,
                partition_id=partition_id,
                strategy=strategy,
                count=count,
                auto_commit=auto_commit,
                timeout=timeout,
            )
        )

    def flush_unsaved_buffer(
        self,
        stream: Identifier,
        topic: Identifier,
        partition_id: int,
        *,
        fsync: bool = False,
        timeout: Seconds | None = None,
    ) -> None:
        """Have unsaved messages of a partition written, and synced to the disk if asked.

        Raises:
            UnsupportedByServerError: the server speaks 0.9 or later and nothing older.
        """
        self._run(
            self._inner.flush_unsaved_buffer(
                stream, topic, partition_id, fsync=fsync, timeout=timeout
            )
        )


class OffsetsFamily(BlockingClientBase):
    """Commands for stored offsets."""

    def store_consumer_offset(
        self,
        stream: Identifier,
        topic: Identifier,
        offset: int,
        *,
        consumer: ConsumerIdentity,
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
            InvalidOffsetError: the partition has no such offset.
            PartitionNotOwnedError: the group gave the partition to another member.
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
        consumer: ConsumerIdentity,
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
        consumer: ConsumerIdentity,
        partition_id: int | None = None,
        required: bool = False,
        timeout: Seconds | None = None,
    ) -> ConsumerOffset | None: ...

    def get_consumer_offset(
        self,
        stream: Identifier,
        topic: Identifier,
        *,
        consumer: ConsumerIdentity,
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
        consumer: ConsumerIdentity,
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


class ConsumerGroupsFamily(BlockingClientBase):
    """Commands for consumer groups."""

    def create_consumer_group(
        self,
        stream: Identifier,
        topic: Identifier,
        name: str,
        *,
        exist_ok: bool = False,
        timeout: Seconds | None = None,
    ) -> ConsumerGroupDetails:
        """Create a group; ``join_consumer_group`` joins it.

        Args:
            stream: name or id.
            topic: name or id.
            name: 1 to 255 bytes.
            exist_ok: return the group as it is when the name is taken.
            timeout: how long it may take.

        Raises:
            ConsumerGroupExistsError: the name is taken.
            StreamNotFoundError: there is no such stream.
            TopicNotFoundError: there is no such topic.
        """
        return self._run(
            self._inner.create_consumer_group(
                stream, topic, name, exist_ok=exist_ok, timeout=timeout
            )
        )

    @overload
    def get_consumer_group(
        self,
        stream: Identifier,
        topic: Identifier,
        group: Identifier,
        *,
        required: Literal[True],
        timeout: Seconds | None = None,
    ) -> ConsumerGroupDetails: ...

    @overload
    def get_consumer_group(
        self,
        stream: Identifier,
        topic: Identifier,
        group: Identifier,
        *,
        required: bool = False,
        timeout: Seconds | None = None,
    ) -> ConsumerGroupDetails | None: ...

    def get_consumer_group(
        self,
        stream: Identifier,
        topic: Identifier,
        group: Identifier,
        *,
        required: bool = False,
        timeout: Seconds | None = None,
    ) -> ConsumerGroupDetails | None:
        """Ask for one group and its members.

        Args:
            stream: name or id.
            topic: name or id.
            group: name or id.
            required: raise ``StreamNotFoundError``, ``TopicNotFoundError`` or
                ``ConsumerGroupNotFoundError``
                rather than return None.
            timeout: how long it may take.
        """
        return self._run(
            self._inner.get_consumer_group(stream, topic, group, required=required, timeout=timeout)
        )

    def get_consumer_groups(
        self, stream: Identifier, topic: Identifier, *, timeout: Seconds | None = None
    ) -> list[ConsumerGroup]:
        """Ask for all groups of a topic."""
        return self._run(self._inner.get_consumer_groups(stream, topic, timeout=timeout))

    def delete_consumer_group(
        self,
        stream: Identifier,
        topic: Identifier,
        group: Identifier,
        *,
        timeout: Seconds | None = None,
    ) -> None:
        """Delete a group with its stored offsets."""
        self._run(self._inner.delete_consumer_group(stream, topic, group, timeout=timeout))

    def join_consumer_group(
        self,
        stream: Identifier,
        topic: Identifier,
        group: Identifier,
        *,
        timeout: Seconds | None = None,
    ) -> None:
        """Make this connection a member; joining twice changes nothing."""
        self._run(self._inner.join_consumer_group(stream, topic, group, timeout=timeout))

    def leave_consumer_group(
        self,
        stream: Identifier,
        topic: Identifier,
        group: Identifier,
        *,
        timeout: Seconds | None = None,
    ) -> None:
        """Leave the group with this connection.

        Raises:
            NotAMemberError: this connection has not joined the group.
        """
        self._run(self._inner.leave_consumer_group(stream, topic, group, timeout=timeout))

    def sync_consumer_group(
        self,
        stream: Identifier,
        topic: Identifier,
        group: Identifier,
        *,
        timeout: Seconds | None = None,
    ) -> ConsumerGroupAssignment | None:
        """Ask which partitions the group assigns to this client; servers from 0.9 on tell.

        Returns:
            The partitions to poll; None if this client is not a member.
        """
        return self._run(self._inner.sync_consumer_group(stream, topic, group, timeout=timeout))

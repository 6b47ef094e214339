"""Commands for messages, stored offsets and consumer groups.

Each method is one request. Producers and consumers do more.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, overload

from iggy_protocol import (
    Buffer,
    ConsumerGroup,
    ConsumerGroupAssignment,
    ConsumerGroupDetails,
    ConsumerIdentity,
    ConsumerOffset,
    CreateConsumerGroup,
    DeleteConsumerGroup,
    DeleteConsumerOffset,
    FlushUnsavedBuffer,
    GetConsumerGroup,
    GetConsumerGroups,
    GetConsumerOffset,
    GetStream,
    GetTopic,
    Identifier,
    JoinConsumerGroup,
    LeaveConsumerGroup,
    LocalProtocolError,
    NewMessage,
    Partitioning,
    PollingStrategy,
    PollMessages,
    SendConfirmation,
    SendMessages,
    StatusCode,
    StoreConsumerOffset,
    SyncConsumerGroup,
)
from iggy_sdk.client_interface import RequestSender
from iggy_sdk.errors import (
    ConsumerGroupExistsError,
    ConsumerGroupNotFoundError,
    InvalidRequestError,
    NotFoundError,
    StreamNotFoundError,
    TopicNotFoundError,
    error_from_protocol,
)
from iggy_sdk.hooks import Hooks
from iggy_sdk.message import Message, ReceivedBatch
from iggy_sdk.pipeline import Pipeline

if TYPE_CHECKING:
    from iggy_sdk.durations import Seconds


Outgoing: TypeAlias = Buffer | str | Message[Any] | NewMessage
"""What can be sent: bytes, text (as UTF-8), or messages with headers, ids or keys."""


KEY_BYTES: Final = range(1, 256)
"""How long the key of a batch may be; the server says so."""

_NEXT: Final = PollingStrategy.next()


class MessagesFamily(RequestSender):
    """Commands for messages."""

    async def send_messages(
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
        batch = _listed(messages)
        if not batch:
            return None
        where = self._partitioning(
            stream, topic, batch, partition_id=partition_id, key=key, partitioning=partitioning
        )
        outgoing = self._messages_pipeline.encode_batch(batch, stream=stream, topic=topic)
        command = SendMessages(stream, topic, where, outgoing, time.time_ns() // 1000)
        confirmations = await self.request(command, timeout=timeout)
        return confirmations[0] if confirmations else None

    async def poll_messages(
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
        command = PollMessages(consumer, stream, topic, strategy, count, partition_id, auto_commit)
        polled = await self.request(command, timeout=timeout)
        return self._messages_pipeline.batch(polled, stream=stream, topic=topic)

    async def flush_unsaved_buffer(
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
        command = FlushUnsavedBuffer(stream, topic, partition_id, fsync)
        await self.request(command, timeout=timeout)

    @cached_property
    def _messages_pipeline(self) -> Pipeline[bytes]:
        options = self.options
        return Pipeline(encryptor=options.encryptor, hooks=Hooks(options.hooks))

    def _partitioning(
        self,
        stream: Identifier,
        topic: Identifier,
        batch: Sequence[Outgoing],
        *,
        partition_id: int | None,
        key: str | bytes | None,
        partitioning: Partitioning | None,
    ) -> Partitioning:
        """Choose how the partition is chosen: by the call, by the messages, by the client."""
        ways = [way for way in (partition_id, key, partitioning) if way is not None]
        if len(ways) > 1:
            raise InvalidRequestError(
                "there is more than one way to choose the partition",
                advice="Give one of partition_id=, key= and partitioning=.",
            )
        if partitioning is not None:
            return partitioning
        if partition_id is None and key is None:
            key = _common_key(batch)
        if partition_id is None and key is None and self.options.partitioner is not None:
            partition_id = self.options.partitioner(stream, topic, batch)
        return _partitioning_of(partition_id, key)


def _listed(messages: Iterable[Outgoing]) -> Sequence[Outgoing]:
    if isinstance(messages, bytes | bytearray | memoryview | str | Message | NewMessage):
        raise TypeError("send_messages() takes several messages: put a single one into a list")
    return messages if isinstance(messages, Sequence) else list(messages)


def _common_key(batch: Sequence[Outgoing]) -> str | bytes | None:
    """Take the key of the messages, which must be one because they go to one partition."""
    # Looking at the few kinds costs a fraction of looking at each message.
    if not any(issubclass(kind, Message) for kind in set(map(type, batch))):
        return None
    keys = {message.key if isinstance(message, Message) else None for message in batch}
    if len(keys) > 1:
        raise InvalidRequestError(
            "the messages have several keys, and a batch goes to one partition",
            advice="Send one batch for each key, give key= or partition_id=, or use a producer.",
        )
    return keys.pop()


def _partitioning_of(partition_id: int | None, key: str | bytes | None) -> Partitioning:
    try:
        if partition_id is not None:
            return Partitioning.partition(partition_id)
    except LocalProtocolError as error:
        raise error_from_protocol(error) from error
    if key is None:
        return Partitioning.balanced()
    partitioning = Partitioning.key(key)
    if len(partitioning.value) not in KEY_BYTES:
        raise InvalidRequestError(
            f"a key has {len(partitioning.value)} bytes", code=StatusCode.INVALID_KEY_VALUE_LENGTH
        )
    return partitioning


# Commands for stored offsets: how far a consumer or a group has come.
#
# A stored offset is that of the last message that was processed, not of the next one.


class OffsetsFamily(RequestSender):
    """Commands for stored offsets."""

    async def store_consumer_offset(
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
        command = StoreConsumerOffset(consumer, stream, topic, offset, partition_id)
        await self.request(command, timeout=timeout)

    @overload
    async def get_consumer_offset(
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
    async def get_consumer_offset(
        self,
        stream: Identifier,
        topic: Identifier,
        *,
        consumer: ConsumerIdentity,
        partition_id: int | None = None,
        required: bool = False,
        timeout: Seconds | None = None,
    ) -> ConsumerOffset | None: ...
    async def get_consumer_offset(
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
        consumer: ConsumerIdentity,
        partition_id: int | None = None,
        timeout: Seconds | None = None,
    ) -> None:
        """Forget a stored offset.

        Raises:
            NotFoundError: none is stored.
        """
        command = DeleteConsumerOffset(consumer, stream, topic, partition_id)
        await self.request(command, timeout=timeout)


# Commands for consumer groups: sharing the partitions of a topic.
#
# A member is a connection, so joining and leaving act on the connection of this client.


class ConsumerGroupsFamily(RequestSender):
    """Commands for consumer groups."""

    async def create_consumer_group(
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
        deadline = self._deadline(timeout)
        try:
            new = await self.request(CreateConsumerGroup(stream, topic, name), timeout=timeout)
        except ConsumerGroupExistsError:
            found = None
            if exist_ok:
                question = GetConsumerGroup(stream, topic, name)
                found = await self._request_by(deadline, question)
            if found is None:
                raise
            return found
        return ConsumerGroupDetails(new.id, new.partitions_count, new.members_count, new.name)

    @overload
    async def get_consumer_group(
        self,
        stream: Identifier,
        topic: Identifier,
        group: Identifier,
        *,
        required: Literal[True],
        timeout: Seconds | None = None,
    ) -> ConsumerGroupDetails: ...
    @overload
    async def get_consumer_group(
        self,
        stream: Identifier,
        topic: Identifier,
        group: Identifier,
        *,
        required: bool = False,
        timeout: Seconds | None = None,
    ) -> ConsumerGroupDetails | None: ...
    async def get_consumer_group(
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
        details = await self.request(GetConsumerGroup(stream, topic, group), timeout=timeout)
        if details is None and required:
            raise await self._missing(stream, topic, group, timeout)
        return details

    async def get_consumer_groups(
        self, stream: Identifier, topic: Identifier, *, timeout: Seconds | None = None
    ) -> list[ConsumerGroup]:
        """Ask for all groups of a topic."""
        return list(await self.request(GetConsumerGroups(stream, topic), timeout=timeout))

    async def delete_consumer_group(
        self,
        stream: Identifier,
        topic: Identifier,
        group: Identifier,
        *,
        timeout: Seconds | None = None,
    ) -> None:
        """Delete a group with its stored offsets."""
        await self.request(DeleteConsumerGroup(stream, topic, group), timeout=timeout)

    async def join_consumer_group(
        self,
        stream: Identifier,
        topic: Identifier,
        group: Identifier,
        *,
        timeout: Seconds | None = None,
    ) -> None:
        """Make this connection a member; joining twice changes nothing."""
        await self.request(JoinConsumerGroup(stream, topic, group), timeout=timeout)

    async def leave_consumer_group(
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
        await self.request(LeaveConsumerGroup(stream, topic, group), timeout=timeout)

    async def sync_consumer_group(
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
        return await self.request(SyncConsumerGroup(stream, topic, group), timeout=timeout)

    async def _missing(
        self,
        stream: Identifier,
        topic: Identifier,
        group: Identifier,
        timeout: Seconds | None,
    ) -> NotFoundError:
        """Find out what is missing, which the server does not tell."""
        if await self.request(GetStream(stream), timeout=timeout) is None:
            return StreamNotFoundError(f"there is no stream {stream!r}")
        if await self.request(GetTopic(stream, topic), timeout=timeout) is None:
            return TopicNotFoundError(f"stream {stream!r} has no topic {topic!r}")
        return ConsumerGroupNotFoundError(f"topic {topic!r} has no consumer group {group!r}")

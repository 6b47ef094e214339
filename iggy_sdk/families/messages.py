"""Commands for messages: sending a batch, polling, flushing.

Each method is one request. Producers and consumers do more.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from iggy_protocol import (
    Buffer,
    Consumer,
    FlushUnsavedBuffer,
    Identifier,
    LocalProtocolError,
    NewMessage,
    Partitioning,
    PollingStrategy,
    PollMessages,
    SendMessages,
    StatusCode,
)
from iggy_sdk.errors import InvalidRequestError, error_from_protocol
from iggy_sdk.families.asking import Asking
from iggy_sdk.hooks import Hooks
from iggy_sdk.message import Message, ReceivedBatch
from iggy_sdk.pipeline import Pipeline

if TYPE_CHECKING:
    from iggy_sdk.durations import Seconds

__all__ = ["MessagesFamily", "Outgoing"]

Outgoing: TypeAlias = Buffer | str | Message[Any] | NewMessage
"""What can be sent: bytes, text (as UTF-8), or messages with headers, ids or keys."""


KEY_BYTES: Final = range(1, 256)
"""How long the key of a batch may be; the server says so."""

_NEXT: Final = PollingStrategy.next()


class MessagesFamily(Asking):
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
    ) -> None:
        """Append a batch to one partition, all of it or nothing; return when the server has it.

        Args:
            stream: name or id.
            topic: name or id.
            messages: bytes, texts or ``Message``s; without any nothing is sent.
            partition_id: the partition.
            key: batches with equal keys go to the same partition.
            partitioning: either of both, or ``Partitioning.balanced()``, which is the default.
            timeout: how long it may take.

        Raises:
            InvalidRequestError: a message does not fit the wire, or its keys are not one.
            NotFoundError: there is no such stream, topic or partition.
        """
        batch = _listed(messages)
        if not batch:
            return
        where = self._partitioning(
            stream, topic, batch, partition_id=partition_id, key=key, partitioning=partitioning
        )
        outgoing = self._messages_pipeline.outgoing_all(batch, stream=stream, topic=topic)
        command = SendMessages(stream, topic, where, outgoing, time.time_ns() // 1000)
        await self.request(command, timeout=timeout)

    async def poll_messages(
        self,
        stream: Identifier,
        topic: Identifier,
        *,
        consumer: Consumer,
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
        """Have unsaved messages of a partition written, and synced to the disk if asked."""
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

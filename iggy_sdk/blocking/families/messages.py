"""Blocking: Commands for messages: sending a batch, polling, flushing.

Made from iggy_sdk.families.messages by ``python -m tests.sdk.blocking.facade``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_sdk.blocking.calls import ClientCalls, listed
from iggy_sdk.families.messages import _NEXT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iggy_protocol import Consumer, Identifier, Partitioning, PollingStrategy
    from iggy_sdk.durations import Seconds
    from iggy_sdk.families.messages import Outgoing
    from iggy_sdk.message import ReceivedBatch

__all__ = ["MessagesFamily"]


class MessagesFamily(ClientCalls):
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
        self._run(
            self._inner.send_messages(
                stream,
                topic,
                listed(messages),
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
        """Have unsaved messages of a partition written, and synced to the disk if asked."""
        self._run(
            self._inner.flush_unsaved_buffer(
                stream, topic, partition_id, fsync=fsync, timeout=timeout
            )
        )

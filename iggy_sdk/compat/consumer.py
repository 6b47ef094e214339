"""The official consumer of a group: ``iter_messages`` and ``consume_messages``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iggy_sdk.compat.messages import ReceiveMessage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    import iggy_protocol
    from iggy_sdk import consumer
    from iggy_sdk.message import ReceivedMessage

__all__ = ["IggyConsumer"]


class ReceivedIterator:
    """Messages in the official shape, one by one."""

    def __init__(self, messages: AsyncIterator[ReceivedMessage[Any]]) -> None:
        self._messages = messages

    def __aiter__(self) -> ReceivedIterator:
        return self

    async def __anext__(self) -> ReceiveMessage:
        """Acknowledge the message before, and return the next one."""
        return ReceiveMessage(await anext(self._messages))


class IggyConsumer:
    """Reads messages of a group; made by ``await client.consumer_group(...)``."""

    def __init__(self, inner: consumer.IggyConsumer[Any]) -> None:
        self._inner = inner

    def name(self) -> iggy_protocol.Identifier:
        """Tell the name of the group."""
        return self._inner.name()

    def stream(self) -> iggy_protocol.Identifier:
        """Tell the stream that is read."""
        return self._inner.stream()

    def topic(self) -> iggy_protocol.Identifier:
        """Tell the topic that is read."""
        return self._inner.topic()

    def partition_id(self) -> int:
        """Tell the partition of the last message, or 0 before the first."""
        return self._inner.partition_id() or 0

    def get_last_consumed_offset(self, partition_id: int) -> int | None:
        """Tell the last offset of a partition that was delivered."""
        return self._inner.get_last_consumed_offset(partition_id)

    def get_last_stored_offset(self, partition_id: int) -> int | None:
        """Tell the last offset of a partition that this consumer stored."""
        return self._inner.get_last_stored_offset(partition_id)

    async def store_offset(self, offset: int, partition_id: int | None) -> None:
        """Store an offset; without a partition, for that of the last message."""
        await self._inner.store_offset(offset, partition_id)

    async def delete_offset(self, partition_id: int | None) -> None:
        """Delete the stored offset; without a partition, that of the last message's."""
        await self._inner.delete_offset(partition_id)

    def iter_messages(self) -> ReceivedIterator:
        """Iterate over messages; asking for the next one acknowledges the one before."""
        return ReceivedIterator(self._inner.iter_messages())

    async def consume_messages(
        self,
        callback: Callable[[ReceiveMessage], Awaitable[None]],
        shutdown_event: Any = None,
    ) -> None:
        """Give every message to a callback until an event is set.

        A message is committed when the callback has returned; what it raises is raised here.

        Args:
            callback: called with each message.
            shutdown_event: anything with ``wait()``, such as ``asyncio.Event``.
        """

        async def handle(message: ReceivedMessage[Any]) -> None:
            await callback(ReceiveMessage(message))

        await self._inner.consume_messages(handle, shutdown_event)

    async def shutdown(self) -> None:
        """Store what is due, leave the group and close the connection."""
        await self._inner.shutdown()

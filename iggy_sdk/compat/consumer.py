"""The official consumer of a group: ``iter_messages`` and ``consume_messages``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from iggy_protocol import NO_CONTEXT
from iggy_sdk.compat.messages import ReceiveMessage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from iggy_protocol import Identifier
    from iggy_sdk import consumer
    from iggy_sdk.compat.records import ConsumerPosition
    from iggy_sdk.message import ReceivedMessage


class ShutdownEvent(Protocol):
    """Anything that can be waited for, such as ``asyncio.Event`` or ``anyio.Event``."""

    def wait(self) -> Any:
        """Wait until it is set."""


class ReceivedIterator:
    """Messages in the official shape, one by one."""

    def __init__(self, messages: AsyncIterator[ReceivedMessage[bytes]]) -> None:
        self._messages = messages

    def __aiter__(self) -> ReceivedIterator:
        return self

    async def __anext__(self) -> ReceiveMessage:
        """Acknowledge the message before, and return the next one."""
        return ReceiveMessage(await anext(self._messages), NO_CONTEXT)


class IggyConsumer:
    """Reads messages of a group; made by ``await client.consumer_group(...)``."""

    def __init__(self, own: consumer.IggyConsumer[bytes]) -> None:
        """Take the consumer of this SDK, which stays at hand as ``own``."""
        self.own = own

    def name(self) -> Identifier:
        """Tell the name of the group."""
        return self.own.name

    def stream(self) -> Identifier:
        """Tell the stream that is read."""
        return self.own.stream

    def topic(self) -> Identifier:
        """Tell the topic that is read."""
        return self.own.topic

    def partition_id(self) -> int:
        """Tell the partition of the last message, or 0 before the first."""
        return self.own.last_partition_id or 0

    def get_last_consumed_offset(self, partition_id: int) -> int | None:
        """Tell the last offset of a partition that was delivered."""
        return self.own.get_last_consumed_offset(partition_id)

    def get_last_stored_offset(self, partition_id: int) -> int | None:
        """Tell the last offset of a partition that this consumer stored."""
        return self.own.get_last_stored_offset(partition_id)

    async def store_offset(self, offset: int, partition_id: int | None) -> None:
        """Store an offset; without a partition, for that of the last message."""
        await self.own.store_offset(offset, partition_id)

    async def store_position(self, position: ConsumerPosition) -> None:
        """Store the position of a message that this consumer has delivered.

        The consumer keeps the state of each partition by itself and stores offsets under it, so
        the context of the position is not looked at.

        Raises:
            IggyError: the server refuses, as when the partition was made anew or has another owner.
        """
        await self.own.store_offset(position.offset, position.partition_id)

    async def delete_offset(self, partition_id: int | None) -> None:
        """Delete the stored offset; without a partition, that of the last message's."""
        await self.own.delete_offset(partition_id)

    def iter_messages(self) -> ReceivedIterator:
        """Iterate over messages; asking for the next one acknowledges the one before."""
        return ReceivedIterator(self.own.iter_messages())

    async def consume_messages(
        self,
        callback: Callable[[ReceiveMessage], Awaitable[None]],
        shutdown_event: ShutdownEvent | None = None,
    ) -> None:
        """Give every message to a callback until an event is set.

        A message is committed when the callback has returned; what it raises is raised here.

        Args:
            callback: called with each message.
            shutdown_event: anything with ``wait()``, such as ``asyncio.Event``.
        """

        async def handle(message: ReceivedMessage[bytes]) -> None:
            await callback(ReceiveMessage(message, NO_CONTEXT))

        await self.own.consume_messages(handle, shutdown_event)

    async def shutdown(self) -> None:
        """Store what is due, leave the group and close the connection."""
        await self.own.shutdown()

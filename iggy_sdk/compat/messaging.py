"""Messages, the consumer and the producer in the shape of the official client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iggy_sdk.errors import SendFailedError
from iggy_sdk.message import Headers, Message, ReceivedMessage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
    from types import TracebackType

    import iggy_protocol
    from iggy_protocol import HeaderKey, HeaderScalar, HeaderValue
    from iggy_sdk import consumer
    from iggy_sdk.producer import Producer


class SendMessage(Message[str | bytes]):
    """A message to be sent.

    Args:
        data: the payload; text is written as UTF-8.
        user_headers: user headers.
        id: 0 or None lets the server choose one.
    """

    def __init__(
        self,
        data: str | bytes,
        user_headers: Headers | None = None,
        id: int | None = None,  # noqa: A002  official name
    ) -> None:
        super().__init__(data, headers=user_headers, id=id or 0)


class UserHeaders(dict["HeaderKey", "HeaderValue"]):
    """User headers with the kinds that the producer gave them."""

    def to_scalar_dict(self) -> dict[HeaderScalar, HeaderScalar]:
        """Show keys and values as Python sees them."""
        return {key.value: value.value for key, value in self.items()}


class ReceiveMessage:
    """A message that was received; every field is a method."""

    __slots__ = ("_message",)

    def __init__(self, message: ReceivedMessage[Any]) -> None:
        self._message = message

    def payload(self) -> bytes:
        """Return the payload."""
        return self._message.payload

    def offset(self) -> int:
        """Return the place in the partition."""
        return self._message.offset

    def timestamp(self) -> int:
        """Return when the server stored it, in microseconds since 1970."""
        return self._message.timestamp_us

    def origin_timestamp(self) -> int:
        """Return when the producer sent it, in microseconds since 1970."""
        return self._message.origin_timestamp_us

    def id(self) -> int:
        """Return the id, a number of 128 bits."""
        return self._message.id

    def checksum(self) -> int:
        """Return the checksum that the server stored."""
        return self._message.checksum

    def length(self) -> int:
        """Return the length of the payload."""
        return len(self._message.payload)

    def partition_id(self) -> int:
        """Return the partition it came from."""
        return self._message.partition_id

    def user_headers(self) -> UserHeaders:
        """Return the user headers."""
        headers: Mapping[HeaderKey, HeaderValue] = self._message.typed_headers
        return UserHeaders(headers)

    def __repr__(self) -> str:
        return f"<ReceiveMessage {self._message!r}>"


# The official consumer of a group: ``iter_messages`` and ``consume_messages``.


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


# The official producer: lists to ``send``, one message to ``send_one``.


ProducerSendError = SendFailedError
"""Its ``cause`` is an error, not a text; ``messages`` is what the official calls ``failed``."""


class IggyProducer:
    """Sends messages to a topic; made by ``await client.producer(...)``."""

    def __init__(self, producer: Producer[Any]) -> None:
        self._producer = producer

    async def send(self, messages: Iterable[Message[Any]]) -> None:
        """Send several messages."""
        await self._producer.send_many(messages)

    async def send_one(self, message: Message[Any]) -> None:
        """Send one message."""
        await self._producer.send(message)

    async def send_with_partitioning(
        self,
        messages: Iterable[Message[Any]],
        partitioning: iggy_protocol.Partitioning | int | None = None,
    ) -> None:
        """Send several messages to a partition."""
        await self._producer.send_many(messages, partitioning=partitioning)

    async def send_to(
        self,
        stream: iggy_protocol.Identifier,
        topic: iggy_protocol.Identifier,
        messages: Iterable[Message[Any]],
        partitioning: iggy_protocol.Partitioning | int | None = None,
    ) -> None:
        """Send several messages to another topic."""
        await self._producer.send_to(stream, topic, messages, partitioning)

    async def flush(self) -> None:
        """Wait until all messages accepted so far were delivered or have failed."""
        await self._producer.flush()

    async def shutdown(self) -> None:
        """Deliver what is in the buffer, and close the producer."""
        await self._producer.shutdown()

    async def __aenter__(self) -> IggyProducer:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.shutdown()

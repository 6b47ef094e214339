"""The official producer: lists to ``send``, one message to ``send_one``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iggy_sdk.errors import SendFailedError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    import iggy_protocol
    from iggy_sdk.message import Message
    from iggy_sdk.producer import Producer

__all__ = ["IggyProducer", "ProducerSendError"]

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

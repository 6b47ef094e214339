"""The official producer and its configurations: lists to ``send``, one message to ``send_one``."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from iggy_sdk.compat.choices import (
    AnyPartitioning,
    BackpressureMode,
    ProducerSharding,
    own_partitioning,
)
from iggy_sdk.compat.errors import ProducerSendError
from iggy_sdk.compat.messages import (
    SendMessagesConfirmation,
    SendMessagesResponse,
    confirmations_of,
)
from iggy_sdk.compat.variants import ByValue
from iggy_sdk.errors import SendFailedError
from iggy_sdk.producer import BackgroundMode, Backpressure, DirectMode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from types import TracebackType

    from iggy_protocol import Identifier
    from iggy_sdk.message import Message
    from iggy_sdk.producer import Producer, Receipt


class DirectProducerConfig(ByValue):
    """Wait for the server with every call."""

    __slots__ = __match_args__ = ("batch_length", "linger_time")

    def __init__(self, *, batch_length: int = 1_000, linger_time: timedelta = timedelta(0)) -> None:
        """Say how messages are sent.

        Args:
            batch_length: messages of one request at most; 0 is no bound.
            linger_time: the least time between two requests.

        Raises:
            ConfigurationError: a value is out of range.
        """
        self.batch_length: int = batch_length
        self.linger_time: timedelta = linger_time
        self.mode()

    def mode(self) -> DirectMode:
        """Say the same in the words of this SDK."""
        return DirectMode(batch_length=self.batch_length or None, linger_time=self.linger_time)


class BackgroundProducerConfig(ByValue):
    """Send in the background; order is kept for each destination, several are served at once."""

    __slots__ = __match_args__ = (
        *("num_shards", "linger_time", "batch_size", "batch_length", "max_buffer_size"),
        *("failure_mode", "max_in_flight", "sharding"),
    )

    def __init__(
        self,
        *,
        num_shards: int = 1,
        linger_time: timedelta = timedelta(milliseconds=1),
        batch_size: int = 1 << 20,
        batch_length: int = 1_000,
        max_buffer_size: int = 32 << 20,
        failure_mode: BackpressureMode | Backpressure | None = None,
        max_in_flight: int = 1,
        sharding: ProducerSharding = ProducerSharding.ORDERED,
    ) -> None:
        """Say how messages are gathered; 0 is no bound.

        Args:
            num_shards: how many requests may at least be in flight.
            linger_time: how long the oldest message of a batch waits for further ones.
            batch_size: bytes that make a batch full.
            batch_length: messages that make a batch full; officially it counts calls.
            max_buffer_size: bytes of all messages that no server has acknowledged yet.
            failure_mode: what a send does while the buffer is full; it waits by default.
            max_in_flight: requests that wait for their answers.
            sharding: taken for compatibility; the order of each destination is always kept.

        Raises:
            ConfigurationError: a value is out of range.
        """
        self.num_shards = num_shards
        self.linger_time = linger_time
        self.batch_size = batch_size
        self.batch_length = batch_length
        self.max_buffer_size = max_buffer_size
        if isinstance(failure_mode, Backpressure):
            failure_mode = BackpressureMode(failure_mode)
        self.failure_mode: BackpressureMode = failure_mode or BackpressureMode.block()
        self.max_in_flight = max_in_flight
        self.sharding = sharding
        self.mode()

    def mode(self) -> BackgroundMode:
        """Say the same in the words of this SDK."""
        return BackgroundMode(
            linger_time=self.linger_time,
            batch_size=self.batch_size or None,
            batch_length=self.batch_length or None,
            max_buffer_size=self.max_buffer_size or None,
            max_in_flight=max(self.max_in_flight, self.num_shards) if self.max_in_flight else None,
            backpressure=self.failure_mode.own,
        )


ProducerMode = DirectProducerConfig | BackgroundProducerConfig | DirectMode | BackgroundMode
"""How a producer sends, in either spelling."""


def own_mode(mode: ProducerMode | None) -> DirectMode | BackgroundMode | None:
    """Return a mode as this SDK spells it."""
    if isinstance(mode, DirectProducerConfig | BackgroundProducerConfig):
        return mode.mode()
    return mode


class IggyProducer:
    """Sends messages to a topic; made by ``await client.producer(...)``."""

    def __init__(self, own: Producer[Any]) -> None:
        """Take the producer of this SDK, which stays at hand as ``own``."""
        self.own = own

    async def send(self, messages: Iterable[Message[Any]]) -> SendMessagesResponse:
        """Send several messages.

        Raises:
            ProducerSendError: some were not sent.
        """
        return await self._send_in_pieces(messages, self.own.send_many)

    async def send_one(self, message: Message[Any]) -> SendMessagesResponse:
        """Send one message.

        Raises:
            ProducerSendError: it was not sent.
        """
        return await self._send_in_pieces([message], self.own.send_many)

    async def send_with_partitioning(
        self, messages: Iterable[Message[Any]], partitioning: AnyPartitioning | None = None
    ) -> SendMessagesResponse:
        """Send several messages to a partition.

        Raises:
            ProducerSendError: some were not sent.
        """
        where = own_partitioning(partitioning)
        return await self._send_in_pieces(messages, partial(self.own.send_many, partitioning=where))

    async def send_to(
        self,
        stream: Identifier,
        topic: Identifier,
        messages: Iterable[Message[Any]],
        partitioning: AnyPartitioning | None = None,
    ) -> SendMessagesResponse:
        """Send several messages to another topic.

        Raises:
            ProducerSendError: some were not sent.
        """
        where = own_partitioning(partitioning)
        return await self._send_in_pieces(
            messages, partial(self.own.send_to, stream, topic, partitioning=where)
        )

    async def _send_in_pieces(
        self,
        messages: Iterable[Message[Any]],
        send: Callable[[Sequence[Message[Any]]], Awaitable[Receipt]],
    ) -> SendMessagesResponse:
        """Send request by request, so that a failure can tell what was committed before it."""
        given, mode = list(messages), self.own.options.mode
        # In the background requests are made later, and nobody knows yet where they will go.
        length = mode.batch_length if isinstance(mode, DirectMode) else None
        step = length or max(len(given), 1)
        confirmations: list[SendMessagesConfirmation] = []
        for start in range(0, len(given), step):
            stop = start + step
            try:
                receipt = await send(given[start:stop])
            except SendFailedError as error:
                raise ProducerSendError(error, confirmations, given[stop:]) from error.cause
            confirmations += confirmations_of(receipt.confirmations)
        return SendMessagesResponse(confirmations)

    async def flush(self) -> None:
        """Wait until all messages accepted so far were delivered or have failed.

        Raises:
            ProducerSendError: some were not sent, and that was not reported yet.
        """
        try:
            await self.own.flush()
        except SendFailedError as error:
            raise ProducerSendError(error) from error.cause

    async def shutdown(self) -> None:
        """Deliver what is in the buffer, and close the producer.

        Raises:
            ProducerSendError: some were not sent, and that was not reported yet.
        """
        try:
            await self.own.shutdown()
        except SendFailedError as error:
            raise ProducerSendError(error) from error.cause

    async def __aenter__(self) -> IggyProducer:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.shutdown()

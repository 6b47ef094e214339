"""The public producer: its methods, and the choice of a destination for each message.

    async with client.producer("shop", "orders") as producer:
        await producer.send(b"one", key="customer-1")
        await producer.send_many([b"two", b"three"])

The subclasses in ``direct`` and ``background`` do the sending.
"""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import anyio

from iggy_protocol import Identifier, Partitioning, SendMessages
from iggy_sdk.errors import (
    OTHER_GENERATION_ADVICE,
    IggyError,
    InvalidRequestError,
    PartitionNotFound,
    ProducerClosedError,
    UnsupportedByServerError,
)
from iggy_sdk.hooks import Hooks
from iggy_sdk.message import Headers, Message
from iggy_sdk.pipeline import Pipeline
from iggy_sdk.producer.encoder import MessageEncoder, as_list, has_keys, key_of, with_overrides
from iggy_sdk.producer.options import BackgroundMode, Inherited, ProducerOptions, as_partitioning
from iggy_sdk.producer.routing import Destination, TopicRoute, ensure_topic, key_bytes
from iggy_sdk.serde import RawSerde

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType
    from typing import Self

    from iggy_protocol import SendConfirmation
    from iggy_sdk.client_interface import ClientInterface
    from iggy_sdk.options import Retry
    from iggy_sdk.producer.receipts import Receipt
    from iggy_sdk.statistics import ProducerStatistics


# Sending one batch, with retries.
#
# Only retriable errors lead to another attempt. An attempt whose reply was lost may have succeeded,
# so a repeated batch can be stored twice, unless its messages have ids and the server deduplicates.


class RetryingSender:
    """Sends batches and repeats failed requests.

    Args:
        client: sends the requests.
        retry: how often a request is repeated.
        timeout: how long one attempt may take, in seconds; None takes what the client says.
    """

    def __init__(self, client: ClientInterface, *, retry: Retry, timeout: float | None) -> None:
        self._client = client
        self._attempts = retry.attempts
        self._backoff = retry.schedule
        self._timeout = timeout
        self.batches_count: int = 0
        self.messages_count: int = 0
        self.retries_count: int = 0

    async def send(
        self, destination: Destination, messages: Sequence[Any]
    ) -> SendConfirmation | None:
        """Send a batch and return when the server has acknowledged it.

        Returns:
            Where it is, if the server tells; those from 0.9 on do.

        Raises:
            IggyError: the last attempt failed, or one failed with an error that is not retriable.
        """
        command = SendMessages(
            destination.stream,
            destination.topic,
            destination.partitioning,
            messages,
            origin_timestamp_us=time.time_ns() // 1_000,
        )
        confirmations = None
        for attempt in range(self._attempts + 1):
            try:
                confirmations = await self._client.request(command, timeout=self._timeout)
                break
            except IggyError as error:
                if attempt == self._attempts or not error.retriable:
                    raise
            self.retries_count += 1
            await anyio.sleep(self._backoff.delay(attempt, random.random))
        self.batches_count += 1
        self.messages_count += len(messages)
        return confirmations[0] if confirmations else None


# What accepts any value accepts bytes, too.
T = TypeVar("T", contravariant=True)

ROUTES_MAX: Final = 1_024
"""Other topics that ``send_to`` remembers; a forgotten one costs a request for its partitions."""


class Producer(ABC, Generic[T]):
    """Sends messages to a topic; made by ``client.producer()`` and entered with ``async with``."""

    def __init__(
        self,
        client: ClientInterface,
        stream: Identifier,
        topic: Identifier,
        options: ProducerOptions,
    ) -> None:
        """Take what the builder collected; nothing is sent yet."""
        inherited = client.options
        encryptor, partitioner = options.encryptor, options.partitioner
        self._client = client
        self._options = options
        self._route = TopicRoute(client, stream, topic)
        self._routes: dict[tuple[Identifier, Identifier], TopicRoute] = {}
        self._retrying_sender = RetryingSender(
            client, retry=options.retry, timeout=options.request_timeout
        )
        self._own_partitioner = None if isinstance(partitioner, Inherited) else partitioner
        self._last_partitioner = (
            inherited.partitioner if isinstance(partitioner, Inherited) else None
        )
        hooks = Hooks(inherited.hooks)
        encryptor = inherited.encryptor if isinstance(encryptor, Inherited) else encryptor
        self._encoder = MessageEncoder(
            Pipeline(
                options.serde,
                compression=options.compression,
                encryptor=encryptor,
                key_header=options.key_header,
                hooks=hooks,
            ),
            has_ids=options.idempotent_ids,
            copies_buffers=isinstance(options.mode, BackgroundMode),
        )
        # Where messages without a key go, if that is always the same.
        self._usual_destination: Destination | None = None
        if options.partitioning is not None:
            self._usual_destination = self._route.to(options.partitioning)
        elif self._last_partitioner is None:
            self._usual_destination = self._route.balanced
        # Whether plain bytes are sent without any processing.
        self._passes_bytes = (
            (options.serde is None or isinstance(options.serde, RawSerde))
            and options.compression is None
            and encryptor is None
            and not hooks.adds_headers
            and not options.idempotent_ids
            and self._own_partitioner is None
            and self._usual_destination is not None
        )
        self._is_closed = False
        self._is_hosted_by_await = False

    @property
    def stream(self) -> Identifier:
        """The stream to which it sends."""
        return self._route.stream

    @property
    def topic(self) -> Identifier:
        """The topic to which it sends."""
        return self._route.topic

    @property
    def options(self) -> ProducerOptions:
        """The options of this producer."""
        return self._options

    @property
    def is_closed(self) -> bool:
        """Whether it accepts no further messages."""
        return self._is_closed

    @abstractmethod
    def statistics(self) -> ProducerStatistics:
        """Return the counters of the producer."""

    # Sending

    @abstractmethod
    async def send(
        self,
        value: T | Message[T],
        *,
        key: str | bytes | None = None,
        partition_id: int | None = None,
        partitioning: Partitioning | int | None = None,
        headers: Headers | None = None,
    ) -> Receipt:
        """Send one message.

        A direct producer returns when the server has it. One in the background returns when the
        message is in the buffer; the receipt tells when it was delivered.

        Args:
            value: a value, or a ``Message`` of one with headers, id or key.
            key: messages with equal keys go to the same partition and keep their order.
            partition_id: the partition, instead of what the producer was told.
            partitioning: the same as a ``Partitioning``.
            headers: user headers; those of the message itself win.

        Raises:
            SendFailedError: this message was not sent; in the background, one before it.
            BufferFullError: the buffer has no space, in the background.
            SerdeError: the value cannot be written.
            ProducerClosedError: the producer was closed.
        """

    async def send_many(
        self,
        values: Iterable[T | Message[T]],
        *,
        key: str | bytes | None = None,
        partition_id: int | None = None,
        partitioning: Partitioning | int | None = None,
        headers: Headers | None = None,
    ) -> Receipt:
        """Send several messages, in as few requests as the options allow.

        Args:
            values: values, or ``Message``s of them.
            key: the key of all messages that bring none.
            partition_id: the partition of all messages.
            partitioning: the same as a ``Partitioning``.
            headers: user headers of all messages; those of a message itself win.

        Raises:
            SendFailedError: some were not sent; ``messages`` are those, in order.
            BufferFullError: the buffer has no space for them, in the background.
            SerdeError: a value cannot be written; none of the messages was sent.
            ProducerClosedError: the producer was closed.
        """
        explicit = explicit_partitioning(partition_id, partitioning)
        return await self._send_all(self._route, as_list(values), key, explicit, headers)

    async def send_to(
        self,
        stream: Identifier,
        topic: Identifier,
        values: Iterable[T | Message[T]],
        partitioning: Partitioning | int | None = None,
        *,
        key: str | bytes | None = None,
        partition_id: int | None = None,
        headers: Headers | None = None,
    ) -> Receipt:
        """Send several messages to another topic, otherwise as ``send_many``."""
        explicit = explicit_partitioning(partition_id, partitioning)
        route = self._route_to(stream, topic)
        return await self._send_all(route, as_list(values), key, explicit, headers)

    async def send_one(self, value: T | Message[T]) -> Receipt:
        """Send one message; the official name of ``send``."""
        return await self.send(value)

    async def send_with_partitioning(
        self,
        values: Iterable[T | Message[T]],
        partitioning: Partitioning | int | None = None,
    ) -> Receipt:
        """Send several messages to a partition; the official name for ``send_many``."""
        return await self.send_many(values, partitioning=partitioning)

    @abstractmethod
    async def _send_all(
        self,
        route: TopicRoute,
        values: list[Any],
        key: str | bytes | None,
        explicit: Partitioning | None,
        headers: Headers | None,
    ) -> Receipt:
        """Send the messages of one call."""

    @abstractmethod
    async def flush(self) -> None:
        """Wait until all messages accepted so far were delivered or have failed.

        Raises:
            SendFailedError: some were not sent, and that was not reported yet.
        """

    # Choosing a destination

    def _route_to(self, stream: Identifier, topic: Identifier) -> TopicRoute:
        if stream == self._route.stream and topic == self._route.topic:
            return self._route
        route = self._routes.get((stream, topic))
        if route is None:
            if len(self._routes) >= ROUTES_MAX:
                del self._routes[next(iter(self._routes))]
            route = self._routes[stream, topic] = TopicRoute(self._client, stream, topic)
        return route

    def _common_destination(
        self, route: TopicRoute, originals: Sequence[Any], explicit: Partitioning | None
    ) -> Destination | None:
        """Choose where all messages of a call go; None if each goes by its own key.

        The order is: the call itself, the producer's partitioner, the key of a message, the
        producer's partitioning, the client's partitioner, round robin by the server.
        """
        if explicit is not None:
            return route.to(explicit)
        if self._own_partitioner is not None:
            number = self._own_partitioner(route.stream, route.topic, originals)
            return route.to(Partitioning.partition(number))
        if has_keys(originals):
            return None
        return self._unkeyed_destination(route, originals)

    def _unkeyed_destination(self, route: TopicRoute, originals: Sequence[Any]) -> Destination:
        if self._usual_destination is not None and route is self._route:
            return self._usual_destination
        if self._options.partitioning is not None:
            return route.to(self._options.partitioning)
        if self._last_partitioner is not None:
            number = self._last_partitioner(route.stream, route.topic, originals)
            return route.to(Partitioning.partition(number))
        return route.balanced

    def _keyed_destination(self, route: TopicRoute, original: Any) -> Destination:
        """Choose where a message goes in a call in which some have keys."""
        key = key_of(original)
        if key is None:
            return self._unkeyed_destination(route, (original,))
        return route.to_key(key_bytes(key))

    async def _transmit(
        self, destination: Destination, wires: Sequence[Any], originals: Sequence[Any]
    ) -> SendConfirmation | None:
        """Send a batch; if its partition was deleted, let the server place each key.

        If the server accepts some keys of such a batch and refuses others, the whole batch counts
        as failed.
        """
        try:
            return await self._retrying_sender.send(destination, wires)
        except PartitionNotFound:
            if not destination.is_keyed or any(key_of(original) is None for original in originals):
                raise
            route = self._route_to(destination.stream, destination.topic)
            await route.refresh_partitions(now=anyio.current_time())
            groups: dict[bytes, list[Any]] = {}
            for original, wire in zip(originals, wires, strict=True):
                groups.setdefault(key_bytes(original.key), []).append(wire)
            for key, group in groups.items():
                await self._retrying_sender.send(route.to(Partitioning.key(key)), group)
            return None

    # Lifetime

    async def __aenter__(self) -> Self:
        """Find or create the topic, and start what runs in the background.

        Raises:
            StreamNotFound, TopicNotFound: there is none, and none was to be created.
            UnsupportedByServerError: the server does not recognise messages by their ids.
        """
        route = self._route
        count = await ensure_topic(self._client, route.stream, route.topic, self._options)
        dialect = self._client.dialect
        # From 0.10 on a server recognises a repeated send by its number, whatever its messages.
        if self._options.idempotent_ids and dialect.is_vsr and not dialect.binds_sessions:
            raise UnsupportedByServerError(
                f"idempotent_ids: the server speaks {dialect}, which does not have it",
                advice=OTHER_GENERATION_ADVICE,
            )
        if count is not None:
            route.set_partitions_count(count, now=anyio.current_time())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Deliver what is in the buffer, and close the producer."""
        await self.aclose()

    async def open(self) -> Self:
        """Enter the producer without a block, as ``await client.producer()`` does.

        The same task has to call ``shutdown`` in the end.
        """
        await self.__aenter__()
        self._is_hosted_by_await = True
        return self

    @abstractmethod
    async def aclose(self) -> None:
        """Deliver what is in the buffer, and accept no further messages. May be called again.

        Raises:
            SendFailedError: messages were not sent, and that was not reported yet.
        """

    async def shutdown(self) -> None:
        """Close the producer; the official name of ``aclose``."""
        if self._is_hosted_by_await:
            self._is_hosted_by_await = False
            await self.__aexit__(None, None, None)
        else:
            await self.aclose()

    def _closed_error(self) -> ProducerClosedError:
        return ProducerClosedError(
            f"the producer of topic {self.topic!r} is closed",
            advice="Send inside the 'async with' block, or enter a new producer.",
        )

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "open"
        return f"<{type(self).__name__} to {self.stream!r}/{self.topic!r}, {state}>"


def explicit_partitioning(
    partition_id: int | None, partitioning: Partitioning | int | None
) -> Partitioning | None:
    """Return the partitioning that a call names, if any."""
    if partition_id is None:
        return None if partitioning is None else as_partitioning(partitioning)
    if partitioning is not None:
        raise InvalidRequestError(
            "partition_id and partitioning are both given", advice="Give one of them."
        )
    return Partitioning.partition(partition_id)


def is_list_of_messages(value: Any) -> bool:
    """Tell whether the value of ``send`` is a list of messages, as the official SDK allows."""
    return type(value) is list and bool(value) and isinstance(value[0], Message)


def overridden(values: list[Any], key: str | bytes | None, headers: Headers | None) -> list[Any]:
    """Apply key and headers of a call to each of its messages."""
    if key is None and not headers:
        return values
    return [with_overrides(value, key=key, headers=headers) for value in values]

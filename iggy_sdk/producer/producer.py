"""The public producer: its methods, and the choice of a destination for each message.

    async with client.producer("shop", "orders") as producer:
        await producer.send(b"one", key="customer-1")
        await producer.send_many([b"two", b"three"])

The subclasses in ``direct`` and ``background`` do the sending.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import anyio

from iggy_protocol import Identifier, LocalProtocolError, MessageRows, Partitioning
from iggy_sdk.deadline import Deadline, deadline_of
from iggy_sdk.errors import (
    OTHER_GENERATION_ADVICE,
    InvalidRequestError,
    MessageTooLargeError,
    PartitionNotFoundError,
    ProducerClosedError,
    UnsupportedByServerError,
)
from iggy_sdk.event_loop import event_loop_clock
from iggy_sdk.hooks import Hooks
from iggy_sdk.message import Headers, Message
from iggy_sdk.pipeline import Pipeline
from iggy_sdk.producer.encoder import (
    SPLIT_ADVICE,
    MessageEncoder,
    as_list,
    has_keys,
    key_of,
    with_overrides,
)
from iggy_sdk.producer.options import (
    REQUEST_BYTES_MAX,
    BackgroundMode,
    Inherited,
    ProducerOptions,
    as_partitioning,
)
from iggy_sdk.producer.retrying_sender import RetryingSender
from iggy_sdk.producer.routing import Destination, TopicRoute, ensure_topic, key_bytes
from iggy_sdk.serde import RawSerde

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType
    from typing import Self

    from iggy_protocol import SendConfirmation
    from iggy_sdk.client_interface import ClientInterface
    from iggy_sdk.durations import Seconds
    from iggy_sdk.producer.receipts import Receipt
    from iggy_sdk.statistics import ProducerStatistics


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
        own_timeout = options.request_timeout
        self._seconds_max = inherited.request_timeout if own_timeout is None else own_timeout
        self._clock: Callable[[], float] = anyio.current_time
        self._open_timeout: Seconds | None = None
        self._close_timeout: Seconds | None = None
        self._retrying_sender = RetryingSender(
            client, retry=options.retry, attempt_seconds_max=self._seconds_max
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
        # Whether rows in columns, and plain bytes, are sent without any processing.
        self._passes_rows = (
            options.compression is None
            and encryptor is None
            and not hooks.adds_headers
            and not options.idempotent_ids
        )
        self._passes_bytes = (
            self._passes_rows
            and (options.serde is None or isinstance(options.serde, RawSerde))
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

    def _deadline(self, timeout: Seconds | None) -> Deadline:
        """Begin a call: its time is for waiting, all attempts and the answer together."""
        if timeout is None:
            return Deadline(self._seconds_max, clock=self._clock)
        return deadline_of(timeout, clock=self._clock)

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
        timeout: Seconds | None = None,
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
            timeout: how long the call may take with all its attempts; None takes the
                ``request_timeout``. In the background it bounds the wait for space in the buffer,
                and None waits as the ``backpressure`` says.

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
        timeout: Seconds | None = None,
    ) -> Receipt:
        """Send several messages, in as few requests as the options allow.

        Args:
            values: values, or ``Message``s of them; or ``MessageRows``, which go as they lie in
                their columns if there is a partition, and nothing is to be done with them.
            key: the key of all messages that bring none.
            partition_id: the partition of all messages.
            partitioning: the same as a ``Partitioning``.
            headers: user headers of all messages; those of a message itself win.
            timeout: how long the call may take, as in ``send``.

        Raises:
            SendFailedError: some were not sent; ``messages`` are those, in order.
            BufferFullError: the buffer has no space for them, in the background.
            SerdeError: a value cannot be written; none of the messages was sent.
            ProducerClosedError: the producer was closed.
        """
        explicit = explicit_partitioning(partition_id, partitioning)
        if isinstance(values, MessageRows) and explicit is not None and self._passes_rows:
            destination = self._route.to(explicit)
            return await self._send_rows(destination, values, timeout)
        return await self._send_all(self._route, as_list(values), key, explicit, headers, timeout)

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
        timeout: Seconds | None = None,
    ) -> Receipt:
        """Send several messages to another topic, otherwise as ``send_many``."""
        explicit = explicit_partitioning(partition_id, partitioning)
        route = self._route_to(stream, topic)
        if isinstance(values, MessageRows) and explicit is not None and self._passes_rows:
            return await self._send_rows(route.to(explicit), values, timeout)
        return await self._send_all(route, as_list(values), key, explicit, headers, timeout)

    async def send_one(self, value: T | Message[T], *, timeout: Seconds | None = None) -> Receipt:
        """Send one message; the official name of ``send``."""
        return await self.send(value, timeout=timeout)

    async def send_with_partitioning(
        self,
        values: Iterable[T | Message[T]],
        partitioning: Partitioning | int | None = None,
        *,
        timeout: Seconds | None = None,
    ) -> Receipt:
        """Send several messages to a partition; the official name for ``send_many``."""
        return await self.send_many(values, partitioning=partitioning, timeout=timeout)

    @abstractmethod
    async def _send_rows(
        self, destination: Destination, rows: MessageRows, timeout: Seconds | None
    ) -> Receipt:
        """Send rows to one destination, in their order."""

    def _pieces_of_rows(
        self, rows: MessageRows, length: int | None, size_bytes: int | None
    ) -> list[tuple[MessageRows, int]]:
        """Divide rows among requests.

        Raises:
            MessageTooLargeError: one of them is larger than servers take.
        """
        bytes_max = REQUEST_BYTES_MAX if size_bytes is None else size_bytes
        try:
            return rows.pieces(length=length, size_bytes=bytes_max)
        except LocalProtocolError as error:
            raise MessageTooLargeError(str(error), advice=SPLIT_ADVICE) from error

    @abstractmethod
    async def _send_all(
        self,
        route: TopicRoute,
        values: list[Any],
        key: str | bytes | None,
        explicit: Partitioning | None,
        headers: Headers | None,
        timeout: Seconds | None,
    ) -> Receipt:
        """Send the messages of one call."""

    @abstractmethod
    async def flush(self, *, timeout: Seconds | None = None) -> None:
        """Wait until all messages accepted so far were delivered or have failed.

        Args:
            timeout: how long to wait; None waits until then, which ``delivery_timeout`` bounds.

        Raises:
            SendFailedError: some were not sent, and that was not reported yet.
            RequestTimeoutError: some are still on their way; nothing is lost by that.
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
        self,
        destination: Destination,
        wires: Sequence[Any],
        originals: Sequence[Any],
        deadline: Deadline,
    ) -> SendConfirmation | None:
        """Send a batch; if its partition was deleted, let the server place each key.

        If the server accepts some keys of such a batch and refuses others, the whole batch counts
        as failed.
        """
        try:
            return await self._retrying_sender.send(destination, wires, deadline)
        except PartitionNotFoundError:
            if not destination.is_keyed or any(key_of(original) is None for original in originals):
                raise
            route = self._route_to(destination.stream, destination.topic)
            await route.refresh_partitions(now=anyio.current_time(), seconds=deadline.rest())
            groups: dict[bytes, list[Any]] = {}
            for original, wire in zip(originals, wires, strict=True):
                groups.setdefault(key_bytes(original.key), []).append(wire)
            for key, group in groups.items():
                await self._retrying_sender.send(route.to(Partitioning.key(key)), group, deadline)
            return None

    # Lifetime

    async def __aenter__(self) -> Self:
        """Find or create the topic, and start what runs in the background.

        Raises:
            StreamNotFoundError, TopicNotFoundError: there is none, and none was to be created.
            UnsupportedByServerError: the server does not recognise messages by their ids.
        """
        route = self._route
        self._clock = event_loop_clock()
        deadline = self._deadline(self._open_timeout)
        count = await ensure_topic(self._client, route.stream, route.topic, self._options, deadline)
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

    async def open(self, *, timeout: Seconds | None = None) -> Self:
        """Enter the producer without a block, as ``await client.producer()`` does.

        The same task has to call ``shutdown`` in the end.

        Args:
            timeout: how long finding or creating the topic may take; None takes the
                ``request_timeout``.
        """
        self._open_timeout = timeout
        await self.__aenter__()
        self._is_hosted_by_await = True
        return self

    @abstractmethod
    async def aclose(self, *, timeout: Seconds | None = None) -> None:
        """Deliver what is in the buffer, and accept no further messages. May be called again.

        Args:
            timeout: how long delivering may take, after which the rest is given up; None waits for
                all of it, which ``delivery_timeout`` bounds.

        Raises:
            SendFailedError: messages were not sent, and that was not reported yet.
        """

    async def shutdown(self, *, timeout: Seconds | None = None) -> None:
        """Close the producer; the official name of ``aclose``."""
        if self._is_hosted_by_await:
            self._is_hosted_by_await = False
            self._close_timeout = timeout
            await self.__aexit__(None, None, None)
        else:
            await self.aclose(timeout=timeout)

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

"""The builder that ``client.producer()`` returns.

    builder = client.producer("shop", "orders").retry(Retry(attempts=5)).background()
    async with builder as producer:
        await producer.send(b"...")

A builder is a value: every method returns another one, two with equal options are equal, and one
may be entered any number of times. Each method is the keyword of the same name, and the other way
round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

import anyio

from iggy_sdk.option_checks import check_identifiers
from iggy_sdk.producer.background import BackgroundProducer
from iggy_sdk.producer.direct import DirectProducer
from iggy_sdk.producer.options import (
    BackgroundMode,
    DirectMode,
    NewTopic,
    ProducerOptions,
    apply_option,
    apply_options,
)
from iggy_sdk.value_types import P, P_contra

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType
    from typing import Unpack

    from iggy_protocol import Identifier, Partitioning
    from iggy_sdk.client_interface import ClientInterface
    from iggy_sdk.compression import Compression, CompressionName
    from iggy_sdk.durations import Seconds
    from iggy_sdk.encryption import Encryptor
    from iggy_sdk.options import Partitioner, Retry
    from iggy_sdk.producer.options import (
        BackgroundSettings,
        DirectSettings,
        NewTopicSettings,
        ProducerSettings,
    )
    from iggy_sdk.producer.producer import Producer
    from iggy_sdk.serde import Serde


class ProducerBuilder(Generic[P_contra]):
    """Options of a producer; enter it with ``async with``."""

    __slots__ = ("_client", "_entered", "_options", "_stream", "_topic")

    def __init__(
        self,
        client: ClientInterface,
        stream: Identifier,
        topic: Identifier,
        /,
        *,
        serde: Serde[P_contra] | None = None,
        **options: Unpack[ProducerSettings],
    ) -> None:
        """Take a client, a topic, and options as keywords.

        Raises:
            ConfigurationError: an option has a value that cannot be used.
            TypeError: there is no such option.
        """
        check_identifiers(stream=stream, topic=topic)
        self._client = client
        self._stream = stream
        self._topic = topic
        self._options = apply_options(ProducerOptions(), {"serde": serde, **options})
        # The producers of this builder that are entered, by task: each task leaves its own.
        self._entered: dict[int, list[Producer[P_contra]]] = {}

    @property
    def options(self) -> ProducerOptions:
        """What was collected so far."""
        return self._options

    # Options

    def mode(self, mode: DirectMode | BackgroundMode) -> ProducerBuilder[P_contra]:
        """Choose between waiting for the server and sending in the background."""
        return self._with("mode", mode)

    def direct(
        self, mode: DirectMode | None = None, **settings: Unpack[DirectSettings]
    ) -> ProducerBuilder[P_contra]:
        """Wait for the server with every call; ``settings`` are the fields of ``DirectMode``."""
        return self._with("direct", settings if mode is None else mode)

    def background(
        self, mode: BackgroundMode | None = None, **settings: Unpack[BackgroundSettings]
    ) -> ProducerBuilder[P_contra]:
        """Send in the background; ``settings`` are the fields of ``BackgroundMode``."""
        return self._with("background", settings if mode is None else mode)

    def serde(self, serde: Serde[P] | None) -> ProducerBuilder[P]:
        """Write values in this way; None takes bytes and text as they are."""
        return self._with("serde", serde)

    def encryptor(self, encryptor: Encryptor | None) -> ProducerBuilder[P_contra]:
        """Seal messages; None seals nothing, whatever the client does."""
        return self._with("encryptor", encryptor)

    def compression(
        self, compression: Compression | CompressionName | None
    ) -> ProducerBuilder[P_contra]:
        """Compress payloads."""
        return self._with("compression", compression)

    def key_header(self, key_header: bool) -> ProducerBuilder[P_contra]:
        """Say whether the key of a message travels in a header, for consumers."""
        return self._with("key_header", key_header)

    def partitioning(self, partitioning: Partitioning | int | None) -> ProducerBuilder[P_contra]:
        """Send messages here that say nothing else."""
        return self._with("partitioning", partitioning)

    def partitioner(self, partitioner: Partitioner | None) -> ProducerBuilder[P_contra]:
        """Ask this function for the partition of every call."""
        return self._with("partitioner", partitioner)

    def retry(self, retry: Retry | None) -> ProducerBuilder[P_contra]:
        """Repeat failed requests in this way; None never does."""
        return self._with("retry", retry)

    def request_timeout(self, request_timeout: Seconds | None) -> ProducerBuilder[P_contra]:
        """Let a call take this long with all its attempts; None takes what the client says."""
        return self._with("request_timeout", request_timeout)

    def idempotent_ids(self, idempotent_ids: bool = True) -> ProducerBuilder[P_contra]:
        """Give messages ids before the first attempt, for servers that deduplicate."""
        return self._with("idempotent_ids", idempotent_ids)

    def create_stream_if_not_exists(self, create: bool = True) -> ProducerBuilder[P_contra]:
        """Create the stream on entry if it is missing."""
        return self._with("create_stream_if_not_exists", create)

    def create_topic_if_not_exists(
        self, topic: NewTopic | bool | None = None, **settings: Unpack[NewTopicSettings]
    ) -> ProducerBuilder[P_contra]:
        """Create the topic on entry if it is missing; ``settings`` are fields of ``NewTopic``."""
        return self._with("create_topic_if_not_exists", settings if topic is None else topic)

    def _with(self, name: str, value: Any) -> ProducerBuilder[Any]:
        builder: ProducerBuilder[Any] = ProducerBuilder(self._client, self._stream, self._topic)
        builder._options = apply_option(self._options, name, value)
        return builder

    # Entering

    def make(self) -> Producer[P_contra]:
        """Make a producer that is still to be entered."""
        kind: type[Producer[P_contra]] = DirectProducer
        if isinstance(self._options.mode, BackgroundMode):
            kind = BackgroundProducer
        return kind(self._client, self._stream, self._topic, self._options)

    async def __aenter__(self) -> Producer[P_contra]:
        """Enter a new producer.

        Raises:
            StreamNotFoundError, TopicNotFoundError: there is none, and none was to be created.
        """
        producer = await self.make().__aenter__()
        self._entered.setdefault(anyio.get_current_task().id, []).append(producer)
        return producer

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Deliver what is in the buffer, and close the producer.

        Raises:
            SendFailedError: messages were not sent, and that was not reported yet.
        """
        task_id = anyio.get_current_task().id
        stack = self._entered[task_id]
        producer = stack.pop()
        if not stack:
            del self._entered[task_id]
        await producer.__aexit__(kind, error, trace)

    def __await__(self) -> Generator[Any, Any, Producer[P_contra]]:
        """Enter a producer without a block; the same task calls its ``shutdown`` in the end."""
        return self.make().open().__await__()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProducerBuilder):
            return NotImplemented
        return self._place() == other._place() and self._options == other._options

    def __hash__(self) -> int:
        return hash(self._place())

    def _place(self) -> tuple[int, Identifier, Identifier]:
        return id(self._client), self._stream, self._topic

    def __repr__(self) -> str:
        return f"<ProducerBuilder to {self._stream!r}/{self._topic!r}: {self._options}>"

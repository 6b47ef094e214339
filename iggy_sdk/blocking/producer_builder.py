"""The options of a blocking producer.

Made from iggy_sdk.producer.builder by ``python -m tools.blocking_facade``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iggy_sdk.blocking.producer import ProducerBuilderBase
from iggy_sdk.blocking.wrapper import T

if TYPE_CHECKING:
    from iggy_protocol import Partitioning
    from iggy_sdk.compression import Compression, CompressionName
    from iggy_sdk.durations import Seconds
    from iggy_sdk.encryption import Encryptor
    from iggy_sdk.options import Partitioner, Retry
    from iggy_sdk.producer.builder import V
    from iggy_sdk.producer.options import BackgroundMode, DirectMode, NewTopic, ProducerOptions
    from iggy_sdk.serde import Serde


class ProducerBuilder(ProducerBuilderBase[T]):
    """Options of a producer; enter it with ``async with``."""

    @property
    def options(self) -> ProducerOptions:
        """What was collected so far."""
        return self._inner.options

    def mode(self, mode: DirectMode | BackgroundMode) -> ProducerBuilder[T]:
        """Choose between waiting for the server and sending in the background."""
        return ProducerBuilder(self._loop_thread, self._inner.mode(mode))

    def direct(self, mode: DirectMode | None = None, **settings: Any) -> ProducerBuilder[T]:
        """Wait for the server with every call; ``settings`` are the fields of ``DirectMode``."""
        return ProducerBuilder(self._loop_thread, self._inner.direct(mode, **settings))

    def background(self, mode: BackgroundMode | None = None, **settings: Any) -> ProducerBuilder[T]:
        """Send in the background; ``settings`` are the fields of ``BackgroundMode``."""
        return ProducerBuilder(self._loop_thread, self._inner.background(mode, **settings))

    def serde(self, serde: Serde[V] | None) -> ProducerBuilder[V]:
        """Write values in this way; None takes bytes and text as they are."""
        return ProducerBuilder(self._loop_thread, self._inner.serde(serde))

    def encryptor(self, encryptor: Encryptor | None) -> ProducerBuilder[T]:
        """Seal messages; None seals nothing, whatever the client does."""
        return ProducerBuilder(self._loop_thread, self._inner.encryptor(encryptor))

    def compression(self, compression: Compression | CompressionName | None) -> ProducerBuilder[T]:
        """Compress payloads."""
        return ProducerBuilder(self._loop_thread, self._inner.compression(compression))

    def key_header(self, key_header: bool) -> ProducerBuilder[T]:
        """Say whether the key of a message travels in a header, for consumers."""
        return ProducerBuilder(self._loop_thread, self._inner.key_header(key_header))

    def partitioning(self, partitioning: Partitioning | int | None) -> ProducerBuilder[T]:
        """Send messages here that say nothing else."""
        return ProducerBuilder(self._loop_thread, self._inner.partitioning(partitioning))

    def partitioner(self, partitioner: Partitioner | None) -> ProducerBuilder[T]:
        """Ask this function for the partition of every call."""
        return ProducerBuilder(self._loop_thread, self._inner.partitioner(partitioner))

    def retry(self, retry: Retry | None) -> ProducerBuilder[T]:
        """Repeat failed requests in this way; None never does."""
        return ProducerBuilder(self._loop_thread, self._inner.retry(retry))

    def request_timeout(self, request_timeout: Seconds | None) -> ProducerBuilder[T]:
        """Let a call take this long with all its attempts; None takes what the client says."""
        return ProducerBuilder(self._loop_thread, self._inner.request_timeout(request_timeout))

    def idempotent_ids(self, idempotent_ids: bool = True) -> ProducerBuilder[T]:
        """Give messages ids before the first attempt, for servers that deduplicate."""
        return ProducerBuilder(self._loop_thread, self._inner.idempotent_ids(idempotent_ids))

    def create_stream_if_not_exists(self, create: bool = True) -> ProducerBuilder[T]:
        """Create the stream on entry if it is missing."""
        return ProducerBuilder(self._loop_thread, self._inner.create_stream_if_not_exists(create))

    def create_topic_if_not_exists(
        self, topic: NewTopic | bool | None = None, **settings: Any
    ) -> ProducerBuilder[T]:
        """Create the topic on entry if it is missing; ``settings`` are fields of ``NewTopic``."""
        return ProducerBuilder(
            self._loop_thread, self._inner.create_topic_if_not_exists(topic, **settings)
        )

"""The options of a blocking producer.

Made from iggy_sdk.producer.builder by ``python -m tools.blocking_facade``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from iggy_sdk.blocking.producer import ProducerBuilderBase
from iggy_sdk.value_types import P_contra

if TYPE_CHECKING:
    from iggy_protocol import Partitioning
    from iggy_sdk.compression import Compression, CompressionName
    from iggy_sdk.durations import Seconds
    from iggy_sdk.encryption import Encryptor
    from iggy_sdk.options import Partitioner, Retry
    from iggy_sdk.producer.options import (
        BackgroundMode,
        BackgroundSettings,
        DirectMode,
        DirectSettings,
        NewTopic,
        NewTopicSettings,
        ProducerOptions,
    )
    from iggy_sdk.serde import Serde
    from iggy_sdk.value_types import P


class ProducerBuilder(ProducerBuilderBase[P_contra]):
    """Options of a producer; enter it with ``async with``."""

    @property
    def options(self) -> ProducerOptions:
        """What was collected so far."""
        return self._inner.options

    def mode(self, mode: DirectMode | BackgroundMode) -> ProducerBuilder[P_contra]:
        """Choose between waiting for the server and sending in the background."""
        return ProducerBuilder(self._loop_thread, self._inner.mode(mode))

    def direct(
        self, mode: DirectMode | None = None, **settings: Unpack[DirectSettings]
    ) -> ProducerBuilder[P_contra]:
        """Wait for the server with every call; ``settings`` are the fields of ``DirectMode``."""
        return ProducerBuilder(self._loop_thread, self._inner.direct(mode, **settings))

    def background(
        self, mode: BackgroundMode | None = None, **settings: Unpack[BackgroundSettings]
    ) -> ProducerBuilder[P_contra]:
        """Send in the background; ``settings`` are the fields of ``BackgroundMode``."""
        return ProducerBuilder(self._loop_thread, self._inner.background(mode, **settings))

    def serde(self, serde: Serde[P] | None) -> ProducerBuilder[P]:
        """Write values in this way; None takes bytes and text as they are."""
        return ProducerBuilder(self._loop_thread, self._inner.serde(serde))

    def encryptor(self, encryptor: Encryptor | None) -> ProducerBuilder[P_contra]:
        """Seal messages; None seals nothing, whatever the client does."""
        return ProducerBuilder(self._loop_thread, self._inner.encryptor(encryptor))

    def compression(
        self, compression: Compression | CompressionName | None
    ) -> ProducerBuilder[P_contra]:
        """Compress payloads."""
        return ProducerBuilder(self._loop_thread, self._inner.compression(compression))

    def key_header(self, key_header: bool) -> ProducerBuilder[P_contra]:
        """Say whether the key of a message travels in a header, for consumers."""
        return ProducerBuilder(self._loop_thread, self._inner.key_header(key_header))

    def partitioning(self, partitioning: Partitioning | int | None) -> ProducerBuilder[P_contra]:
        """Send messages here that say nothing else."""
        return ProducerBuilder(self._loop_thread, self._inner.partitioning(partitioning))

    def partitioner(self, partitioner: Partitioner | None) -> ProducerBuilder[P_contra]:
        """Ask this function for the partition of every call."""
        return ProducerBuilder(self._loop_thread, self._inner.partitioner(partitioner))

    def retry(self, retry: Retry | None) -> ProducerBuilder[P_contra]:
        """Repeat failed requests in this way; None never does."""
        return ProducerBuilder(self._loop_thread, self._inner.retry(retry))

    def request_timeout(self, request_timeout: Seconds | None) -> ProducerBuilder[P_contra]:
        """Let a call take this long with all its attempts; None takes what the client says."""
        return ProducerBuilder(self._loop_thread, self._inner.request_timeout(request_timeout))

    def idempotent_ids(self, idempotent_ids: bool = True) -> ProducerBuilder[P_contra]:
        """Give messages ids before the first attempt, for servers that deduplicate."""
        return ProducerBuilder(self._loop_thread, self._inner.idempotent_ids(idempotent_ids))

    def create_stream_if_not_exists(self, create: bool = True) -> ProducerBuilder[P_contra]:
        """Create the stream on entry if it is missing."""
        return ProducerBuilder(self._loop_thread, self._inner.create_stream_if_not_exists(create))

    def create_topic_if_not_exists(
        self, topic: NewTopic | bool | None = None, **settings: Unpack[NewTopicSettings]
    ) -> ProducerBuilder[P_contra]:
        """Create the topic on entry if it is missing; ``settings`` are fields of ``NewTopic``."""
        return ProducerBuilder(
            self._loop_thread, self._inner.create_topic_if_not_exists(topic, **settings)
        )

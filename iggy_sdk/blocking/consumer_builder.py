"""The options of a blocking consumer.

Made from iggy_sdk.consumer.builder by ``python -m tools.blocking_facade``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from iggy_sdk.blocking.consumer import ConsumerBuilderBase
from iggy_sdk.blocking.wrapper import T

if TYPE_CHECKING:
    from iggy_protocol import PollingStrategy
    from iggy_sdk.consumer.auto_commit import AutoCommit
    from iggy_sdk.consumer.handover import PartitionsCallback
    from iggy_sdk.consumer.options import ConsumerOptions, Partitions
    from iggy_sdk.consumer.start import ReplayFrom, StartIfNew
    from iggy_sdk.durations import Seconds
    from iggy_sdk.encryption import Encryptor
    from iggy_sdk.serde import Serde
    from iggy_sdk.value_types import V


class ConsumerBuilder(ConsumerBuilderBase[T]):
    """Options of a consumer; enter it with ``async with``."""

    @property
    def options(self) -> ConsumerOptions:
        """What was collected so far."""
        return self._inner.options

    def partition_id(self, partition_id: Partitions) -> ConsumerBuilder[T]:
        """Read one partition, several, or ``"all"``."""
        return ConsumerBuilder(self._loop_thread, self._inner.partition_id(partition_id))

    def start_if_new(self, start_if_new: StartIfNew) -> ConsumerBuilder[T]:
        """Start here where nothing is stored yet."""
        return ConsumerBuilder(self._loop_thread, self._inner.start_if_new(start_if_new))

    def replay_from(self, replay_from: ReplayFrom | None) -> ConsumerBuilder[T]:
        """Read again from here, once, whatever is stored."""
        return ConsumerBuilder(self._loop_thread, self._inner.replay_from(replay_from))

    def commit_backwards(self, commit_backwards: bool = True) -> ConsumerBuilder[T]:
        """Let commits during a replay move back what is stored."""
        return ConsumerBuilder(self._loop_thread, self._inner.commit_backwards(commit_backwards))

    def start(self, start: PollingStrategy) -> ConsumerBuilder[T]:
        """Start the first poll of each partition here; use ``replay_from`` instead."""
        return ConsumerBuilder(self._loop_thread, self._inner.start(start))

    def polling_strategy(self, polling_strategy: PollingStrategy | None) -> ConsumerBuilder[T]:
        """Start the first poll of each partition here; use ``replay_from`` instead."""
        return ConsumerBuilder(self._loop_thread, self._inner.polling_strategy(polling_strategy))

    def commit(self, commit: AutoCommit) -> ConsumerBuilder[T]:
        """Store offsets in this way."""
        return ConsumerBuilder(self._loop_thread, self._inner.commit(commit))

    def auto_commit(self, auto_commit: AutoCommit | None) -> ConsumerBuilder[T]:
        """Store offsets in this way; the official name."""
        return ConsumerBuilder(self._loop_thread, self._inner.auto_commit(auto_commit))

    def batch_length(self, batch_length: int) -> ConsumerBuilder[T]:
        """Ask for so many messages with one poll."""
        return ConsumerBuilder(self._loop_thread, self._inner.batch_length(batch_length))

    def prefetch_messages(self, prefetch_messages: int) -> ConsumerBuilder[T]:
        """Fetch no more messages ahead than this; 0 fetches none."""
        return ConsumerBuilder(self._loop_thread, self._inner.prefetch_messages(prefetch_messages))

    def prefetch_bytes(self, prefetch_bytes: int) -> ConsumerBuilder[T]:
        """Fetch no more bytes ahead than this; 0 fetches none."""
        return ConsumerBuilder(self._loop_thread, self._inner.prefetch_bytes(prefetch_bytes))

    def poll_interval(self, poll_interval: Seconds | None) -> ConsumerBuilder[T]:
        """Leave at least this time between two polls."""
        return ConsumerBuilder(self._loop_thread, self._inner.poll_interval(poll_interval))

    def polling_retry_interval(self, polling_retry_interval: Seconds) -> ConsumerBuilder[T]:
        """Wait no longer than this before a failed poll is made again."""
        return ConsumerBuilder(
            self._loop_thread, self._inner.polling_retry_interval(polling_retry_interval)
        )

    def init_retries(
        self, init_retries: int, init_retry_interval: Seconds | None = None
    ) -> ConsumerBuilder[T]:
        """Look so often again for a stream or topic that is not there yet."""
        return ConsumerBuilder(
            self._loop_thread, self._inner.init_retries(init_retries, init_retry_interval)
        )

    def init_retry_interval(self, init_retry_interval: Seconds) -> ConsumerBuilder[T]:
        """Wait this long between two looks."""
        return ConsumerBuilder(
            self._loop_thread, self._inner.init_retry_interval(init_retry_interval)
        )

    def allow_replay(self, allow_replay: bool = True) -> ConsumerBuilder[T]:
        """Deliver again what the server sends again."""
        return ConsumerBuilder(self._loop_thread, self._inner.allow_replay(allow_replay))

    def until_end(self, until_end: bool = True) -> ConsumerBuilder[T]:
        """End once every partition was read to its end."""
        return ConsumerBuilder(self._loop_thread, self._inner.until_end(until_end))

    def create_consumer_group_if_not_exists(self, create: bool = True) -> ConsumerBuilder[T]:
        """Make the group if it is missing."""
        return ConsumerBuilder(
            self._loop_thread, self._inner.create_consumer_group_if_not_exists(create)
        )

    def auto_join_consumer_group(self, join: bool = True) -> ConsumerBuilder[T]:
        """Join the group, and join it again when that is needed."""
        return ConsumerBuilder(self._loop_thread, self._inner.auto_join_consumer_group(join))

    def on_assigned(self, on_assigned: PartitionsCallback | None) -> ConsumerBuilder[T]:
        """Call this with partitions that the consumer gets."""
        return ConsumerBuilder(self._loop_thread, self._inner.on_assigned(on_assigned))

    def on_revoked(self, on_revoked: PartitionsCallback | None) -> ConsumerBuilder[T]:
        """Call this with partitions that go, before they are handed over where that is known."""
        return ConsumerBuilder(self._loop_thread, self._inner.on_revoked(on_revoked))

    def connection(self, connection: Literal["own", "shared"]) -> ConsumerBuilder[T]:
        """Use a connection of its own, or that of the client."""
        return ConsumerBuilder(self._loop_thread, self._inner.connection(connection))

    def close_timeout(self, close_timeout: Seconds | None) -> ConsumerBuilder[T]:
        """Take no longer than this to close."""
        return ConsumerBuilder(self._loop_thread, self._inner.close_timeout(close_timeout))

    def serde(self, serde: Serde[V] | None) -> ConsumerBuilder[V]:
        """Read values in this way; None takes bytes as they are."""
        return ConsumerBuilder(self._loop_thread, self._inner.serde(serde))

    def encryptor(self, encryptor: Encryptor | None) -> ConsumerBuilder[T]:
        """Open sealed messages; None opens nothing, whatever the client does."""
        return ConsumerBuilder(self._loop_thread, self._inner.encryptor(encryptor))

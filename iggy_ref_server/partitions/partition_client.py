"""The client of a partition: one interface for partitions of this shard and of other shards.

Handlers and the request scheduler use a ``PartitionClient``. For a partition of this shard it calls
the partition directly; for others it sends shard messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from iggy_ref_server.partitions.steps import Steps, run_async

if TYPE_CHECKING:
    from collections.abc import Callable

    from iggy_protocol import BatchShape
    from iggy_ref_server.completion import Completion
    from iggy_ref_server.partitions.offsets import OffsetKey
    from iggy_ref_server.partitions.partition import PartitionLog
    from iggy_ref_server.partitions.poll_plan import PollParams, PollResult


class ConsumerProgress(NamedTuple):
    """The last offset of a partition, and the stored offset of a consumer in it."""

    current_offset: int
    stored_offset: int | None


class PartitionClient(Protocol):
    """The requests that a partition serves."""

    @property
    def shard_id(self) -> int | None:
        """The id of the other shard that owns the partition; None for this shard."""

    @property
    def is_backlogged(self) -> bool:
        """Whether too many bytes wait to be written, so that senders have to wait."""

    def stage(self, body: memoryview, shape: BatchShape) -> Completion:
        """Take an inspected SendMessages body; nothing is promised before it is done.

        Raises:
            ServerFault: the partition takes no messages.
        """

    def poll(self, request: PollParams, *, auto_commit: bool) -> Steps[PollResult]:
        """Read messages, and store the offset of the last one if asked."""

    async def progress(self, key: OffsetKey) -> ConsumerProgress:
        """Return the stored offset of a consumer."""

    async def store_offset(self, key: OffsetKey, offset: int) -> None:
        """Store the offset of a consumer."""

    async def delete_offset(self, key: OffsetKey) -> None:
        """Forget the offset of a consumer."""

    async def flush(self, *, fsync: bool) -> None:
        """Write what is only in memory, and sync it if asked."""

    async def delete_segments(self, count: int) -> None:
        """Delete the oldest closed segments."""


class LocalPartition:
    """A partition of this shard.

    Args:
        partition: the partition.
        on_staged: called after a batch was staged, so that it is committed soon.
    """

    __slots__ = ("_on_staged", "_partition")

    def __init__(self, partition: PartitionLog, on_staged: Callable[[PartitionLog], None]) -> None:
        self._partition = partition
        self._on_staged = on_staged

    @property
    def shard_id(self) -> None:
        return None

    @property
    def is_backlogged(self) -> bool:
        return self._partition.is_backlogged

    def stage(self, body: memoryview, shape: BatchShape) -> Completion:
        pending = self._partition.stage(body, shape)
        self._on_staged(self._partition)
        return pending

    def poll(self, request: PollParams, *, auto_commit: bool) -> Steps[PollResult]:
        polled = yield from self._partition.poll(request)
        if auto_commit and polled.last_offset is not None:
            assert request.consumer is not None
            yield from self._partition.store_offset(request.consumer, polled.last_offset)
        return polled

    async def progress(self, key: OffsetKey) -> ConsumerProgress:
        current = self._partition.statistics().current_offset
        return ConsumerProgress(current, self._partition.stored_offset(key))

    async def store_offset(self, key: OffsetKey, offset: int) -> None:
        await run_async(self._partition.store_offset(key, offset))

    async def delete_offset(self, key: OffsetKey) -> None:
        await self._partition.delete_offset(key)

    async def flush(self, *, fsync: bool) -> None:
        await self._partition.flush(fsync=fsync)

    async def delete_segments(self, count: int) -> None:
        await self._partition.delete_segments(count)

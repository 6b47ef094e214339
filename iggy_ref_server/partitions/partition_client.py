"""The client of a partition: one interface for partitions of this shard and of other shards.

Handlers and the request scheduler use a ``PartitionClient``. For a partition of this shard it calls
the partition directly; for others it sends shard messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from iggy_protocol import PollingKind
from iggy_ref_server.completion import Completion
from iggy_ref_server.partitions.repeated_writes import (
    delete_offset_once,
    stage_once,
    stage_run,
    store_offset_once,
)
from iggy_ref_server.partitions.steps import Steps, run_async

if TYPE_CHECKING:
    from collections.abc import Callable

    from iggy_protocol import BatchShape, PollingStrategy, ProducerSequence, SendRun
    from iggy_ref_server.completion import Wait
    from iggy_ref_server.partitions.offsets import OffsetKey
    from iggy_ref_server.partitions.partition import PartitionLog
    from iggy_ref_server.partitions.poll_plan import PollParams, PollResult
    from iggy_ref_server.partitions.write_receipts import RecordedWrite, WriteId


class ConsumerProgress(NamedTuple):
    """The messages of a partition, and the stored offset of a consumer in it.

    Attributes:
        current_offset: the highest offset, 0 while there never was a message.
        stored_offset: what is stored for the consumer; None when nothing is.
        first_offset: the offset of the oldest message.
        end_offset: the offset behind the newest message; the first one if there is none.
    """

    current_offset: int
    stored_offset: int | None
    first_offset: int
    end_offset: int

    def available(self, start: int) -> int:
        """Return how many messages there are from an offset on."""
        return max(0, self.end_offset - max(start, self.first_offset))

    def start_of(self, strategy: PollingStrategy) -> int:
        """Return where a poll begins by an offset or behind the stored one."""
        if strategy.kind is not PollingKind.NEXT:
            return strategy.value
        return 0 if self.stored_offset is None else self.stored_offset + 1


class ConfirmedAppend(Completion):
    """The completion of one batch, which tells where its messages are.

    Attributes:
        base_offset: the offset of the first message, once the batch is committed; None if all its
            messages were duplicates of earlier ones.
        is_new: whether it is known to repeat no earlier write; only partitions of this shard know.
    """

    __slots__ = ("base_offset", "is_new")

    def __init__(self, base_offset: int | None = None, *, is_new: bool = False) -> None:
        super().__init__()
        self.base_offset = base_offset
        self.is_new = is_new


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

    def stage_confirmed(
        self,
        body: memoryview,
        shape: BatchShape,
        write: WriteId,
        producer: ProducerSequence | None = None,
    ) -> ConfirmedAppend:
        """Take a body as ``stage`` does once, and tell where its messages are when it is done.

        Args:
            body: a whole inspected SendMessages body.
            shape: what the inspection found.
            write: identifies the send; a repeat of it gets the same result.
            producer: the position of the batch in what an idempotent producer sends.

        Raises:
            ServerFault: the partition takes no messages, or not this batch any more.
        """

    def poll(self, request: PollParams, *, auto_commit: bool) -> Steps[PollResult]:
        """Read messages, and store the offset of the last one if asked."""

    def wait_for(self, offset: int) -> Wait:
        """Wait for a message with this offset or a later one; the caller cancels the wait.

        Raises:
            ServerFault: it cannot be waited for; a wait may also end with such a fault.
        """

    async def progress(self, key: OffsetKey) -> ConsumerProgress:
        """Return the stored offset of a consumer."""

    async def store_offset(self, key: OffsetKey, offset: int, write: WriteId | None = None) -> None:
        """Store the offset of a consumer; a repeat of the same write changes nothing."""

    def store_polled(self, key: OffsetKey, offset: int) -> Steps[None]:
        """Store the offset of a message that a poll delivers."""

    async def delete_offset(self, key: OffsetKey, write: WriteId | None = None) -> None:
        """Forget the offset of a consumer; a repeat of the same write changes nothing."""

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

    def stage_confirmed(
        self,
        body: memoryview,
        shape: BatchShape,
        write: WriteId,
        producer: ProducerSequence | None = None,
    ) -> ConfirmedAppend:
        staged = stage_once(self._partition, body, shape, write, producer)
        self._on_staged(self._partition)
        return self._confirm(staged, is_new=not staged.is_repeat)

    def stage_run(self, messages: memoryview, run: SendRun, *, session: int) -> ConfirmedAppend:
        """Take the sends that follow a new one of the same session, as one batch.

        Raises:
            ServerFault: the partition takes no messages.
        """
        staged = stage_run(self._partition, messages, run, session)
        self._on_staged(self._partition)
        return self._confirm(staged, is_new=True)

    def _confirm(self, staged: RecordedWrite, *, is_new: bool) -> ConfirmedAppend:
        pending = ConfirmedAppend(staged.base_offset, is_new=is_new)
        staged.pending.add_done_callback(lambda done: pending.finish(done.fault))
        return pending

    def poll(self, request: PollParams, *, auto_commit: bool) -> Steps[PollResult]:
        polled = yield from self._partition.poll(request)
        if auto_commit and polled.last_offset is not None:
            assert request.consumer is not None
            yield from self.store_polled(request.consumer, polled.last_offset)
        return polled

    def wait_for(self, offset: int) -> Wait:
        return self._partition.wait_for(offset)

    async def progress(self, key: OffsetKey) -> ConsumerProgress:
        current_offset = self._partition.statistics().current_offset
        kept = self._partition.kept_offsets()
        return ConsumerProgress(
            current_offset, self._partition.stored_offset(key), kept.start, kept.stop
        )

    async def store_offset(self, key: OffsetKey, offset: int, write: WriteId | None = None) -> None:
        if write is None:
            await run_async(self._partition.store_offset(key, offset))
        else:
            await run_async(store_offset_once(self._partition, key, offset, write))

    def store_polled(self, key: OffsetKey, offset: int) -> Steps[None]:
        return self._partition.store_offset(key, offset)

    async def delete_offset(self, key: OffsetKey, write: WriteId | None = None) -> None:
        if write is None:
            await self._partition.delete_offset(key)
        else:
            await delete_offset_once(self._partition, key, write)

    async def flush(self, *, fsync: bool) -> None:
        await self._partition.flush(fsync=fsync)

    async def delete_segments(self, count: int) -> None:
        await self._partition.delete_segments(count)

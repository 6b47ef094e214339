"""Calls to other shards: a remote partition, consumer groups on shard 0, the view of all shards.

``RemotePartition`` has the interface of a local partition and makes a call of each method. Appends
are sent without waiting, so they arrive in the sequence of the client's sends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_ref_server.faults import ServerFault
from iggy_ref_server.partitions import OffsetKey, Polled, PollRequest
from iggy_ref_server.partitions.door import Progress
from iggy_ref_server.pending import Pending
from iggy_ref_server.shard import letters

if TYPE_CHECKING:
    from iggy_protocol import BatchShape
    from iggy_ref_server.shard.wall import Hatch

__all__ = ["RemoteDoor"]


class RemoteDoor:
    """A partition of another shard.

    Args:
        shard_id: the owner.
        hatch: the channel to the owner.
        partition: identifies the partition there.
    """

    __slots__ = ("_hatch", "_partition", "shard_id")

    def __init__(self, shard_id: int, hatch: Hatch, partition: letters.Partition) -> None:
        self.shard_id = shard_id
        self._hatch = hatch
        self._partition = partition

    @property
    def is_clogged(self) -> bool:
        """Whether the channel to the owner is full."""
        return self._hatch.is_full

    def stage(self, body: memoryview, shape: BatchShape) -> Pending:
        pending = Pending()

        def answered(letter: letters.Letter, _: memoryview) -> None:
            if isinstance(letter, letters.Fault):
                pending.finish(ServerFault(letter.status, letter.message))
            else:
                pending.finish()

        self._hatch.post(letters.Append(self._partition, shape), [body], answered)
        return pending

    def poll_now(self, request: PollRequest, *, auto_commit: bool) -> Polled | None:
        return None

    async def poll(self, request: PollRequest, *, auto_commit: bool) -> Polled:
        consumer = request.consumer
        letter, payload = await self._hatch.ask(
            letters.Poll(
                self._partition,
                strategy_kind=request.strategy.kind,
                strategy_value=request.strategy.value,
                count=request.count,
                size_max_bytes=request.in_memory.size_max_bytes,
                consumer_kind=consumer.kind if consumer else 0,
                consumer_id=consumer.id if consumer else 0,
                auto_commit=auto_commit,
            )
        )
        assert isinstance(letter, letters.PolledReply)
        return Polled(
            current_offset=letter.current_offset,
            messages_count=letter.messages_count,
            size_bytes=payload.nbytes,
            parts=(payload,) if payload.nbytes else (),
            last_offset=letter.last_offset,
        )

    async def progress(self, key: OffsetKey) -> Progress:
        letter = letters.ChangeOffset(self._partition, key.kind, key.id)
        stored, _ = await self._hatch.ask(letter)
        assert isinstance(stored, letters.Stored)
        return Progress(stored.current_offset, stored.stored_offset)

    async def store_offset(self, key: OffsetKey, offset: int) -> None:
        await self._hatch.ask(
            letters.ChangeOffset(self._partition, key.kind, key.id, offset, action="store")
        )

    async def delete_offset(self, key: OffsetKey) -> None:
        await self._hatch.ask(
            letters.ChangeOffset(self._partition, key.kind, key.id, action="delete")
        )

    async def flush(self, *, fsync: bool) -> None:
        await self._hatch.ask(letters.Tend(self._partition, action="flush", fsync=fsync))

    async def delete_segments(self, count: int) -> None:
        await self._hatch.ask(
            letters.Tend(self._partition, action="delete_segments", segments_count=count)
        )

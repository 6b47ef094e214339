"""Calls to other shards: a remote partition, and the view of all shards.

``RemotePartition`` has the interface of a local partition and makes a call of each method. Appends
are sent without waiting, so they arrive in the sequence of the client's sends. A wait is parked:
the other shard replies when it is over, and is told if nobody waits any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from iggy_protocol import (
    BatchShape,
    Dialect,
    PartitionContext,
    RequestId,
    SessionBinding,
    Transport,
)
from iggy_ref_server.completion import Completion, Wait
from iggy_ref_server.dispatch.context import StatisticsByPartition
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.partitions.partition import PartitionStatistics
from iggy_ref_server.partitions.partition_client import ConfirmedAppend, ConsumerProgress
from iggy_ref_server.partitions.poll_plan import PollParams, PollResult
from iggy_ref_server.partitions.steps import Await, Steps
from iggy_ref_server.session import ClientSession
from iggy_ref_server.shard import messages
from iggy_ref_server.shard.partition_directory import PartitionDirectory, PartitionKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iggy_protocol import ProducerSequence
    from iggy_ref_server.clients import ClientTable
    from iggy_ref_server.partitions.offsets import OffsetKey
    from iggy_ref_server.partitions.write_receipts import WriteId
    from iggy_ref_server.shard.channel import ShardChannel


OFFSET_MAX: Final = (1 << 64) - 1
"""No message ever gets it."""


def park(channel: ShardChannel, message: messages.ShardMessage) -> Wait:
    """Have another shard wait for something; the wait ends with its reply."""
    call_id = 0

    def on_reply(reply: messages.ShardMessage, _: memoryview) -> None:
        if isinstance(reply, messages.FaultReply):
            wait.finish(ServerFault(reply.status, reply.message))
        else:
            wait.finish()

    def on_cancel(_: Wait) -> None:
        # The other shard replies to both calls.
        channel.call_nowait(messages.CancelWaitCall(call_id), (), lambda *_: None)

    wait = Wait(on_cancel)
    call_id = channel.park(message, on_reply)
    return wait


class RemotePartition:
    """A partition of another shard.

    Args:
        shard_id: the owner.
        channel: the channel to the owner.
        partition: identifies the partition there.
    """

    __slots__ = ("_channel", "_partition", "shard_id")

    def __init__(
        self, shard_id: int, channel: ShardChannel, partition: messages.PartitionRef
    ) -> None:
        self.shard_id = shard_id
        self._channel = channel
        self._partition = partition

    @property
    def is_backlogged(self) -> bool:
        """Whether the channel to the owner is full."""
        return self._channel.is_full

    def stage(self, body: memoryview, shape: BatchShape) -> Completion:
        pending = Completion()

        def on_reply(message: messages.ShardMessage, _: memoryview) -> None:
            if isinstance(message, messages.FaultReply):
                pending.finish(ServerFault(message.status, message.message))
            else:
                pending.finish()

        self._channel.call_nowait(messages.AppendCall(self._partition, shape), [body], on_reply)
        return pending

    def stage_confirmed(
        self,
        body: memoryview,
        shape: BatchShape,
        write: WriteId,
        producer: ProducerSequence | None = None,
    ) -> ConfirmedAppend:
        pending = ConfirmedAppend()

        def on_reply(message: messages.ShardMessage, _: memoryview) -> None:
            if isinstance(message, messages.FaultReply):
                pending.finish(ServerFault(message.status, message.message))
            else:
                assert isinstance(message, messages.AppendReply)
                pending.base_offset = message.base_offset
                pending.finish()

        call = messages.AppendCall(self._partition, shape, write, producer)
        self._channel.call_nowait(call, [body], on_reply)
        return pending

    def poll(self, request: PollParams, *, auto_commit: bool) -> Steps[PollResult]:
        consumer = request.consumer
        message, payload = yield Await(
            self._channel.call,
            messages.PollCall(
                self._partition,
                strategy_kind=request.strategy.kind,
                strategy_value=request.strategy.value,
                count=request.count,
                size_max_bytes=request.limited_to_memory.size_max_bytes,
                consumer_kind=consumer.kind if consumer else 0,
                consumer_id=consumer.id if consumer else 0,
                auto_commit=auto_commit,
            ),
        )
        assert isinstance(message, messages.PollReply)
        return PollResult(
            current_offset=message.current_offset,
            messages_count=message.messages_count,
            size_bytes=payload.nbytes,
            parts=(payload,) if payload.nbytes else (),
            last_offset=message.last_offset,
            next_offset=message.next_offset,
        )

    def wait_for(self, offset: int) -> Wait:
        # A client may name any offset, and some messages behind it.
        known = min(offset, OFFSET_MAX)
        return park(self._channel, messages.WaitForMessageCall(self._partition, known))

    async def progress(self, key: OffsetKey) -> ConsumerProgress:
        message = messages.OffsetCall(self._partition, key.kind, key.id)
        stored, _ = await self._channel.call(message)
        assert isinstance(stored, messages.OffsetReply)
        return ConsumerProgress(
            stored.current_offset, stored.stored_offset, stored.first_offset, stored.end_offset
        )

    async def store_offset(self, key: OffsetKey, offset: int, write: WriteId | None = None) -> None:
        await self._channel.call(
            messages.OffsetCall(self._partition, key.kind, key.id, offset, "store", write)
        )

    def store_polled(self, key: OffsetKey, offset: int) -> Steps[None]:
        yield Await(self.store_offset, key, offset)

    async def delete_offset(self, key: OffsetKey, write: WriteId | None = None) -> None:
        await self._channel.call(
            messages.OffsetCall(self._partition, key.kind, key.id, None, "delete", write)
        )

    async def flush(self, *, fsync: bool) -> None:
        await self._channel.call(
            messages.MaintainPartitionCall(self._partition, action="flush", fsync=fsync)
        )

    async def delete_segments(self, count: int) -> None:
        await self._channel.call(
            messages.MaintainPartitionCall(
                self._partition, action="delete_segments", segments_count=count
            )
        )


# Statistics of partitions and clients, gathered from all shards.
#
# Each shard reports its own; the calling shard puts the parts together.


def describe_session(session: ClientSession) -> messages.SessionInfo:
    """Describe a session for another shard."""
    return messages.SessionInfo(
        session.client_id,
        session.address,
        session.transport,
        session.user_id,
        session.user_generation,
        session.is_evicted,
        _describe_binding(session.binding),
        session.attached_session,
    )


def _describe_binding(binding: SessionBinding | None) -> messages.BindingInfo | None:
    if binding is None:
        return None
    return messages.BindingInfo(binding.dialect.name, binding.client, binding.session)


def restore_session(session_info: messages.SessionInfo) -> ClientSession:
    """Make a session from the description by another shard."""
    return ClientSession(
        client_id=session_info.client_id,
        address=session_info.address,
        transport=Transport(session_info.transport),
        user_id=session_info.user_id,
        user_generation=session_info.user_generation,
        binding=_restore_binding(session_info),
        attached_session=session_info.attached_session,
        is_evicted=session_info.is_evicted,
    )


def _restore_binding(session_info: messages.SessionInfo) -> SessionBinding | None:
    bound, user_id = session_info.binding, session_info.user_id
    if bound is None or user_id is None:
        return None
    return SessionBinding(Dialect[bound.dialect], bound.client, bound.session, user_id)


def describe_request(request_id: RequestId) -> messages.RequestInfo:
    """Describe what tells a request from all others."""
    context = request_id.context
    return messages.RequestInfo(
        request_id.dialect.name,
        request_id.client,
        request_id.session,
        request_id.number,
        request_id.identifier,
        (context.incarnation, context.owner_generation, context.metadata_position),
    )


def restore_request(request_info: messages.RequestInfo) -> RequestId:
    """Return what another shard has described."""
    return RequestId(
        request_info.client,
        request_info.session,
        request_info.number,
        request_info.identifier,
        PartitionContext(*request_info.context),
        Dialect[request_info.dialect],
    )


class ShardClusterView:
    """Gathers statistics and clients of all shards.

    Args:
        directory: the partitions of this shard.
        clients: the clients of this shard.
        channels: the channels to the other shards.
    """

    def __init__(
        self,
        directory: PartitionDirectory,
        clients: ClientTable,
        channels: Mapping[int, ShardChannel],
    ) -> None:
        self._directory = directory
        self._clients = clients
        self._channels = channels

    # This shard

    def local_totals(self) -> messages.PartitionTotals:
        """Return the statistics of the partitions of this shard."""
        return messages.PartitionTotals(
            tuple((*key, *partition.statistics()) for key, partition in self._directory)
        )

    def local_clients(self) -> messages.ConnectedClients:
        """Return the clients of this shard that are not evicted."""
        sessions = (client.session for client in self._clients)
        return messages.ConnectedClients(
            tuple(describe_session(session) for session in sessions if not session.is_evicted)
        )

    # All shards

    async def statistics(self) -> StatisticsByPartition:
        found = StatisticsByPartition()
        for totals in [self.local_totals(), *await self._call_all(messages.PartitionTotals())]:
            assert isinstance(totals, messages.PartitionTotals)
            for row in totals.partitions:
                found[PartitionKey(*row[:3])] = PartitionStatistics(*row[3:])
        return found

    async def sessions(self) -> list[ClientSession]:
        found: list[ClientSession] = []
        for clients in [self.local_clients(), *await self._call_all(messages.ConnectedClients())]:
            assert isinstance(clients, messages.ConnectedClients)
            found += map(restore_session, clients.clients)
        return found

    async def _call_all(self, message: messages.ShardMessage) -> list[messages.ShardMessage]:
        replies: list[messages.ShardMessage] = []

        async def call(channel: ShardChannel) -> None:
            replies.append((await channel.call(message))[0])

        async with trio.open_nursery() as nursery:
            for channel in self._channels.values():
                nursery.start_soon(call, channel)
        return replies

"""Calls to other shards: a remote partition, consumer groups on shard 0, the view of all shards.

``RemotePartition`` has the interface of a local partition and makes a call of each method. Appends
are sent without waiting, so they arrive in the sequence of the client's sends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from iggy_protocol import BatchShape, Transport
from iggy_ref_server.completion import Completion
from iggy_ref_server.dispatch.context import StatisticsByPartition
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.groups.group import GroupKey, GroupRegistry, PollGrant
from iggy_ref_server.partitions.partition import PartitionStatistics
from iggy_ref_server.partitions.partition_client import ConsumerProgress
from iggy_ref_server.partitions.poll_plan import PollParams, PollResult
from iggy_ref_server.partitions.steps import Await, Steps
from iggy_ref_server.session import ClientSession
from iggy_ref_server.shard import messages
from iggy_ref_server.shard.partition_directory import PartitionDirectory, PartitionKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from iggy_ref_server.clients import ClientTable
    from iggy_ref_server.partitions.offsets import OffsetKey
    from iggy_ref_server.shard.channel import ShardChannel


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
        )

    async def progress(self, key: OffsetKey) -> ConsumerProgress:
        message = messages.OffsetCall(self._partition, key.kind, key.id)
        stored, _ = await self._channel.call(message)
        assert isinstance(stored, messages.OffsetReply)
        return ConsumerProgress(stored.current_offset, stored.stored_offset)

    async def store_offset(self, key: OffsetKey, offset: int) -> None:
        await self._channel.call(
            messages.OffsetCall(self._partition, key.kind, key.id, offset, action="store")
        )

    async def delete_offset(self, key: OffsetKey) -> None:
        await self._channel.call(
            messages.OffsetCall(self._partition, key.kind, key.id, action="delete")
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


# Consumer groups for polls and offset commands, on any shard.
#
# The groups live on shard 0. ``LocalGroups`` uses them directly there; ``RemoteGroups`` has the
# same methods and calls shard 0.


class LocalGroups:
    """The consumer groups, on shard 0."""

    def __init__(self, registry: GroupRegistry) -> None:
        self._registry = registry

    async def resolve_poll(
        self, key: GroupKey, client_id: int, partition_id: int | None
    ) -> PollGrant | None:
        return self._registry.require(key).resolve_poll(client_id, partition_id)

    async def deliver(
        self, key: GroupKey, client_id: int, grant: PollGrant, last_offset: int
    ) -> bool:
        group = self._registry.find(key)
        if group is None or not group.confirm(grant):
            return False
        group.record_polled(client_id, grant.partition, last_offset)
        return True

    async def resolve_commit(self, key: GroupKey, client_id: int, partition_id: int | None) -> int:
        return self._registry.require(key).resolve_commit(client_id, partition_id)

    async def committed(self, key: GroupKey, partition_id: int, offset: int | None) -> None:
        group = self._registry.find(key)
        if group is not None:
            group.record_committed(partition_id, offset)

    async def memberships(self, client_ids: Iterable[int]) -> Mapping[int, tuple[GroupKey, ...]]:
        return {client_id: self._registry.memberships(client_id) for client_id in client_ids}


class RemoteGroups:
    """The consumer groups, from every other shard."""

    def __init__(self, channel: ShardChannel) -> None:
        self._channel = channel

    async def resolve_poll(
        self, key: GroupKey, client_id: int, partition_id: int | None
    ) -> PollGrant | None:
        message = messages.ResolveMemberCall(*key, client_id, partition_id, purpose="poll")
        reply, _ = await self._channel.call(message)
        assert isinstance(reply, messages.MemberPartitionReply)
        return None if reply.partition_id is None else PollGrant(reply.partition_id, reply.epoch)

    async def deliver(
        self, key: GroupKey, client_id: int, grant: PollGrant, last_offset: int
    ) -> bool:
        reply, _ = await self._channel.call(
            messages.MemberPolledCall(*key, client_id, *grant, polled_offset=last_offset)
        )
        assert isinstance(reply, messages.MemberPartitionReply)
        return reply.partition_id is not None

    async def resolve_commit(self, key: GroupKey, client_id: int, partition_id: int | None) -> int:
        message = messages.ResolveMemberCall(*key, client_id, partition_id, purpose="commit")
        reply, _ = await self._channel.call(message)
        assert isinstance(reply, messages.MemberPartitionReply)
        assert reply.partition_id is not None
        return reply.partition_id

    async def committed(self, key: GroupKey, partition_id: int, offset: int | None) -> None:
        await self._channel.call(messages.GroupCommittedCall(*key, partition_id, offset))

    async def memberships(self, client_ids: Iterable[int]) -> Mapping[int, tuple[GroupKey, ...]]:
        reply, _ = await self._channel.call(messages.GroupMemberships(client_ids=tuple(client_ids)))
        assert isinstance(reply, messages.GroupMemberships)
        found: dict[int, tuple[GroupKey, ...]] = {}
        for client_id, *key in reply.memberships:
            found[client_id] = (*found.get(client_id, ()), GroupKey(*key))
        return found


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
    )


def restore_session(session_info: messages.SessionInfo) -> ClientSession:
    """Make a session from the description by another shard."""
    return ClientSession(
        client_id=session_info.client_id,
        address=session_info.address,
        transport=Transport(session_info.transport),
        user_id=session_info.user_id,
        user_generation=session_info.user_generation,
        is_evicted=session_info.is_evicted,
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

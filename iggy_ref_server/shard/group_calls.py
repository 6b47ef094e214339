"""The consumer groups, as every shard reaches them: both ends of each call.

The groups live on shard 0. ``LocalGroups`` uses them directly there; ``RemoteGroups`` has the same
methods and calls shard 0, where the functions below them answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_ref_server.completion import Wait
from iggy_ref_server.groups.group import ClaimPurpose, GroupKey, GroupRegistry, PollGrant
from iggy_ref_server.shard import messages
from iggy_ref_server.shard.calls import park

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from iggy_ref_server.shard.channel import ShardChannel


class LocalGroups:
    """The consumer groups, on shard 0."""

    def __init__(self, registry: GroupRegistry) -> None:
        self._registry = registry

    async def resolve_poll(
        self, key: GroupKey, member_id: int, partition_id: int | None
    ) -> PollGrant | None:
        return self._registry.require(key).resolve_poll(member_id, partition_id)

    async def claim(
        self, key: GroupKey, member_id: int, named: Sequence[PollGrant], purpose: ClaimPurpose
    ) -> list[PollGrant | None]:
        group = self._registry.require(key)
        return [
            group.claim(member_id, partition, epoch=epoch, purpose=purpose)
            for partition, epoch in named
        ]

    def watch(self, key: GroupKey, grants: Sequence[PollGrant]) -> Wait:
        return watch_grants(self._registry, key, grants)

    async def deliver(
        self, key: GroupKey, member_id: int, grant: PollGrant, last_offset: int
    ) -> bool:
        group = self._registry.find(key)
        if group is None or not group.confirm(grant):
            return False
        group.record_polled(member_id, grant.partition, last_offset)
        return True

    async def resolve_commit(self, key: GroupKey, member_id: int, partition_id: int | None) -> int:
        return self._registry.require(key).resolve_commit(member_id, partition_id)

    async def committed(self, key: GroupKey, partition_id: int, offset: int | None) -> None:
        group = self._registry.find(key)
        if group is not None:
            group.record_committed(partition_id, offset)

    async def memberships(self, member_ids: Iterable[int]) -> Mapping[int, tuple[GroupKey, ...]]:
        return {member_id: self._registry.memberships(member_id) for member_id in member_ids}


class RemoteGroups:
    """The consumer groups, from every other shard."""

    def __init__(self, channel: ShardChannel) -> None:
        self._channel = channel

    async def resolve_poll(
        self, key: GroupKey, member_id: int, partition_id: int | None
    ) -> PollGrant | None:
        message = messages.ResolveMemberCall(*key, member_id, partition_id, purpose="poll")
        reply, _ = await self._channel.call(message)
        assert isinstance(reply, messages.MemberPartitionReply)
        return None if reply.partition_id is None else PollGrant(reply.partition_id, reply.epoch)

    async def claim(
        self, key: GroupKey, member_id: int, named: Sequence[PollGrant], purpose: ClaimPurpose
    ) -> list[PollGrant | None]:
        message = messages.ClaimCall(*key, member_id, tuple(named), purpose.value)
        reply, _ = await self._channel.call(message)
        assert isinstance(reply, messages.ClaimReply)
        return [
            None if epoch is None else PollGrant(partition, epoch)
            for (partition, _), epoch in zip(named, reply.epochs, strict=True)
        ]

    def watch(self, key: GroupKey, grants: Sequence[PollGrant]) -> Wait:
        return park(self._channel, messages.WatchOwnershipCall(*key, tuple(grants)))

    async def deliver(
        self, key: GroupKey, member_id: int, grant: PollGrant, last_offset: int
    ) -> bool:
        reply, _ = await self._channel.call(
            messages.MemberPolledCall(*key, member_id, *grant, polled_offset=last_offset)
        )
        assert isinstance(reply, messages.MemberPartitionReply)
        return reply.partition_id is not None

    async def resolve_commit(self, key: GroupKey, member_id: int, partition_id: int | None) -> int:
        message = messages.ResolveMemberCall(*key, member_id, partition_id, purpose="commit")
        reply, _ = await self._channel.call(message)
        assert isinstance(reply, messages.MemberPartitionReply)
        assert reply.partition_id is not None
        return reply.partition_id

    async def committed(self, key: GroupKey, partition_id: int, offset: int | None) -> None:
        await self._channel.call(messages.GroupCommittedCall(*key, partition_id, offset))

    async def memberships(self, member_ids: Iterable[int]) -> Mapping[int, tuple[GroupKey, ...]]:
        reply, _ = await self._channel.call(messages.GroupMemberships(member_ids=tuple(member_ids)))
        assert isinstance(reply, messages.GroupMemberships)
        found: dict[int, tuple[GroupKey, ...]] = {}
        for member_id, *key in reply.memberships:
            found[member_id] = (*found.get(member_id, ()), GroupKey(*key))
        return found


# Shard 0


def resolve_member(
    registry: GroupRegistry, message: messages.ResolveMemberCall
) -> messages.ShardMessage:
    """Choose the partition of a member."""
    group = registry.require(GroupKey(message.stream_id, message.topic_id, message.group_id))
    if message.purpose == "commit":
        chosen = group.resolve_commit(message.member_id, message.partition_id)
        return messages.MemberPartitionReply(chosen)
    grant = group.resolve_poll(message.member_id, message.partition_id)
    return (
        messages.MemberPartitionReply(None)
        if grant is None
        else messages.MemberPartitionReply(*grant)
    )


def claim_partitions(registry: GroupRegistry, message: messages.ClaimCall) -> messages.ShardMessage:
    """Check what a member names."""
    group = registry.require(GroupKey(message.stream_id, message.topic_id, message.group_id))
    purpose = ClaimPurpose(message.purpose)
    grants = [
        group.claim(message.member_id, partition, epoch=epoch, purpose=purpose)
        for partition, epoch in message.named
    ]
    return messages.ClaimReply(tuple(None if grant is None else grant.epoch for grant in grants))


def watch_grants(registry: GroupRegistry, key: GroupKey, grants: Iterable[PollGrant]) -> Wait:
    """Wait until a member may not read one of its partitions any more."""
    group = registry.find(key)
    if group is None:
        return Wait.finished()
    wait = Wait(lambda _: None if watch is None else watch.cancel())
    watch = group.watch(tuple(grants), wait.finish)
    return wait


def member_polled(
    registry: GroupRegistry, message: messages.MemberPolledCall
) -> messages.ShardMessage:
    """Record a delivery, if the member still owns the partition."""
    group = registry.find(GroupKey(message.stream_id, message.topic_id, message.group_id))
    if group is None or not group.confirm(PollGrant(message.partition_id, message.epoch)):
        return messages.MemberPartitionReply(None)
    group.record_polled(message.member_id, message.partition_id, message.polled_offset)
    return messages.MemberPartitionReply(message.partition_id)


def group_committed(
    registry: GroupRegistry, message: messages.GroupCommittedCall
) -> messages.ShardMessage:
    """Record the stored offset of a group."""
    group = registry.find(GroupKey(message.stream_id, message.topic_id, message.group_id))
    if group is not None:
        group.record_committed(message.partition_id, message.offset)
    return messages.DONE_REPLY


def list_memberships(
    registry: GroupRegistry, message: messages.GroupMemberships
) -> messages.ShardMessage:
    """List the groups of some members."""
    return messages.GroupMemberships(
        memberships=tuple(
            (member_id, *key)
            for member_id in message.member_ids
            for key in registry.memberships(member_id)
        )
    )

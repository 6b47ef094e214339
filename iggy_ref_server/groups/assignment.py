"""The assignment of a topic's partitions to the members of a group, and pending transfers.

Every partition has one owner as long as there are members. There are two ways to rebalance:

    ``assign_to_new_member``  when a member joins: transfers are scheduled until it has its share.
                 A partition without uncommitted messages moves at once, others move on the
                 commit or at the deadline. Until then the old owner keeps the partition.
    ``rebalance``   after a leave or a change of partitions: members give up their surplus, and
                 partitions without an owner are assigned at once. Pending transfers are dropped.

Both move as few partitions as possible. The last polled offset belongs to the ownership and ends
with it. Each ownership has an epoch that is never reused, so that a poll which was resolved under
an earlier ownership can be recognised.

What a member reads is what it owns without what is promised to others. The generation is another
number after each change of what any member reads, and rises.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from iggy_ref_server.groups.watches import OwnershipWatches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


# The members of one consumer group: their slots, their numbers, and where each one reads.
#
# A new member takes the slot that was freed last, or a new one at the end. Members are listed in
# the order of their slots. The number that clients see is the highest one in use plus one, so it
# may be reused once its holder has left. A ``GroupMember`` object is never reused.


class GroupMember:
    """A member of a group.

    Attributes:
        id: whose it is: the id of a connection, or of a session that outlives its connections.
        number: what clients see as the id of the member.
        slot: its place in the list of members.
        partitions: what it owns, in the order in which it reads them.
        share: how many partitions it will own when no hand-over is pending any more.
        cursor: how many polls without a partition it has made, modulo what it owned.
        last_delivered: the partition that it was given messages from last.
    """

    __slots__ = ("cursor", "id", "last_delivered", "number", "partitions", "share", "slot")

    def __init__(self, member_id: int, number: int, slot: int) -> None:
        self.id = member_id
        self.number = number
        self.slot = slot
        self.partitions: list[int] = []
        self.share = 0
        self.cursor = 0
        self.last_delivered: int | None = None


# What followers of a group are told.


class MemberJoined(NamedTuple):
    """A member joined; it has its first partitions, and the group so many members."""

    member: GroupMember
    members_count: int


class MemberLeft(NamedTuple):
    """A member left, by itself or because its client is gone."""

    member: GroupMember
    members_count: int
    is_gone: bool


class PartitionMoved(NamedTuple):
    """A partition has another owner, or none."""

    partition: int
    owner: GroupMember | None


GroupEvent: TypeAlias = MemberJoined | MemberLeft | PartitionMoved


class GroupMembers:
    """The list of members, in slots that are used again."""

    def __init__(self) -> None:
        self._slots: list[GroupMember | None] = []
        self._free_slots: list[int] = []
        self._by_id: dict[int, GroupMember] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[GroupMember]:
        """Walk over the members in the order of their slots."""
        return (member for member in self._slots if member is not None)

    def find(self, member_id: int) -> GroupMember | None:
        """Look a member up by its id."""
        return self._by_id.get(member_id)

    def add(self, member_id: int) -> GroupMember:
        """Take in one that is no member yet."""
        number = max((member.number for member in self), default=-1) + 1
        if self._free_slots:
            member = GroupMember(member_id, number, self._free_slots.pop())
            self._slots[member.slot] = member
        else:
            member = GroupMember(member_id, number, len(self._slots))
            self._slots.append(member)
        self._by_id[member_id] = member
        return member

    def remove(self, member: GroupMember) -> None:
        """Free the slot of a member."""
        del self._by_id[member.id]
        self._slots[member.slot] = None
        self._free_slots.append(member.slot)


class _PartitionOwnership:
    """One partition: its owner, and the last polled and committed offsets."""

    __slots__ = ("committed_offset", "epoch", "owner", "polled_offset")

    def __init__(self, epoch: int) -> None:
        self.owner: GroupMember | None = None
        self.epoch = epoch
        self.polled_offset: int | None = None
        self.committed_offset: int | None = None

    @property
    def is_committed(self) -> bool:
        """Whether the owner has committed everything it polled."""
        if self.polled_offset is None:
            return True
        return self.committed_offset is not None and self.committed_offset >= self.polled_offset


class _PendingTransfer:
    """A pending transfer of a partition to a new owner."""

    __slots__ = ("deadline_us", "new_owner")

    def __init__(self, new_owner: GroupMember, deadline_us: int) -> None:
        self.new_owner = new_owner
        self.deadline_us = deadline_us


class PartitionAssignment:
    """The partitions of a topic, as one group shares them.

    Args:
        epochs: rising numbers of ownerships and generations; it never repeats one.

    Attributes:
        generation: changes with what any member reads.
        watches: who is told when an owner may not read its partition any more.
    """

    def __init__(self, epochs: Iterator[int]) -> None:
        self._epochs = epochs
        self._ownerships: list[_PartitionOwnership] = []
        self._transfers: dict[int, _PendingTransfer] = {}
        self._moved: dict[int, None] = {}
        self.generation = next(epochs)
        self.watches = OwnershipWatches()

    @property
    def partitions_count(self) -> int:
        """How many partitions there are; they are numbered from 0."""
        return len(self._ownerships)

    def owner(self, partition: int) -> GroupMember | None:
        """Return who owns a partition; None where there is no such partition."""
        if 0 <= partition < len(self._ownerships):
            return self._ownerships[partition].owner
        return None

    def epoch(self, partition: int) -> int | None:
        """Return the number of the present ownership; None where there is no such partition."""
        if 0 <= partition < len(self._ownerships):
            return self._ownerships[partition].epoch
        return None

    def is_readable(self, partition: int, epoch: int) -> bool:
        """Tell whether an ownership lasts and its partition is not promised to another member."""
        return self.epoch(partition) == epoch and partition not in self._transfers

    def readable(self, member: GroupMember) -> Sequence[int]:
        """List what a member reads: all it owns except partitions with a pending transfer."""
        if not self._transfers:
            return member.partitions
        return [partition for partition in member.partitions if partition not in self._transfers]

    # --- what was polled and committed ---

    def record_polled(self, partition: int, offset: int) -> None:
        """Record the highest offset that the owner polled."""
        ownership = self._ownerships[partition]
        if ownership.polled_offset is None or ownership.polled_offset < offset:
            ownership.polled_offset = offset

    def record_committed(self, partition: int, offset: int | None) -> None:
        """Record the group's offset, or its removal; a transfer that waited for it completes."""
        if 0 <= partition < len(self._ownerships):
            ownership = self._ownerships[partition]
            ownership.committed_offset = offset
            if partition in self._transfers and ownership.is_committed:
                self._complete_transfers([partition])

    def reset_progress(self) -> None:
        """Forget all offsets after a purge; all pending transfers complete."""
        for ownership in self._ownerships:
            ownership.polled_offset = None
            ownership.committed_offset = None
        self._complete_transfers(tuple(self._transfers))

    # --- sharing ---

    def resize(self, partitions_count: int) -> None:
        """Add partitions without an owner, or drop the last ones; ``rebalance`` follows."""
        old_owners = {ownership.owner for ownership in self._ownerships[partitions_count:]}
        for old_owner in old_owners:
            if old_owner is not None:
                old_owner.partitions = [
                    kept for kept in old_owner.partitions if kept < partitions_count
                ]
        for partition in range(partitions_count, len(self._ownerships)):
            self._note_change(partition)
        del self._ownerships[partitions_count:]
        while len(self._ownerships) < partitions_count:
            self._ownerships.append(_PartitionOwnership(next(self._epochs)))

    def release(self, member: GroupMember) -> None:
        """Leave the partitions of a member without an owner; ``rebalance`` follows."""
        self._move(tuple(member.partitions), member, None)

    def rebalance(self, members: Sequence[GroupMember]) -> None:
        """Assign all partitions evenly, at once."""
        self._withdraw_transfers()
        if not members:
            return
        quotient, remainder = divmod(len(self._ownerships), len(members))
        by_load = sorted(members, key=lambda member: len(member.partitions), reverse=True)
        for place, member in enumerate(by_load):
            surplus = len(member.partitions) - quotient - (place < remainder)
            self._move(self._choose_revocable(member, surplus), member, None)
        self._assign_unowned(members)
        for member in members:
            member.partitions.sort()
            member.share = len(member.partitions)

    def assign_to_new_member(
        self, new_member: GroupMember, members: Sequence[GroupMember], deadline_us: int
    ) -> None:
        """Schedule transfers until no member has two more partitions than the new one."""
        transfer_counts: Counter[GroupMember] = Counter()
        while True:
            most_loaded = max(members, key=lambda member: member.share)
            if most_loaded.share - new_member.share <= 1:
                break
            transfer_counts[most_loaded] += 1
            most_loaded.share -= 1
            new_member.share += 1
        for old_owner, count in transfer_counts.items():
            self._schedule_transfers(count, old_owner, new_member, deadline_us)

    # --- promises ---

    def next_deadline_us(self) -> int | None:
        """Return the deadline of the first pending transfer."""
        return min((transfer.deadline_us for transfer in self._transfers.values()), default=None)

    def complete_overdue_transfers(self, now_us: int) -> list[int]:
        """Complete the transfers whose deadline has passed, committed or not."""
        overdue = [
            partition
            for partition, transfer in self._transfers.items()
            if transfer.deadline_us <= now_us
        ]
        self._complete_transfers(overdue)
        return overdue

    def _schedule_transfers(
        self, count: int, old_owner: GroupMember, new_owner: GroupMember, deadline_us: int
    ) -> None:
        """Move part of a share: first committed partitions, then those the old owner waits for."""
        revocable = self._choose_revocable(old_owner, count)
        committed = [
            partition for partition in revocable if self._ownerships[partition].is_committed
        ]
        self._move(sorted(committed), old_owner, new_owner)
        expected = [
            transfer for transfer in self._transfers.values() if transfer.new_owner is old_owner
        ]
        redirected = expected[: count - len(committed)]
        for transfer in redirected:
            transfer.new_owner = new_owner
        for partition in revocable[len(committed) : count - len(redirected)]:
            self._transfers[partition] = _PendingTransfer(new_owner, deadline_us)
            self._note_change(partition)

    def _withdraw_transfers(self) -> None:
        """Let the owners read again what was promised to others."""
        if self._transfers:
            self._transfers.clear()
            self.generation = next(self._epochs)

    def _choose_revocable(self, member: GroupMember, count: int) -> list[int]:
        """Choose partitions to revoke: from the end of the list, committed ones first."""
        candidates = reversed(self.readable(member))
        ranked = sorted(
            candidates, key=lambda partition: not self._ownerships[partition].is_committed
        )
        return ranked[: max(count, 0)]

    def _complete_transfers(self, partitions: Iterable[int]) -> None:
        moves: defaultdict[tuple[GroupMember | None, GroupMember], list[int]] = defaultdict(list)
        for partition in partitions:
            new_owner = self._transfers.pop(partition).new_owner
            moves[self._ownerships[partition].owner, new_owner].append(partition)
        for (old_owner, new_owner), moved in moves.items():
            self._move(moved, old_owner, new_owner)

    # --- ownership ---

    def _move(
        self,
        partitions: Iterable[int],
        old_owner: GroupMember | None,
        new_owner: GroupMember | None,
    ) -> None:
        """End ownerships and begin the next; the group's committed offsets stay."""
        moved = dict.fromkeys(partitions)
        if old_owner is not None and moved:
            old_owner.partitions = [kept for kept in old_owner.partitions if kept not in moved]
        if new_owner is not None:
            new_owner.partitions.extend(moved)
        for partition in moved:
            ownership = self._ownerships[partition]
            ownership.owner = new_owner
            ownership.epoch = next(self._epochs)
            ownership.polled_offset = None
            self._moved[partition] = None
            self._note_change(partition)

    def take_moved(self) -> list[PartitionMoved]:
        """Return the partitions whose ownership has changed since the last call."""
        if not self._moved:
            return []
        moved, self._moved = self._moved, {}
        present = [partition for partition in moved if partition < len(self._ownerships)]
        return [PartitionMoved(each, self._ownerships[each].owner) for each in present]

    def _note_change(self, partition: int) -> None:
        """Note that a partition is not read any more by who has read it."""
        self.generation = next(self._epochs)
        self.watches.tell(partition)

    def _assign_unowned(self, members: Sequence[GroupMember]) -> None:
        """Assign each partition without an owner to the member with the fewest partitions."""
        queue = [(len(member.partitions), member.slot, member) for member in members]
        heapq.heapify(queue)
        for partition, ownership in enumerate(self._ownerships):
            if ownership.owner is None:
                count, slot, member = queue[0]
                self._move((partition,), None, member)
                heapq.heapreplace(queue, (count + 1, slot, member))

"""The assignment of a topic's partitions to the members of a group, and pending transfers.

Every partition has one owner as long as there are members. There are two ways to rebalance:

    ``welcome``  when a member joins: transfers are scheduled until it has its share.
                 A partition without uncommitted messages moves at once, others move on the
                 commit or at the deadline. Until then the old owner keeps the partition.
    ``settle``   after a leave or a change of partitions: members give up their surplus, and
                 partitions without an owner are assigned at once. Pending transfers are dropped.

Both move as few partitions as possible. The last polled offset belongs to the ownership and ends
with it. Each ownership has an epoch that is never reused, so that a poll which was resolved under
an earlier ownership can be recognised.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from iggy_ref_server.groups.members import Member

__all__ = ["Assignment"]


class _Ownership:
    """One partition: its owner, and the last polled and committed offsets."""

    __slots__ = ("committed_offset", "epoch", "owner", "polled_offset")

    def __init__(self, epoch: int) -> None:
        self.owner: Member | None = None
        self.epoch = epoch
        self.polled_offset: int | None = None
        self.committed_offset: int | None = None

    @property
    def is_clean(self) -> bool:
        """Whether the owner has committed everything it polled."""
        if self.polled_offset is None:
            return True
        return self.committed_offset is not None and self.committed_offset >= self.polled_offset


class _Promise:
    """A pending transfer of a partition to a new owner."""

    __slots__ = ("deadline_us", "heir")

    def __init__(self, heir: Member, deadline_us: int) -> None:
        self.heir = heir
        self.deadline_us = deadline_us


class Assignment:
    """The partitions of a topic, as one group shares them.

    Args:
        epochs: where the numbers of ownerships come from; it never repeats one.
    """

    def __init__(self, epochs: Iterator[int]) -> None:
        self._epochs = epochs
        self._ownerships: list[_Ownership] = []
        self._promises: dict[int, _Promise] = {}

    @property
    def partitions_count(self) -> int:
        """How many partitions there are; they are numbered from 0."""
        return len(self._ownerships)

    def owner(self, partition: int) -> Member | None:
        """Return who owns a partition; None where there is no such partition."""
        if 0 <= partition < len(self._ownerships):
            return self._ownerships[partition].owner
        return None

    def epoch(self, partition: int) -> int | None:
        """Return the number of the present ownership; None where there is no such partition."""
        if 0 <= partition < len(self._ownerships):
            return self._ownerships[partition].epoch
        return None

    def readable(self, member: Member) -> Sequence[int]:
        """List what a member reads: all it owns except partitions with a pending transfer."""
        if not self._promises:
            return member.partitions
        return [partition for partition in member.partitions if partition not in self._promises]

    # --- what was polled and committed ---

    def note_polled(self, partition: int, offset: int) -> None:
        """Record the highest offset that the owner polled."""
        ownership = self._ownerships[partition]
        if ownership.polled_offset is None or ownership.polled_offset < offset:
            ownership.polled_offset = offset

    def note_committed(self, partition: int, offset: int | None) -> None:
        """Record the group's offset, or its removal; a transfer that waited for it completes."""
        if 0 <= partition < len(self._ownerships):
            ownership = self._ownerships[partition]
            ownership.committed_offset = offset
            if partition in self._promises and ownership.is_clean:
                self._keep_promises([partition])

    def reset_progress(self) -> None:
        """Forget all offsets after a purge; all pending transfers complete."""
        for ownership in self._ownerships:
            ownership.polled_offset = None
            ownership.committed_offset = None
        self._keep_promises(tuple(self._promises))

    # --- sharing ---

    def resize(self, partitions_count: int) -> None:
        """Add partitions without an owner, or drop the last ones; ``settle`` follows."""
        losers = {ownership.owner for ownership in self._ownerships[partitions_count:]}
        for loser in losers:
            if loser is not None:
                loser.partitions = [kept for kept in loser.partitions if kept < partitions_count]
        del self._ownerships[partitions_count:]
        while len(self._ownerships) < partitions_count:
            self._ownerships.append(_Ownership(next(self._epochs)))

    def release(self, member: Member) -> None:
        """Leave the partitions of a member without an owner; ``settle`` follows."""
        self._move(tuple(member.partitions), member, None)

    def settle(self, members: Sequence[Member]) -> None:
        """Assign all partitions evenly, at once."""
        self._promises.clear()
        if not members:
            return
        quotient, remainder = divmod(len(self._ownerships), len(members))
        by_wealth = sorted(members, key=lambda member: len(member.partitions), reverse=True)
        for place, member in enumerate(by_wealth):
            surplus = len(member.partitions) - quotient - (place < remainder)
            self._move(self._spares(member, surplus), member, None)
        self._deal_out(members)
        for member in members:
            member.partitions.sort()
            member.share = len(member.partitions)

    def welcome(self, newcomer: Member, members: Sequence[Member], deadline_us: int) -> None:
        """Schedule transfers until no member has two more partitions than the new one."""
        gifts: Counter[Member] = Counter()
        while True:
            richest = max(members, key=lambda member: member.share)
            if richest.share - newcomer.share <= 1:
                break
            gifts[richest] += 1
            richest.share -= 1
            newcomer.share += 1
        for giver, count in gifts.items():
            self._pass_on(count, giver, newcomer, deadline_us)

    # --- promises ---

    def next_deadline_us(self) -> int | None:
        """Return the deadline of the first pending transfer."""
        return min((promise.deadline_us for promise in self._promises.values()), default=None)

    def keep_overdue(self, now_us: int) -> list[int]:
        """Complete the transfers whose deadline has passed, committed or not."""
        overdue = [
            partition
            for partition, promise in self._promises.items()
            if promise.deadline_us <= now_us
        ]
        self._keep_promises(overdue)
        return overdue

    def _pass_on(self, count: int, giver: Member, heir: Member, deadline_us: int) -> None:
        """Move part of a share: first committed partitions, then those the old owner waits for."""
        spares = self._spares(giver, count)
        clean = [partition for partition in spares if self._ownerships[partition].is_clean]
        self._move(sorted(clean), giver, heir)
        expected = [promise for promise in self._promises.values() if promise.heir is giver]
        passed_on = expected[: count - len(clean)]
        for promise in passed_on:
            promise.heir = heir
        for partition in spares[len(clean) : count - len(passed_on)]:
            self._promises[partition] = _Promise(heir, deadline_us)

    def _spares(self, member: Member, count: int) -> list[int]:
        """Choose partitions to revoke: from the end of the list, committed ones first."""
        candidates = reversed(self.readable(member))
        ranked = sorted(candidates, key=lambda partition: not self._ownerships[partition].is_clean)
        return ranked[: max(count, 0)]

    def _keep_promises(self, partitions: Iterable[int]) -> None:
        moves: defaultdict[tuple[Member | None, Member], list[int]] = defaultdict(list)
        for partition in partitions:
            heir = self._promises.pop(partition).heir
            moves[self._ownerships[partition].owner, heir].append(partition)
        for (giver, heir), moved in moves.items():
            self._move(moved, giver, heir)

    # --- ownership ---

    def _move(self, partitions: Iterable[int], giver: Member | None, heir: Member | None) -> None:
        """End ownerships and begin the next; the group's committed offsets stay."""
        moved = dict.fromkeys(partitions)
        if giver is not None and moved:
            giver.partitions = [kept for kept in giver.partitions if kept not in moved]
        if heir is not None:
            heir.partitions.extend(moved)
        for partition in moved:
            ownership = self._ownerships[partition]
            ownership.owner = heir
            ownership.epoch = next(self._epochs)
            ownership.polled_offset = None

    def _deal_out(self, members: Sequence[Member]) -> None:
        """Assign each partition without an owner to the member with the fewest partitions."""
        queue = [(len(member.partitions), member.slot, member) for member in members]
        heapq.heapify(queue)
        for partition, ownership in enumerate(self._ownerships):
            if ownership.owner is None:
                count, slot, member = queue[0]
                self._move((partition,), None, member)
                heapq.heapreplace(queue, (count + 1, slot, member))

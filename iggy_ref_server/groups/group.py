"""One consumer group: joins, leaves, and what its members may poll and commit.

A group is in memory only; after a restart its members join again. It does no I/O: the time is an
argument, from any clock that does not go backwards.

A poll has three steps, so that no message reaches two members during a transfer:

    grant = group.resolve_poll(member_id, partition)     # None: answer an empty reply
    ...                                                  # read, maybe on another shard
    if group.confirm(grant):                             # else: answer an empty reply
        group.record_polled(member_id, grant.partition, last_offset)
        ...                                              # commit if asked to, then deliver

Nothing of a poll is committed before it is confirmed, and no await is between the last two calls.

Members of classic clients let the group choose the partition. Those of newer clients ask with
``sync`` what they may read, and name the partition of each poll and commit:

    group.sync(member_id)                                # the partitions, and their generation
    grant = group.claim(member_id, partition)            # None: the fence, the member syncs again
    watch = group.watch([grant], on_lost)                # while the client waits for messages

Both kinds share one list of members, and the same rules of moving partitions.
"""

from __future__ import annotations

import itertools
import logging
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from iggy_protocol import ConsumerGroupAssignment, ConsumerGroupMember, StatusCode
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.groups.assignment import (
    GroupEvent,
    GroupMember,
    GroupMembers,
    MemberJoined,
    MemberLeft,
    PartitionAssignment,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from iggy_ref_server.groups.watches import OwnershipWatch


LOGGER = logging.getLogger(__name__)


class PollGrant(NamedTuple):
    """The right to read a partition, as long as its ownership lasts."""

    partition: int
    epoch: int


class ClaimPurpose(Enum):
    """What a member names a partition for."""

    POLL = "poll"
    """To read it; not while it is promised to another member."""
    COMMIT = "commit"
    """To store its offset, which a member may as long as it owns the partition."""


class GroupState:
    """The members of a group and the partitions they share.

    Args:
        partitions_count: how many partitions the topic has.
        rebalancing_timeout_us: how long a member may keep a partition that is promised to
            another while it does not commit what it polled.
        epochs: numbers that no other group uses; a group by itself counts alone.
        report: told of members and their partitions.
    """

    def __init__(
        self,
        partitions_count: int,
        *,
        rebalancing_timeout_us: int,
        epochs: Iterator[int] | None = None,
        report: Callable[[GroupEvent], object] = bool,
    ) -> None:
        self._report = report
        self._timeout_us = rebalancing_timeout_us
        self._members = GroupMembers()
        self._assignment = PartitionAssignment(itertools.count(1) if epochs is None else epochs)
        self._assignment.resize(partitions_count)

    @property
    def partitions_count(self) -> int:
        """How many partitions the topic has."""
        return self._assignment.partitions_count

    @property
    def members_count(self) -> int:
        """How many members there are."""
        return len(self._members)

    def details(self) -> tuple[ConsumerGroupMember, ...]:
        """List the members in the order of their slots, with what each owns."""
        return tuple(
            ConsumerGroupMember(id=member.number, partitions=tuple(sorted(member.partitions)))
            for member in self._members
        )

    def members(self) -> tuple[GroupMember, ...]:
        """List the members in the order of their slots."""
        return tuple(self._members)

    def member_ids(self) -> tuple[int, ...]:
        """List the ids of the members in the order of their slots."""
        return tuple(member.id for member in self._members)

    # --- who and what ---

    def join(self, member_id: int, now_us: int) -> None:
        """Take a member in; joining twice changes nothing."""
        if self._members.find(member_id) is not None:
            return
        new_member = self._members.add(member_id)
        members = tuple(self._members)
        if len(members) == 1:
            self._assignment.rebalance(members)
        else:
            self._assignment.assign_to_new_member(new_member, members, now_us + self._timeout_us)
        self._report(MemberJoined(new_member, len(members)))
        self._report_moved(besides=new_member)

    def leave(self, member_id: int, *, is_gone: bool = False) -> None:
        """Let a member go and share out what it had; the group's offsets stay.

        Raises:
            ServerFault: it is no member.
        """
        member = self._require(member_id)
        self._members.remove(member)
        self._assignment.release(member)
        self._assignment.rebalance(tuple(self._members))
        self._report(MemberLeft(member, len(self._members), is_gone))
        self._report_moved()

    def set_partitions(self, partitions_count: int) -> None:
        """Follow the topic, which got more partitions or lost its last ones."""
        self._assignment.resize(partitions_count)
        self._assignment.rebalance(tuple(self._members))
        self._report_moved()

    def reset_progress(self) -> None:
        """Follow a purge: what was polled or committed before is no more."""
        self._assignment.reset_progress()
        self._report_moved()

    def _report_moved(self, besides: GroupMember | None = None) -> None:
        """Tell of partitions with another owner, besides those of a member that has joined."""
        for moved in self._assignment.take_moved():
            if besides is None or moved.owner is not besides:
                self._report(moved)

    # --- polls ---

    def resolve_poll(self, member_id: int, partition: int | None = None) -> PollGrant | None:
        """Choose the partition of a poll.

        Without one the member's partitions take turns, except those promised to another.

        Returns:
            What may be read; None when the member has nothing to read, or does not own the
            partition it named. The reply is empty then, not an error.

        Raises:
            ServerFault: the client is no member.
        """
        member = self._require(member_id)
        if partition is None:
            readable = self._assignment.readable(member)
            if not readable:
                return None
            partition = readable[member.cursor % len(readable)]
            member.cursor = (member.cursor + 1) % len(readable)
        elif self._assignment.owner(partition) is not member:
            return None
        epoch = self._assignment.epoch(partition)
        assert epoch is not None
        return PollGrant(partition, epoch)

    def confirm(self, grant: PollGrant) -> bool:
        """Tell whether the messages read under a grant may still be sent to the client."""
        return self._assignment.epoch(grant.partition) == grant.epoch

    def record_polled(self, member_id: int, partition: int, last_offset: int) -> None:
        """Remember the last message that a member is given; nothing is noted for an empty reply."""
        member = self._members.find(member_id)
        if member is not None and self._assignment.owner(partition) is member:
            member.last_delivered = partition
            self._assignment.record_polled(partition, last_offset)

    # --- members that name their partitions ---

    def sync(self, member_id: int) -> ConsumerGroupAssignment | None:
        """Return what a member may read, and the generation of that; None if it is no member."""
        member = self._members.find(member_id)
        if member is None:
            return None
        partitions = tuple(sorted(self._assignment.readable(member)))
        return ConsumerGroupAssignment(self._assignment.generation, partitions)

    def claim(
        self,
        member_id: int,
        partition: int,
        *,
        epoch: int = 0,
        purpose: ClaimPurpose = ClaimPurpose.POLL,
    ) -> PollGrant | None:
        """Check that a member owns the partition that it names.

        Args:
            member_id: the member.
            partition: what it names.
            epoch: the ownership that it knows of; 0 takes the present one.
            purpose: what for.

        Returns:
            The grant of the present ownership; None if the member has to sync first, also where it
            is no member.
        """
        member = self._members.find(member_id)
        owned_epoch = self._assignment.epoch(partition)
        if member is None or owned_epoch is None or self._assignment.owner(partition) is not member:
            return None
        if epoch not in (0, owned_epoch):
            return None
        if purpose is ClaimPurpose.POLL and not self._assignment.is_readable(
            partition, owned_epoch
        ):
            return None
        return PollGrant(partition, owned_epoch)

    def watch(
        self, grants: Sequence[PollGrant], on_lost: Callable[[], None]
    ) -> OwnershipWatch | None:
        """Have a call when one of some partitions may not be read under its grant any more.

        Args:
            grants: what a client waits for.
            on_lost: called once, at once if it is so already; it must not call the group.

        Returns:
            The watch, which the caller cancels; None if it has ended already.
        """
        if all(self._assignment.is_readable(*grant) for grant in grants):
            partitions = [grant.partition for grant in grants]
            return self._assignment.watches.add(partitions, on_lost)
        on_lost()
        return None

    def end_watches(self) -> None:
        """Tell all who wait for messages that the group is gone."""
        self._assignment.watches.tell_all()

    # --- commits ---

    def resolve_commit(self, member_id: int, partition: int | None = None) -> int:
        """Choose the partition whose offset a member stores or removes.

        Without one it is the partition that the member was given messages from last; before
        there was any, the one it will poll next.

        Raises:
            ServerFault: the client is no member, or does not own the partition (any more).
        """
        member = self._require(member_id)
        if partition is None:
            partition = member.last_delivered
        if partition is None:
            readable = self._assignment.readable(member)
            partition = readable[member.cursor % len(readable)] if readable else None
        if partition is None or self._assignment.owner(partition) is not member:
            raise ServerFault(
                StatusCode.NOT_RESOLVED_CONSUMER,
                f"member {member_id} does not own partition {partition} in its group",
            )
        return partition

    def record_committed(self, partition: int, offset: int | None) -> None:
        """Remember the offset that was stored for the group, None for one that was removed.

        Auto-commits count. A partition that only waited for this changes hands.
        """
        self._assignment.record_committed(partition, offset)
        self._report_moved()

    # --- hand-overs ---

    def next_deadline_us(self) -> int | None:
        """Return when ``expire`` will have something to do; None while nothing is pending."""
        return self._assignment.next_deadline_us()

    def expire(self, now_us: int) -> list[int]:
        """Hand over the partitions whose old owners did not commit in time.

        Returns:
            Those partitions.
        """
        overdue = self._assignment.complete_overdue_transfers(now_us)
        self._report_moved()
        return overdue

    def _require(self, member_id: int) -> GroupMember:
        member = self._members.find(member_id)
        if member is None:
            raise ServerFault(
                StatusCode.CONSUMER_GROUP_MEMBER_NOT_FOUND,
                f"client {member_id} is not a member of the group",
            )
        return member


# All consumer groups of the server, and which of them a member is in.
#
# Groups are added and removed as the metadata change. A membership and the member's own list of
# groups change in one step, so that no group keeps a member whose client has disconnected. The end
# of a connection calls ``remove_member`` after the last request of that client; a session that
# outlives its connections does so when it ends.


REBALANCING_TIMEOUT_US = 30_000_000


class GroupKey(NamedTuple):
    """Where a group is."""

    stream_id: int
    topic_id: int
    group_id: int


class GroupRegistry:
    """The consumer groups of a server.

    Args:
        rebalancing_timeout_us: see ``GroupState``.

    Attributes:
        report: told of the members of all groups and their partitions.
    """

    def __init__(self, *, rebalancing_timeout_us: int = REBALANCING_TIMEOUT_US) -> None:
        self.report: Callable[[GroupKey, GroupEvent], object] = lambda key, event: None
        self._timeout_us = rebalancing_timeout_us
        # One count for all groups: a grant of a deleted group is worth nothing in the next one
        # of the same id.
        self._epochs = itertools.count(1)
        self._groups: dict[GroupKey, GroupState] = {}
        # The inner dictionaries serve as sets that keep the order of joining.
        self._memberships: dict[int, dict[GroupKey, None]] = {}

    def count_epochs_above(self, base: int) -> None:
        """Begin the numbers of ownerships and generations above those of an earlier life.

        Clients keep them over a restart of the server; an old one must not be taken for a new one.
        """
        assert not self._groups, "a group has taken numbers below the base"
        self._epochs = itertools.count(base + 1)

    # --- groups ---

    def add_group(self, key: GroupKey, partitions_count: int) -> GroupState:
        """Make a group without members."""
        self.remove_group(key)
        group = GroupState(
            partitions_count,
            rebalancing_timeout_us=self._timeout_us,
            epochs=self._epochs,
            report=lambda event: self.report(key, event),
        )
        self._groups[key] = group
        return group

    def groups_from(self, first: tuple[int, int, int]) -> Iterator[tuple[GroupKey, GroupState]]:
        """Yield the groups from a key on, by their keys."""
        for key in sorted(key for key in self._groups if key >= first):
            yield key, self._groups[key]

    def find(self, key: GroupKey) -> GroupState | None:
        """Look a group up."""
        return self._groups.get(key)

    def require(self, key: GroupKey) -> GroupState:
        """Look a group up that should be there.

        Raises:
            ServerFault: it is not.
        """
        group = self._groups.get(key)
        if group is None:
            raise ServerFault(
                StatusCode.CONSUMER_GROUP_ID_NOT_FOUND, f"consumer group {key} does not exist"
            )
        return group

    def remove_group(self, key: GroupKey) -> None:
        """Drop a group with its members; no error where there is none."""
        group = self._groups.pop(key, None)
        if group is not None:
            for member_id in group.member_ids():
                self._end_membership(member_id, key)
            group.end_watches()

    def remove_topic(self, stream_id: int, topic_id: int) -> None:
        """Drop all groups of a topic."""
        for key in self._keys(lambda key: key[:2] == (stream_id, topic_id)):
            self.remove_group(key)

    def remove_stream(self, stream_id: int) -> None:
        """Drop all groups of a stream."""
        for key in self._keys(lambda key: key.stream_id == stream_id):
            self.remove_group(key)

    def set_partitions(self, stream_id: int, topic_id: int, partitions_count: int) -> None:
        """Let all groups of a topic follow its number of partitions."""
        for key in self._keys(lambda key: key[:2] == (stream_id, topic_id)):
            self._groups[key].set_partitions(partitions_count)

    def reset_progress(self, stream_id: int, topic_id: int) -> None:
        """Let all groups of a topic follow its purge."""
        for key in self._keys(lambda key: key[:2] == (stream_id, topic_id)):
            self._groups[key].reset_progress()

    # --- members ---

    def join(self, key: GroupKey, member_id: int, now_us: int) -> None:
        """Make a member of someone.

        Raises:
            ServerFault: there is no such group.
        """
        self.require(key).join(member_id, now_us)
        self._memberships.setdefault(member_id, {})[key] = None

    def leave(self, key: GroupKey, member_id: int) -> None:
        """End a membership.

        Raises:
            ServerFault: there is no such group, or the client is no member.
        """
        self.require(key).leave(member_id)
        self._end_membership(member_id, key)

    def remove_member(self, member_id: int) -> None:
        """End all memberships of a client that is gone: disconnected, evicted or logged out."""
        for key in self._memberships.pop(member_id, {}):
            self._groups[key].leave(member_id, is_gone=True)

    def memberships(self, member_id: int) -> tuple[GroupKey, ...]:
        """List the groups a member is in, in the order of joining."""
        return tuple(self._memberships.get(member_id, ()))

    def sync(self, key: GroupKey, member_id: int) -> ConsumerGroupAssignment | None:
        """Return what a member may read; None if it is no member, or there is no such group."""
        group = self._groups.get(key)
        return None if group is None else group.sync(member_id)

    # --- hand-overs ---

    def next_deadline_us(self) -> int | None:
        """Return when ``expire`` will have something to do; None while nothing is pending."""
        deadlines = (group.next_deadline_us() for group in self._groups.values())
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def expire(self, now_us: int) -> None:
        """Hand over, in all groups, what old owners did not commit in time."""
        for key, group in self._groups.items():
            partitions = group.expire(now_us)
            if partitions:
                LOGGER.warning(
                    "group %s: partitions %s moved to other members after the rebalancing timeout,"
                    " although their last messages are not committed",
                    key,
                    partitions,
                )

    def _keys(self, wanted: Callable[[GroupKey], bool]) -> Iterator[GroupKey]:
        return iter([key for key in self._groups if wanted(key)])

    def _end_membership(self, member_id: int, key: GroupKey) -> None:
        keys = self._memberships[member_id]
        del keys[key]
        if not keys:
            del self._memberships[member_id]

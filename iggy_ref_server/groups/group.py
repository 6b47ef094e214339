"""One consumer group: joins, leaves, and what its members may poll and commit.

A group is in memory only; after a restart its members join again. It does no I/O: the time is an
argument, from any clock that does not go backwards.

A poll has three steps, so that no message reaches two members during a transfer:

    grant = group.resolve_poll(client_id, partition)     # None: answer an empty reply
    ...                                                  # read, maybe on another shard
    if group.confirm(grant):                             # else: answer an empty reply
        group.note_polled(client_id, grant.partition, last_offset)
        ...                                              # commit if asked to, then deliver

Nothing of a poll is committed before it is confirmed, and no await is between the last two calls.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

from iggy_protocol import ConsumerGroupMember, StatusCode
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.groups.assignment import Assignment
from iggy_ref_server.groups.members import Members

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iggy_ref_server.groups.members import Member

__all__ = ["ConsumerGroup", "Grant"]


class Grant(NamedTuple):
    """The right to read a partition, as long as its ownership lasts."""

    partition: int
    epoch: int


class ConsumerGroup:
    """The members of a group and the partitions they share.

    Args:
        partitions_count: how many partitions the topic has.
        rebalancing_timeout_us: how long a member may keep a partition that is promised to
            another while it does not commit what it polled.
        epochs: numbers that no other group uses; a group by itself counts alone.
    """

    def __init__(
        self,
        partitions_count: int,
        *,
        rebalancing_timeout_us: int,
        epochs: Iterator[int] | None = None,
    ) -> None:
        self._timeout_us = rebalancing_timeout_us
        self._members = Members()
        self._assignment = Assignment(itertools.count() if epochs is None else epochs)
        self._assignment.resize(partitions_count)

    @property
    def partitions_count(self) -> int:
        """How many partitions the topic has."""
        return self._assignment.partitions_count

    @property
    def members_count(self) -> int:
        """How many clients are members."""
        return len(self._members)

    def details(self) -> tuple[ConsumerGroupMember, ...]:
        """List the members in the order of their slots, with what each owns."""
        return tuple(
            ConsumerGroupMember(id=member.number, partitions=tuple(sorted(member.partitions)))
            for member in self._members
        )

    def client_ids(self) -> tuple[int, ...]:
        """List the connections of the members in the order of their slots."""
        return tuple(member.client_id for member in self._members)

    # --- who and what ---

    def join(self, client_id: int, now_us: int) -> None:
        """Take a client in; joining twice changes nothing."""
        if self._members.find(client_id) is not None:
            return
        newcomer = self._members.add(client_id)
        members = tuple(self._members)
        if len(members) == 1:
            self._assignment.settle(members)
        else:
            self._assignment.welcome(newcomer, members, now_us + self._timeout_us)

    def leave(self, client_id: int) -> None:
        """Let a client go and share out what it had; the group's offsets stay.

        Raises:
            ServerFault: it is no member.
        """
        member = self._require(client_id)
        self._members.remove(member)
        self._assignment.release(member)
        self._assignment.settle(tuple(self._members))

    def set_partitions(self, partitions_count: int) -> None:
        """Follow the topic, which got more partitions or lost its last ones."""
        self._assignment.resize(partitions_count)
        self._assignment.settle(tuple(self._members))

    def reset_progress(self) -> None:
        """Follow a purge: what was polled or committed before is no more."""
        self._assignment.reset_progress()

    # --- polls ---

    def resolve_poll(self, client_id: int, partition: int | None = None) -> Grant | None:
        """Choose the partition of a poll.

        Without one the member's partitions take turns, except those promised to another.

        Returns:
            What may be read; None when the member has nothing to read, or does not own the
            partition it named. The reply is empty then, not an error.

        Raises:
            ServerFault: the client is no member.
        """
        member = self._require(client_id)
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
        return Grant(partition, epoch)

    def confirm(self, grant: Grant) -> bool:
        """Tell whether the messages read under a grant may still be sent to the client."""
        return self._assignment.epoch(grant.partition) == grant.epoch

    def note_polled(self, client_id: int, partition: int, last_offset: int) -> None:
        """Remember the last message that a member is given; nothing is noted for an empty reply."""
        member = self._members.find(client_id)
        if member is not None and self._assignment.owner(partition) is member:
            member.delivered = partition
            self._assignment.note_polled(partition, last_offset)

    # --- commits ---

    def resolve_commit(self, client_id: int, partition: int | None = None) -> int:
        """Choose the partition whose offset a member stores or removes.

        Without one it is the partition that the member was given messages from last; before
        there was any, the one it will poll next.

        Raises:
            ServerFault: the client is no member, or does not own the partition (any more).
        """
        member = self._require(client_id)
        if partition is None:
            partition = member.delivered
        if partition is None:
            readable = self._assignment.readable(member)
            partition = readable[member.cursor % len(readable)] if readable else None
        if partition is None or self._assignment.owner(partition) is not member:
            raise ServerFault(
                StatusCode.NOT_RESOLVED_CONSUMER,
                f"client {client_id} does not own partition {partition} in its group",
            )
        return partition

    def note_committed(self, partition: int, offset: int | None) -> None:
        """Remember the offset that was stored for the group, None for one that was removed.

        Auto-commits count. A partition that only waited for this changes hands.
        """
        self._assignment.note_committed(partition, offset)

    # --- hand-overs ---

    def next_deadline_us(self) -> int | None:
        """Return when ``expire`` will have something to do; None while nothing is pending."""
        return self._assignment.next_deadline_us()

    def expire(self, now_us: int) -> list[int]:
        """Hand over the partitions whose old owners did not commit in time.

        Returns:
            Those partitions.
        """
        return self._assignment.keep_overdue(now_us)

    def _require(self, client_id: int) -> Member:
        member = self._members.find(client_id)
        if member is None:
            raise ServerFault(
                StatusCode.CONSUMER_GROUP_MEMBER_NOT_FOUND,
                f"client {client_id} is not a member of the group",
            )
        return member

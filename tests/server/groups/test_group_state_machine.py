"""A group under any order of joins, leaves, polls, commits, timeouts and partition changes.

The machine plays the clients, the partitions and the clock. It remembers who was given which
message, and after each step it checks what a group promises.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from iggy_ref_server.faults import ServerFault
from iggy_ref_server.groups.group import ClaimPurpose, GroupState, PollGrant
from tests.server.groups.group_calls import TIMEOUT_US, all_partitions, owned, sizes, synced

CLIENTS = st.integers(min_value=1, max_value=6)
PARTITIONS = st.integers(min_value=0, max_value=7)
COUNTS = st.integers(min_value=1, max_value=3)
MESSAGES_COUNT = 100


class GroupMachine(RuleBasedStateMachine):
    """Clients 1 to 6 of one group, and partitions that never run dry."""

    def __init__(self):
        super().__init__()
        self.group = GroupState(3, rebalancing_timeout_us=TIMEOUT_US)
        self.now_us = 0
        self.members: set[int] = set()
        self.stored: dict[int, int] = {}
        # What was handed out and is not committed: (partition, offset) → client.
        self.holders: dict[tuple[int, int], int] = {}
        self.polls_under_way: list[tuple[int, PollGrant]] = []
        # Who waits for messages of what it owns, and the partitions that were told to be lost.
        self.watched: dict[PollGrant, bool] = {}
        self.last_generation = 0
        self.last_synced: dict[int, tuple[int, ...]] = {}

    def owners(self):
        return {
            partition: client_id
            for client_id, partitions in owned(self.group).items()
            for partition in partitions
        }

    def forgive_moves(self, before):
        """Take what moved by force out of the books; it may be delivered again."""
        after = self.owners()
        self.holders = {
            (partition, offset): client_id
            for (partition, offset), client_id in self.holders.items()
            if partition in after and after[partition] == before.get(partition)
        }

    # --- clients ---

    @rule(client_id=CLIENTS)
    def join(self, client_id):
        before = owned(self.group)
        self.group.join(client_id, self.now_us)
        self.members.add(client_id)
        after = owned(self.group)
        for other, partitions in before.items():
            assert set(after[other]) <= set(partitions), "a join moves to the newcomer only"

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def leave(self, data):
        client_id = data.draw(st.sampled_from(sorted(self.members)))
        before = self.owners()
        self.group.leave(client_id)
        self.members.discard(client_id)
        self.forgive_moves(before)

    @rule(client_id=CLIENTS, partition=st.none() | PARTITIONS)
    def non_member_is_refused(self, client_id, partition):
        if client_id not in self.members:
            for action in (self.group.resolve_poll, self.group.resolve_commit):
                with pytest.raises(ServerFault):
                    action(client_id, partition)

    # --- polls, in two steps ---

    @rule(client_id=CLIENTS, partition=st.none() | PARTITIONS)
    def begin_poll(self, client_id, partition):
        if client_id in self.members:
            grant = self.group.resolve_poll(client_id, partition)
            if grant is not None:
                assert grant.partition in owned(self.group)[client_id]
                self.polls_under_way.append((client_id, grant))

    @precondition(lambda self: self.polls_under_way)
    @rule(data=st.data(), count=COUNTS, auto_commit=st.booleans())
    def finish_poll(self, data, count, auto_commit):
        place = data.draw(st.integers(0, len(self.polls_under_way) - 1))
        client_id, grant = self.polls_under_way.pop(place)
        if not self.group.confirm(grant):
            return
        assert self.owners()[grant.partition] == client_id
        first = self.stored.get(grant.partition, -1) + 1
        offsets = range(first, min(first + count, MESSAGES_COUNT))
        for offset in offsets:
            holder = self.holders.setdefault((grant.partition, offset), client_id)
            assert holder == client_id, "a message was given to two members"
        if offsets:
            self.group.record_polled(client_id, grant.partition, offsets[-1])
            if auto_commit:
                self.commit_offset(grant.partition, offsets[-1])

    # --- members that name their partitions ---

    @rule(client_id=CLIENTS, partition=PARTITIONS)
    def claim(self, client_id, partition):
        synced = self.group.sync(client_id)
        grant = self.group.claim(client_id, partition)
        kept = self.group.claim(client_id, partition, purpose=ClaimPurpose.COMMIT)
        assert (synced is None) == (client_id not in self.members)
        assert (grant is not None) == (synced is not None and partition in synced.partitions)
        assert (kept is not None) == (self.owners().get(partition) == client_id)
        if grant is not None:
            assert self.group.claim(client_id, partition, epoch=grant.epoch) == grant
            assert self.group.claim(client_id, partition, epoch=grant.epoch + 1) is None
            self.polls_under_way.append((client_id, grant))

    @rule(client_id=CLIENTS, partition=PARTITIONS)
    def wait_for_messages(self, client_id, partition):
        grant = self.group.claim(client_id, partition)
        if grant is not None and grant not in self.watched:
            self.watched[grant] = False
            self.group.watch([grant], lambda: self.watched.update({grant: True}))

    @rule(client_id=CLIENTS, partition=st.none() | PARTITIONS, count=COUNTS)
    def commit(self, client_id, partition, count):
        if client_id not in self.members:
            return
        try:
            resolved = self.group.resolve_commit(client_id, partition)
        except ServerFault:
            assert partition is None or self.owners().get(partition) != client_id
            return
        assert self.owners()[resolved] == client_id
        stored = min(self.stored.get(resolved, -1) + count, MESSAGES_COUNT - 1)
        self.commit_offset(resolved, stored)

    def commit_offset(self, partition, offset):
        self.stored[partition] = offset
        self.group.record_committed(partition, offset)
        for held in [held for held in self.holders if held[0] == partition and held[1] <= offset]:
            del self.holders[held]

    # --- the server ---

    @rule(step_us=st.integers(0, TIMEOUT_US))
    def time_passes(self, step_us):
        self.now_us += step_us
        before = self.owners()
        deadline_us = self.group.next_deadline_us()
        moved = self.group.expire(self.now_us)
        assert bool(moved) == (deadline_us is not None and deadline_us <= self.now_us)
        self.forgive_moves(before)

    @rule(count=PARTITIONS)
    def partitions_change(self, count):
        before = self.owners()
        self.group.set_partitions(count)
        for partition in [partition for partition in self.stored if partition >= count]:
            del self.stored[partition]
        self.forgive_moves(before)

    @rule()
    def purge(self):
        before = self.owners()
        self.group.reset_progress()
        self.stored.clear()
        self.holders.clear()
        self.forgive_moves(before)

    # --- promises ---

    @invariant()
    def members_are_those_who_joined(self):
        assert sorted(self.group.member_ids()) == sorted(self.members)
        numbers = [member.id for member in self.group.details()]
        assert len(set(numbers)) == len(numbers)

    @invariant()
    def each_partition_has_one_owner(self):
        count = self.group.partitions_count if self.members else 0
        assert all_partitions(self.group) == list(range(count))

    @invariant()
    def sizes_are_even_when_nothing_is_pending(self):
        if self.members and self.group.next_deadline_us() is None:
            assert max(sizes(self.group)) - min(sizes(self.group)) <= 1

    @invariant()
    def waits_end_exactly_when_the_partition_may_not_be_read_any_more(self):
        for grant, is_told in list(self.watched.items()):
            owner = self.owners().get(grant.partition)
            may_read = owner is not None and self.group.claim(
                owner, grant.partition, epoch=grant.epoch
            )
            assert is_told != bool(may_read)
            if is_told:
                del self.watched[grant]

    @invariant()
    def generation_rises_when_any_assignment_changes(self):
        found = {client_id: synced(self.group, client_id) for client_id in sorted(self.members)}
        generations = {assignment.generation for assignment in found.values()}
        assert len(generations) <= 1
        partitions_of = {
            client_id: assignment.partitions for client_id, assignment in found.items()
        }
        for generation in generations:
            assert generation >= self.last_generation
            if any(
                self.last_synced.get(client_id, ()) != partitions
                for client_id, partitions in partitions_of.items()
            ):
                assert generation > self.last_generation
            self.last_generation, self.last_synced = generation, partitions_of

    def teardown(self):
        """Whatever happened, after the last deadline nothing is pending and all is even."""
        deadline_us = self.group.next_deadline_us()
        if deadline_us is not None:
            self.group.expire(self.now_us + TIMEOUT_US)
        assert self.group.next_deadline_us() is None
        self.each_partition_has_one_owner()
        self.sizes_are_even_when_nothing_is_pending()


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(stateful_step_count=20)

"""Members that name their partitions: what they are told to read, the fence, and how waits end."""

from __future__ import annotations

import pytest

from iggy_protocol import ConsumerGroupAssignment
from iggy_ref_server.groups.group import ClaimPurpose, GroupKey, GroupRegistry
from tests.server.groups.group_calls import (
    TIMEOUT_US,
    claimed,
    commit,
    group_of,
    owned,
    poll,
    poll_all,
    synced,
)

COMMIT = ClaimPurpose.COMMIT
BASE = 186_000_000_000
ORDERS = GroupKey(0, 0, 0)


def waiting(group, *grants):
    """Watch grants; return the list that gets an entry when one of them is lost."""
    lost = []
    watch = group.watch(grants, lambda: lost.append(True))
    return lost, watch


# --- sync


def test_sync_when_no_member_then_is_told_so():
    group = group_of(4, 1)

    assert group.sync(2) is None
    assert group.sync(1).partitions == (0, 1, 2, 3)


def test_sync_when_there_are_more_members_than_partitions_then_some_have_none():
    group = group_of(1, 1, 2)

    assert group.sync(2) == ConsumerGroupAssignment(group.sync(1).generation, ())


def test_sync_when_a_partition_is_promised_then_neither_member_reads_it():
    group = group_of(2, 1)
    poll_all(group, 1)
    before = group.sync(1)

    group.join(2, 0)

    after = group.sync(1)
    assert len(after.partitions) == 1
    assert group.sync(2).partitions == ()
    assert after.generation > before.generation


def test_sync_when_the_old_owner_commits_then_the_new_one_reads_under_a_newer_generation():
    group = group_of(2, 1)
    poll_all(group, 1)
    group.join(2, 0)
    pending = group.sync(1)
    (promised,) = {0, 1} - set(pending.partitions)

    commit(group, 1, promised)

    assert group.sync(2).partitions == (promised,)
    assert group.sync(2).generation > pending.generation
    assert group.sync(1).partitions == pending.partitions


def test_generation_when_members_poll_and_commit_then_stays():
    group = group_of(4, 1, 2)
    before = group.sync(1)

    poll_all(group, 1)
    commit(group, 1, group.sync(1).partitions[0])
    group.sync(1)

    assert group.sync(1) == before


def test_classic_and_naming_members_when_in_one_group_then_share_its_partitions():
    group = group_of(4, 1, 2)

    classic = {poll(group, 1), poll(group, 1)}

    assert classic | set(group.sync(2).partitions) == {0, 1, 2, 3}
    assert all(group.claim(2, partition) is None for partition in classic)


# --- the fence


def test_claim_when_owned_then_names_the_ownership():
    group = group_of(2, 1)

    grant = group.claim(1, 0)

    assert grant.partition == 0
    assert group.claim(1, 0, epoch=grant.epoch) == grant
    assert group.confirm(grant)


@pytest.mark.parametrize("partition", [2, 7, -1])
def test_claim_when_there_is_no_such_partition_then_is_fenced(partition):
    assert group_of(2, 1).claim(1, partition) is None


@pytest.mark.parametrize("purpose", ClaimPurpose)
def test_claim_when_owned_by_another_or_by_a_stranger_then_is_fenced(purpose):
    group = group_of(1, 1, 2)

    assert group.claim(2, 0, purpose=purpose) is None
    assert group.claim(99, 0, purpose=purpose) is None


def test_claim_when_the_ownership_is_an_earlier_one_then_is_fenced():
    group = group_of(1, 1)
    old = group.claim(1, 0)
    group.leave(1)
    group.join(1, 0)

    assert group.claim(1, 0, epoch=old.epoch) is None
    assert group.claim(1, 0, epoch=old.epoch, purpose=COMMIT) is None
    assert group.claim(1, 0).epoch > old.epoch


def test_promised_partition_when_not_drained_then_takes_offsets_and_no_polls():
    group = group_of(2, 1)
    poll_all(group, 1, last_offset=9)
    grants = {partition: group.claim(1, partition) for partition in (0, 1)}
    group.join(2, 0)
    (promised,) = {0, 1} - set(group.sync(1).partitions)

    assert group.claim(1, promised) is None
    assert group.claim(1, promised, purpose=COMMIT) == grants[promised]
    assert group.claim(2, promised) is None
    assert group.claim(2, promised, purpose=COMMIT) is None
    group.record_committed(promised, 8)
    assert group.claim(2, promised) is None
    group.record_committed(promised, 9)
    assert group.claim(1, promised, purpose=COMMIT) is None
    assert group.claim(2, promised).epoch > grants[promised].epoch


def test_promised_partition_when_never_drained_then_moves_at_the_deadline():
    group = group_of(2, 1)
    poll_all(group, 1)
    group.join(2, 0)
    (promised,) = {0, 1} - set(group.sync(1).partitions)

    group.expire(TIMEOUT_US)

    assert group.sync(2).partitions == (promised,)


def test_promise_when_withdrawn_then_the_owner_reads_on_under_the_same_ownership():
    group = group_of(2, 1)
    poll_all(group, 1)
    grants = [group.claim(1, partition) for partition in (0, 1)]
    group.join(2, 0)
    promised = group.sync(1)

    group.leave(2)

    assert group.sync(1).partitions == (0, 1)
    assert group.sync(1).generation > promised.generation
    assert [group.claim(1, partition, epoch=grants[partition].epoch) for partition in (0, 1)] == (
        grants
    )


# --- waits


def test_watch_when_the_partition_moves_then_is_told_once():
    group = group_of(2, 1)
    lost, _ = waiting(group, group.claim(1, 0), group.claim(1, 1))

    group.join(2, 0)
    group.leave(1)

    assert lost == [True]


def test_watch_when_the_partition_is_promised_then_is_told():
    group = group_of(2, 1)
    poll_all(group, 1)
    both = [waiting(group, group.claim(1, partition))[0] for partition in (0, 1)]

    group.join(2, 0)

    assert sorted(both) == [[], [True]]


def test_watch_when_it_is_lost_already_then_is_told_at_once():
    group = group_of(1, 1)
    grant = group.claim(1, 0)
    group.leave(1)

    lost, watch = waiting(group, grant)

    assert lost == [True]
    assert watch is None


def test_watch_when_cancelled_then_is_not_told():
    group = group_of(1, 1)
    lost, watch = waiting(group, group.claim(1, 0))

    watch.cancel()
    watch.cancel()
    group.leave(1)

    assert lost == []


def test_watch_when_partitions_are_removed_then_is_told():
    group = group_of(2, 1)
    gone, _ = waiting(group, group.claim(1, 1))
    kept, _ = waiting(group, group.claim(1, 0))

    group.set_partitions(1)

    assert (gone, kept) == ([True], [])


def test_watch_when_its_group_is_removed_then_is_told():
    registry = GroupRegistry(rebalancing_timeout_us=TIMEOUT_US)
    registry.add_group(ORDERS, 2)
    registry.join(ORDERS, 1, 0)
    group = registry.require(ORDERS)
    lost, _ = waiting(group, group.claim(1, 0), group.claim(1, 1))

    registry.remove_topic(0, 0)

    assert lost == [True]


def test_watch_when_an_earlier_callback_cancels_it_then_is_not_told():
    group = group_of(1, 1)
    grant = group.claim(1, 0)
    told = []

    def cancel_all():
        told.append(True)
        for watch in watches:
            watch.cancel()

    watches = [group.watch([grant], cancel_all) for _ in range(3)]
    group.leave(1)

    assert len(told) == 1


# --- the registry


def test_numbers_when_counted_above_a_base_then_all_lie_above_it():
    registry = GroupRegistry(rebalancing_timeout_us=TIMEOUT_US)
    registry.count_epochs_above(BASE)
    registry.add_group(ORDERS, 2)
    registry.join(ORDERS, 1, 0)

    assert synced(registry.require(ORDERS), 1).generation > BASE
    assert claimed(registry.require(ORDERS), 1, 0).epoch > BASE


def test_generation_when_its_group_is_made_again_then_is_higher():
    registry = GroupRegistry(rebalancing_timeout_us=TIMEOUT_US)
    registry.add_group(ORDERS, 2)
    registry.join(ORDERS, 1, 0)
    before = synced(registry.require(ORDERS), 1)
    registry.remove_group(ORDERS)
    assert registry.sync(ORDERS, 1) is None

    registry.add_group(ORDERS, 2)
    registry.join(ORDERS, 1, 0)

    after = registry.sync(ORDERS, 1)
    assert after is not None
    assert after.generation > before.generation
    assert owned(registry.require(ORDERS)) == {1: (0, 1)}

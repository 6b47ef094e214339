"""How a partition changes hands while its owner is at work."""

from __future__ import annotations

import pytest

from iggy_protocol import StatusCode
from iggy_ref_server.faults import ServerFault
from tests.server.groups.group_calls import (
    TIMEOUT_US,
    all_partitions,
    commit,
    group_of,
    owned,
    poll,
    poll_all,
    sizes,
)


def handing_over(*, last_offset=2):
    """Make a group of two partitions, both polled by client 1, the second promised to client 2."""
    group = group_of(2, 1)
    poll_all(group, 1, last_offset=last_offset)
    group.join(2, 1000)
    assert owned(group) == {1: (0, 1), 2: ()}
    return group


def refused(status, function, *arguments):
    with pytest.raises(ServerFault) as caught:
        function(*arguments)
    return caught.value.status == status


# --- what waits, and for what ---


def test_partition_when_never_polled_then_moves_at_once():
    group = group_of(2, 1)
    poll(group, 1, 0)

    group.join(2, 0)

    assert owned(group) == {1: (0,), 2: (1,)}


def test_partition_when_all_that_was_polled_is_committed_then_moves_at_once():
    group = group_of(2, 1)
    for partition in (0, 1):
        poll(group, 1, partition, last_offset=4)
        commit(group, 1, partition, offset=4)

    group.join(2, 0)

    assert owned(group) == {1: (0,), 2: (1,)}


def test_join_when_some_partitions_are_clean_then_gives_those_away_first():
    group = group_of(3, 1)
    poll(group, 1, 2)

    group.join(2, 0)

    assert owned(group) == {1: (0, 2), 2: (1,)}
    assert group.next_deadline_us() is None


def test_pending_partition_when_polled_in_turn_then_is_skipped_by_both():
    group = handing_over()

    assert [poll(group, 1) for _ in range(3)] == [0, 0, 0]
    assert group.resolve_poll(2) is None
    assert group.resolve_poll(2, 1) is None


def test_pending_partition_when_named_by_the_old_owner_then_is_served():
    group = handing_over()

    assert poll(group, 1, 1) == 1
    assert group.resolve_commit(1, 1) == 1
    assert refused(StatusCode.NOT_RESOLVED_CONSUMER, group.resolve_commit, 2, 1)


@pytest.mark.parametrize(("offset", "moves"), [(1, False), (2, True), (3, True), (None, False)])
def test_commit_when_it_reaches_what_was_polled_then_completes_the_hand_over(offset, moves):
    group = handing_over(last_offset=2)

    commit(group, 1, 1, offset=offset)

    assert owned(group) == ({1: (0,), 2: (1,)} if moves else {1: (0, 1), 2: ()})
    assert group.next_deadline_us() == (None if moves else 1000 + TIMEOUT_US)


def test_commit_when_of_another_partition_then_completes_nothing():
    group = handing_over()

    commit(group, 1, 0, offset=2)

    assert owned(group) == {1: (0, 1), 2: ()}


def test_commit_when_an_earlier_batch_was_polled_again_then_still_waits_for_the_later_one():
    group = handing_over(last_offset=9)
    poll(group, 1, 1, last_offset=2)

    commit(group, 1, 1, offset=2)
    assert owned(group)[2] == ()

    commit(group, 1, 1, offset=9)
    assert owned(group)[2] == (1,)


def test_commit_when_no_transfer_waits_for_it_then_nothing_moves():
    group = group_of(2, 1, 2)
    before = owned(group)
    poll_all(group, 1)

    commit(group, 1, 0)
    group.record_committed(9, 0)

    assert owned(group) == before


def test_offset_when_removed_then_the_partition_waits_again():
    group = group_of(2, 1)
    for partition in (0, 1):
        poll(group, 1, partition)
        commit(group, 1, partition)
    group.record_committed(1, None)
    group.record_committed(0, None)

    group.join(2, 0)

    assert owned(group) == {1: (0, 1), 2: ()}


def test_purge_when_a_hand_over_waits_then_completes_it_and_forgets_offsets():
    group = handing_over()

    group.reset_progress()

    assert owned(group) == {1: (0,), 2: (1,)}
    poll(group, 2)
    group.join(3, 0)
    assert owned(group) == {1: (0,), 2: (1,), 3: ()}


# --- the timeout ---


def test_timeout_when_it_passes_then_forces_the_move_without_the_old_owner():
    group = handing_over()
    assert group.next_deadline_us() == 1000 + TIMEOUT_US

    assert group.expire(1000 + TIMEOUT_US - 1) == []
    assert owned(group) == {1: (0, 1), 2: ()}
    assert group.expire(1000 + TIMEOUT_US) == [1]

    assert owned(group) == {1: (0,), 2: (1,)}
    assert group.next_deadline_us() is None
    assert poll(group, 2) == 1


def test_old_owner_when_the_hand_over_was_forced_then_can_neither_poll_nor_commit():
    group = handing_over()
    group.expire(1000 + TIMEOUT_US)

    assert group.resolve_poll(1, 1) is None
    assert refused(StatusCode.NOT_RESOLVED_CONSUMER, group.resolve_commit, 1, 1)


def test_commit_without_partition_when_the_last_one_was_lost_then_goes_nowhere_else():
    group = handing_over()
    poll(group, 1, 1)
    group.expire(1000 + TIMEOUT_US)

    assert refused(StatusCode.NOT_RESOLVED_CONSUMER, group.resolve_commit, 1)
    poll(group, 1)
    assert group.resolve_commit(1) == 0


def test_mark_when_ownership_ends_then_ends_with_it():
    group = handing_over()
    group.expire(1000 + TIMEOUT_US)
    group.leave(1)
    # What client 1 was given of partition 1 is no reason to wait for client 2.
    poll(group, 2, 0)

    group.join(3, 0)

    assert owned(group) == {3: (1,), 2: (0,)}


# --- a poll that is under way ---


def test_grant_when_its_partition_moved_meanwhile_then_is_not_confirmed():
    group = group_of(2, 1)
    grant = group.resolve_poll(1, 1)
    assert grant is not None
    assert group.confirm(grant)

    group.join(2, 0)

    assert not group.confirm(grant)
    group.record_polled(1, 1, 5)
    assert poll(group, 2) == 1


def test_grant_when_its_partition_is_only_promised_then_is_confirmed():
    group = group_of(2, 1)
    poll_all(group, 1)
    grant = group.resolve_poll(1, 1)
    group.join(2, 0)

    assert grant is not None
    assert group.confirm(grant)


def test_grant_when_the_client_left_and_came_back_then_is_not_confirmed():
    group = group_of(2, 1)
    grant = group.resolve_poll(1)
    group.leave(1)
    group.join(1, 0)

    assert grant is not None
    assert not group.confirm(grant)


def test_grant_when_the_partition_was_deleted_and_made_again_then_is_not_confirmed():
    group = group_of(2, 1)
    grant = group.resolve_poll(1, 1)
    group.set_partitions(1)
    assert grant is not None
    assert not group.confirm(grant)
    group.set_partitions(2)

    assert not group.confirm(grant)


def test_grant_when_others_leave_and_the_partition_stays_then_is_confirmed():
    group = group_of(4, 1, 2)
    grant = group.resolve_poll(1)
    group.leave(2)

    assert grant is not None
    assert group.confirm(grant)


def test_grants_when_an_idle_member_leaves_then_all_are_confirmed():
    group = group_of(1, 1, 2, 3)
    grant = group.resolve_poll(1)
    group.leave(2)

    assert grant is not None
    assert group.confirm(grant)


# --- leaves in the middle ---


def test_leave_of_the_giver_when_pending_then_the_heir_owns_all():
    group = handing_over()

    group.leave(1)

    assert owned(group) == {2: (0, 1)}
    assert group.next_deadline_us() is None


def test_leave_of_the_heir_when_pending_then_the_giver_keeps_all_and_its_marks():
    group = handing_over()

    group.leave(2)
    assert owned(group) == {1: (0, 1)}
    assert [poll(group, 1, last_offset=2) for _ in range(2)] == [0, 1]

    group.join(3, 0)
    assert owned(group) == {1: (0, 1), 3: ()}


def test_join_when_a_member_left_before_then_uncommitted_partitions_still_wait():
    # The real server hands such a partition over at once, and its messages reach two members.
    group = group_of(2, 1, 2)
    group.leave(2)
    poll_all(group, 1, last_offset=3)

    group.join(2, 0)

    assert owned(group) == {1: (0, 1), 2: ()}
    assert group.resolve_poll(2) is None
    commit(group, 1, 1, offset=3)
    assert owned(group) == {1: (0,), 2: (1,)}


def test_leave_of_a_bystander_when_hand_overs_are_pending_then_both_others_have_some():
    group = group_of(3, 1)
    poll_all(group, 1)
    group.join(2, 0)
    group.join(3, 0)
    assert sizes(group) == [3, 0, 0]

    group.leave(3)

    assert sizes(group) == [2, 1]
    assert all_partitions(group) == [0, 1, 2]
    assert group.next_deadline_us() is None


def test_slot_when_used_again_then_its_new_member_inherits_no_promise():
    group = handing_over()
    group.leave(2)
    group.join(3, 0)
    assert [member.id for member in group.details()] == [0, 1]

    for partition in (0, 1):
        commit(group, 1, partition, offset=2)

    assert all_partitions(group) == [0, 1]
    assert sizes(group) == [1, 1]


# --- several newcomers ---


def test_newcomers_when_all_is_uncommitted_then_promises_are_shared_out_too():
    group = group_of(6, 1)
    poll_all(group, 1)
    group.join(2, 0)
    group.join(3, 5)
    assert sizes(group) == [6, 0, 0]

    for partition in range(6):
        if group.resolve_poll(1, partition) is not None:
            commit(group, 1, partition)

    assert sizes(group) == [2, 2, 2]
    assert all_partitions(group) == [0, 1, 2, 3, 4, 5]


def test_promise_when_passed_on_to_a_later_newcomer_then_keeps_its_deadline():
    group = group_of(4, 1)
    poll_all(group, 1)
    group.join(2, 0)
    group.join(3, 7)
    group.join(4, 9)

    assert group.next_deadline_us() == TIMEOUT_US
    group.expire(TIMEOUT_US)
    assert sizes(group) == [2, 1, 1, 0] or sizes(group) == [2, 1, 0, 1]
    group.expire(TIMEOUT_US + 9)
    assert sizes(group) == [1, 1, 1, 1]


def test_joins_when_commits_come_late_then_no_message_is_given_to_two_members():
    group = group_of(6, 1)
    given: dict[int, int] = {}
    for client_id in (2, 3, 4, 5, 6, 7):
        for member in group.member_ids():
            for partition in owned(group)[member]:
                assert poll(group, member, partition, last_offset=0) == partition
                assert given.setdefault(partition, member) == member
        group.join(client_id, client_id)


def test_share_when_partly_owned_and_partly_awaited_then_what_is_awaited_is_passed_on_first():
    group = group_of(6, 1)
    poll_all(group, 1)
    group.join(2, 0)
    commit(group, 1, 5)
    assert poll(group, 2, last_offset=1) == 5

    group.join(3, 0)
    group.expire(TIMEOUT_US)

    assert sizes(group) == [2, 2, 2]
    assert 5 in owned(group)[2]

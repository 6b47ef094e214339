"""Who owns which partition after joins, leaves and changes of the topic."""

from __future__ import annotations

import pytest

from iggy_protocol import StatusCode
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.groups.group import GroupState
from tests.server.groups.group_calls import (
    TIMEOUT_US,
    all_partitions,
    group_of,
    owned,
    poll,
    poll_all,
    sizes,
)


def test_one_member_when_alone_then_owns_all_partitions():
    assert owned(group_of(3, 7)) == {7: (0, 1, 2)}


def test_three_members_of_three_partitions_when_joined_then_have_one_each():
    group = group_of(3, 1, 2, 3)

    assert sizes(group) == [1, 1, 1]
    assert all_partitions(group) == [0, 1, 2]


def test_two_members_of_three_partitions_when_joined_then_share_them_all():
    group = group_of(3, 1, 2)

    assert sizes(group) == [2, 1]
    assert all_partitions(group) == [0, 1, 2]


@pytest.mark.parametrize(
    ("members_count", "expected"),
    [(2, [3, 3]), (3, [2, 2, 2]), (4, [1, 1, 2, 2]), (6, [1] * 6), (8, [0, 0, *[1] * 6])],
)
def test_six_partitions_when_members_join_one_by_one_then_sizes_differ_by_one_at_most(
    members_count, expected
):
    # The real server ends with 5/1, 4/1/1 and 3/1/1/1.
    group = group_of(6, *range(members_count))

    assert sorted(sizes(group)) == expected
    assert all_partitions(group) == [0, 1, 2, 3, 4, 5]


def test_newcomer_when_given_several_partitions_then_reads_them_in_order():
    assert owned(group_of(6, 1, 2)) == {1: (0, 1, 2), 2: (3, 4, 5)}


def test_join_when_a_member_has_one_partition_only_then_keeps_it():
    group = group_of(3, 1, 2)
    (kept,) = owned(group)[2]

    group.join(3, 0)

    assert owned(group)[2] == (kept,)
    assert sizes(group) == [1, 1, 1]


def test_join_when_partitions_are_shared_then_only_the_newcomers_share_moves():
    group = group_of(12, 1, 2, 3)
    before = owned(group)

    group.join(4, 0)

    after = owned(group)
    assert sizes(group) == [3, 3, 3, 3]
    for client_id, partitions in before.items():
        assert set(after[client_id]) <= set(partitions)


def test_join_when_already_a_member_then_changes_nothing():
    group = group_of(3, 1, 2)
    before = group.details()

    group.join(1, 5)

    assert group.details() == before


def test_members_when_more_than_partitions_then_the_surplus_owns_and_polls_nothing():
    group = group_of(1, 1, 2)

    assert owned(group) == {1: (0,), 2: ()}
    assert group.resolve_poll(2) is None
    assert group.resolve_poll(2, 0) is None


def test_topic_without_partitions_when_polled_then_replies_are_empty():
    group = group_of(0, 1, 2)

    assert owned(group) == {1: (), 2: ()}
    assert group.resolve_poll(1) is None


def test_leave_when_no_member_then_is_refused():
    group = group_of(3, 1)
    group.leave(1)

    with pytest.raises(ServerFault) as caught:
        group.leave(1)
    assert caught.value.status == StatusCode.CONSUMER_GROUP_MEMBER_NOT_FOUND


def test_leave_when_others_stay_then_only_its_partitions_move():
    group = group_of(6, 1, 2, 3)
    before = owned(group)

    group.leave(2)

    after = owned(group)
    assert sizes(group) == [3, 3]
    assert all_partitions(group) == [0, 1, 2, 3, 4, 5]
    for client_id in (1, 3):
        assert set(before[client_id]) <= set(after[client_id])


def test_leave_when_one_member_remains_then_it_owns_all_in_order():
    group = group_of(5, 1, 2)
    group.leave(1)

    assert owned(group) == {2: (0, 1, 2, 3, 4)}


def test_leave_when_last_then_no_partition_is_owned_and_the_next_member_owns_all():
    group = group_of(3, 1)
    grant = group.resolve_poll(1)
    group.leave(1)
    assert group.details() == ()
    assert grant is not None
    assert not group.confirm(grant)

    group.join(2, 0)

    assert owned(group) == {2: (0, 1, 2)}


def test_number_when_a_slot_is_free_then_is_still_the_highest_plus_one():
    group = group_of(4, 1, 2, 3)
    group.leave(1)
    group.join(4, 0)

    assert group.member_ids() == (4, 2, 3)
    assert [member.id for member in group.details()] == [3, 1, 2]


def test_slot_when_two_are_free_then_the_one_freed_last_is_taken_first():
    group = group_of(4, 1, 2, 3)
    group.leave(1)
    group.leave(2)
    group.join(4, 0)
    group.join(5, 0)

    assert group.member_ids() == (5, 4, 3)


def test_number_when_its_holder_left_as_the_highest_then_comes_back():
    group = group_of(2, 1, 2)
    group.leave(2)
    group.join(3, 0)

    assert [member.id for member in group.details()] == [0, 1]


@pytest.mark.parametrize(("count", "expected"), [(6, [2, 2, 2]), (8, [3, 3, 2]), (3, [1, 1, 1])])
def test_partitions_when_added_then_are_spread_evenly(count, expected):
    group = group_of(3, 1, 2, 3)

    group.set_partitions(count)

    assert sizes(group) == expected
    assert all_partitions(group) == list(range(count))
    assert group.partitions_count == count


@pytest.mark.parametrize(("count", "expected"), [(3, [1, 1, 1]), (1, [0, 0, 1]), (0, [0, 0, 0])])
def test_partitions_when_deleted_then_the_rest_is_spread_evenly(count, expected):
    group = group_of(6, 1, 2, 3)

    group.set_partitions(count)

    assert sorted(sizes(group)) == expected
    assert all_partitions(group) == list(range(count))


def test_partitions_when_added_while_one_is_pending_then_all_are_spread_and_nothing_pends():
    group = group_of(3, 1)
    poll_all(group, 1)
    group.join(2, 0)
    assert sizes(group) == [3, 0]

    group.set_partitions(6)

    assert owned(group) == {1: (0, 1, 2), 2: (3, 4, 5)}
    assert group.next_deadline_us() is None


def test_partitions_when_deleted_with_uncommitted_work_then_every_member_keeps_some():
    group = group_of(6, 1, 2)
    poll(group, 1)
    poll(group, 2)

    group.set_partitions(3)

    assert sorted(sizes(group)) == [1, 2]
    assert all_partitions(group) == [0, 1, 2]


def test_partitions_when_changed_rapidly_then_stay_shared_out():
    group = group_of(3, 1, 2, 3)
    for step, count in enumerate((6, 4, 9, 1, 0, 5, 7)):
        for client_id in (1, 2, 3):
            poll_all(group, client_id, last_offset=step)
        group.set_partitions(count)
        assert all_partitions(group) == list(range(count))
        assert max(sizes(group)) - min(sizes(group)) <= 1


def test_partitions_when_changed_without_members_then_the_next_member_owns_all():
    group = GroupState(1, rebalancing_timeout_us=TIMEOUT_US)
    group.set_partitions(3)
    group.join(1, 0)

    assert owned(group) == {1: (0, 1, 2)}


def test_many_partitions_when_shared_by_many_then_each_has_its_share():
    group = group_of(1000, *range(40))
    group.leave(7)
    group.set_partitions(1001)

    assert max(sizes(group)) - min(sizes(group)) <= 1
    assert all_partitions(group) == list(range(1001))

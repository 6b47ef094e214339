"""Which partition a poll or a commit of a member is about."""

from __future__ import annotations

import pytest

from iggy_protocol import StatusCode
from iggy_ref_server.faults import ServerFault
from tests.server.groups.group_calls import commit, group_of, owned, poll


def test_single_member_when_polling_one_by_one_then_reads_partitions_in_order():
    group = group_of(3, 1)

    assert [poll(group, 1, last_offset=turn // 3) for turn in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_three_members_when_polling_then_each_stays_with_its_partition():
    group = group_of(3, 1, 2, 3)
    partitions = {client_id: poll(group, client_id) for client_id in (1, 2, 3)}

    assert sorted(partitions.values()) == [0, 1, 2]
    for client_id, partition in partitions.items():
        assert poll(group, client_id) == partition


def test_poll_when_partition_is_named_then_the_cycle_does_not_move():
    group = group_of(3, 1)
    assert poll(group, 1) == 0
    assert poll(group, 1, 2) == 2

    assert poll(group, 1) == 1


@pytest.mark.parametrize("partition", [3, 7, 2**32 - 1])
def test_poll_when_partition_does_not_exist_then_reply_is_empty(partition):
    assert group_of(3, 1).resolve_poll(1, partition) is None


def test_poll_when_partition_belongs_to_another_then_reply_is_empty():
    group = group_of(2, 1, 2)
    (other,) = owned(group)[2]

    assert group.resolve_poll(1, other) is None


def test_cursor_when_the_list_changes_then_goes_on_within_it():
    group = group_of(4, 1)
    for _ in range(3):
        poll(group, 1)
    for partition in range(3):
        commit(group, 1, partition)
    group.join(2, 0)
    assert owned(group)[1] == (0, 1)

    assert [poll(group, 1) for _ in range(3)] == [1, 0, 1]


@pytest.mark.parametrize("action", ["resolve_poll", "resolve_commit"])
@pytest.mark.parametrize("partition", [None, 0, 9])
def test_client_when_no_member_then_is_refused(action, partition):
    group = group_of(3, 1)

    with pytest.raises(ServerFault) as caught:
        getattr(group, action)(2, partition)
    assert caught.value.status == StatusCode.CONSUMER_GROUP_MEMBER_NOT_FOUND


def test_commit_without_partition_when_polled_then_means_the_partition_polled_last():
    # The real server takes the one that will be polled next.
    group = group_of(3, 1)
    poll(group, 1)
    assert group.resolve_commit(1) == 0
    poll(group, 1)
    assert group.resolve_commit(1) == 1
    poll(group, 1, 0)
    assert group.resolve_commit(1) == 0


def test_commit_without_partition_when_the_last_poll_was_empty_then_means_the_one_before():
    group = group_of(3, 1)
    poll(group, 1)
    group.resolve_poll(1)

    assert group.resolve_commit(1) == 0


def test_commit_without_partition_when_nothing_was_polled_then_means_the_next():
    group = group_of(3, 1)
    assert group.resolve_commit(1) == 0
    group.resolve_poll(1)

    assert group.resolve_commit(1) == 1
    assert group.resolve_commit(1) == 1


@pytest.mark.parametrize("partition", [None, 0, 7])
def test_commit_when_the_member_owns_nothing_then_is_refused(partition):
    group = group_of(1, 1, 2)

    with pytest.raises(ServerFault) as caught:
        group.resolve_commit(2, partition)
    assert caught.value.status == StatusCode.NOT_RESOLVED_CONSUMER


def test_commit_when_partition_does_not_exist_then_is_refused():
    with pytest.raises(ServerFault) as caught:
        group_of(3, 1).resolve_commit(1, 7)
    assert caught.value.status == StatusCode.NOT_RESOLVED_CONSUMER


def test_polled_when_noted_for_no_member_then_leaves_no_mark():
    group = group_of(2, 1)
    group.record_polled(9, 1, 5)
    group.record_polled(1, 7, 5)

    group.join(2, 0)

    assert owned(group) == {1: (0,), 2: (1,)}

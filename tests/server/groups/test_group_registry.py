"""The groups of a server, and what becomes of their members."""

from __future__ import annotations

import logging

import pytest

from iggy_protocol import StatusCode
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.groups.group import GroupKey, GroupRegistry
from tests.server.groups.group_calls import TIMEOUT_US, owned, poll_all, sizes

ORDERS = GroupKey(0, 0, 0)
AUDIT = GroupKey(0, 0, 1)
OTHER_TOPIC = GroupKey(0, 1, 0)
OTHER_STREAM = GroupKey(1, 0, 0)
KEYS = (ORDERS, AUDIT, OTHER_TOPIC, OTHER_STREAM)


@pytest.fixture
def registry():
    registry = GroupRegistry(rebalancing_timeout_us=TIMEOUT_US)
    for key in KEYS:
        registry.add_group(key, 4)
    return registry


def test_memberships_when_joined_then_are_listed_in_the_order_of_joining(registry):
    for key in (AUDIT, OTHER_STREAM, ORDERS, AUDIT):
        registry.join(key, 7, 0)

    assert registry.memberships(7) == (AUDIT, OTHER_STREAM, ORDERS)
    assert registry.memberships(8) == ()


def test_leave_when_member_then_ends_that_membership_only(registry):
    registry.join(ORDERS, 7, 0)
    registry.join(AUDIT, 7, 0)

    registry.leave(ORDERS, 7)

    assert registry.memberships(7) == (AUDIT,)
    assert registry.require(ORDERS).members_count == 0


def test_leave_when_no_member_then_is_refused(registry):
    with pytest.raises(ServerFault) as caught:
        registry.leave(ORDERS, 7)
    assert caught.value.status == StatusCode.CONSUMER_GROUP_MEMBER_NOT_FOUND


@pytest.mark.parametrize("action", ["join", "leave"])
def test_group_when_unknown_then_no_client_becomes_a_member(registry, action):
    key = GroupKey(0, 0, 99)
    arguments = (key, 7, 0) if action == "join" else (key, 7)

    with pytest.raises(ServerFault) as caught:
        getattr(registry, action)(*arguments)
    assert caught.value.status == StatusCode.CONSUMER_GROUP_ID_NOT_FOUND
    assert registry.memberships(7) == ()


def test_client_when_gone_then_no_group_keeps_a_ghost(registry):
    for key in KEYS:
        registry.join(key, 7, 0)
        registry.join(key, 8, 0)

    registry.remove_member(7)

    for key in KEYS:
        assert owned(registry.require(key)) == {8: (0, 1, 2, 3)}
    assert registry.memberships(7) == ()
    registry.remove_member(7)


def test_clients_when_reconnected_then_own_each_partition_once(registry):
    for client_id in (1, 2, 3):
        registry.join(ORDERS, client_id, 0)
    for client_id in (1, 2, 3):
        registry.remove_member(client_id)
    assert registry.require(ORDERS).details() == ()
    for client_id in (4, 5, 6):
        registry.join(ORDERS, client_id, 0)

    partitions = owned(registry.require(ORDERS)).values()
    assert sorted(partition for part in partitions for partition in part) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("forget", "arguments", "remaining"),
    [
        ("remove_group", (ORDERS,), (AUDIT, OTHER_TOPIC, OTHER_STREAM)),
        ("remove_topic", (0, 0), (OTHER_TOPIC, OTHER_STREAM)),
        ("remove_stream", (0,), (OTHER_STREAM,)),
        ("remove_group", (GroupKey(9, 9, 9),), KEYS),
    ],
)
def test_groups_when_forgotten_then_so_are_their_memberships(
    registry, forget, arguments, remaining
):
    for key in KEYS:
        registry.join(key, 7, 0)

    getattr(registry, forget)(*arguments)

    assert registry.memberships(7) == remaining
    for key in KEYS:
        assert (registry.find(key) is not None) == (key in remaining)
    registry.remove_member(7)


def test_grant_when_its_group_was_deleted_and_made_again_then_is_not_confirmed(registry):
    registry.join(ORDERS, 7, 0)
    grant = registry.require(ORDERS).resolve_poll(7)
    registry.add_group(ORDERS, 4)
    assert registry.memberships(7) == ()
    registry.join(ORDERS, 7, 0)

    assert not registry.require(ORDERS).confirm(grant)


def test_partitions_when_a_topic_changes_then_all_its_groups_follow(registry):
    registry.join(ORDERS, 7, 0)

    registry.set_partitions(0, 0, 6)

    assert owned(registry.require(ORDERS)) == {7: (0, 1, 2, 3, 4, 5)}
    assert registry.require(AUDIT).partitions_count == 6
    assert registry.require(OTHER_TOPIC).partitions_count == 4


def test_purge_when_of_a_topic_then_its_groups_wait_for_no_commit(registry):
    for key in (ORDERS, OTHER_TOPIC):
        registry.join(key, 7, 0)
        poll_all(registry.require(key), 7)
        registry.join(key, 8, 0)

    registry.reset_progress(0, 0)

    assert sizes(registry.require(ORDERS)) == [2, 2]
    assert sizes(registry.require(OTHER_TOPIC)) == [4, 0]


def test_deadlines_when_hand_overs_are_pending_then_each_group_keeps_its_own(registry, caplog):
    assert registry.next_deadline_us() is None
    for key, now_us in ((ORDERS, 500), (OTHER_TOPIC, 300)):
        registry.join(key, 7, 0)
        poll_all(registry.require(key), 7)
        registry.join(key, 8, now_us)
    assert registry.next_deadline_us() == 300 + TIMEOUT_US

    with caplog.at_level(logging.WARNING):
        registry.expire(300 + TIMEOUT_US)

    assert sizes(registry.require(OTHER_TOPIC)) == [2, 2]
    assert sizes(registry.require(ORDERS)) == [4, 0]
    assert registry.next_deadline_us() == 500 + TIMEOUT_US
    assert len(caplog.records) == 1

"""When a request is sent once more: every row that official clients were seen to follow."""

from __future__ import annotations

import pytest

from iggy_protocol import (
    V0_11,
    V0_12_0,
    V0_12_2,
    CommandCode,
    Refresh,
    RepeatAction,
    RepeatRule,
    StatusCode,
    WriteLane,
    repeat_rule,
    rule_after_eviction,
    rule_after_loss,
    write_lane,
)

LATER = [V0_12_0, V0_12_2]
FAIL = RepeatRule(RepeatAction.FAIL)
SEND, POLL, DELETE = CommandCode.SEND_MESSAGES, CommandCode.POLL_MESSAGES, CommandCode.DELETE_STREAM


@pytest.mark.parametrize("code", [SEND, POLL, DELETE])
def test_error_when_of_0_9_then_only_the_transient_ones_are_repeated(code):
    assert repeat_rule(V0_11, code, 57) == RepeatRule(RepeatAction.REPEAT)
    assert repeat_rule(V0_11, code, 58) == RepeatRule(RepeatAction.REPEAT, Refresh.ROSTER)
    for status in (59, 85, 87, 88, 89, 90, 5009, 1, 40):
        assert repeat_rule(V0_11, code, status) == FAIL


@pytest.mark.parametrize("dialect", LATER)
@pytest.mark.parametrize("code", [SEND, POLL, DELETE])
def test_error_when_of_any_command_then_has_one_rule(dialect, code):
    expected = {
        57: (RepeatAction.REPEAT, Refresh.NOTHING),
        58: (RepeatAction.REPEAT, Refresh.ROSTER),
        88: (RepeatAction.RENUMBER, Refresh.NOTHING),
        89: (RepeatAction.REPEAT, Refresh.ROUTE),
        90: (RepeatAction.REPEAT, Refresh.NOTHING),
    }
    for status, (action, refresh) in expected.items():
        rule = repeat_rule(dialect, code, status)
        assert (rule.action, rule.refresh, rule.is_once) == (action, refresh, False)
    for status in (59, 85, StatusCode.UNAUTHENTICATED, 1012, 123_456):
        assert repeat_rule(dialect, code, status) == FAIL


@pytest.mark.parametrize("dialect", LATER)
def test_history_when_unavailable_then_a_plain_send_starts_over_once(dialect):
    rule = repeat_rule(dialect, SEND, 87)
    assert (rule.action, rule.refresh, rule.is_once) == (
        RepeatAction.RENUMBER,
        Refresh.ROUTE,
        True,
    )
    assert repeat_rule(dialect, SEND, 87, has_context=True) == FAIL
    assert repeat_rule(dialect, POLL, 87) == FAIL


@pytest.mark.parametrize("dialect", LATER)
def test_partition_when_not_owned_then_a_poll_is_tried_once_more_after_a_sync(dialect):
    for code in (POLL, CommandCode.POLL_DEFERRED):
        rule = repeat_rule(dialect, code, 5009, has_context=True)
        assert (rule.action, rule.refresh, rule.is_once) == (
            RepeatAction.RENUMBER,
            Refresh.GROUP,
            True,
        )
    assert repeat_rule(dialect, CommandCode.STORE_CONSUMER_OFFSET, 5009) == FAIL


def test_connection_when_lost_then_0_9_repeats_only_what_writes_nothing():
    for code in (POLL, CommandCode.PING, CommandCode.LOGOUT_USER, CommandCode.GET_STREAM):
        assert rule_after_loss(V0_11, code).action is RepeatAction.RENUMBER
    for code in (SEND, DELETE, CommandCode.STORE_CONSUMER_OFFSET, CommandCode.REGISTER):
        assert rule_after_loss(V0_11, code) == FAIL


@pytest.mark.parametrize("dialect", LATER)
def test_connection_when_lost_later_then_the_frame_goes_over_another_one(dialect):
    for code in (SEND, DELETE, POLL):
        assert rule_after_loss(dialect, code).action is RepeatAction.REBIND
    assert rule_after_loss(dialect, POLL, moves_offset=True) == FAIL


def test_eviction_when_received_then_only_a_session_that_goes_on_is_bound_again():
    for reason in range(20):
        action = rule_after_eviction(V0_12_0, SEND, reason).action
        assert action is (RepeatAction.REBIND if reason in {1, 13} else RepeatAction.FAIL)
        assert rule_after_eviction(V0_11, POLL, reason) == FAIL
    assert rule_after_eviction(V0_12_0, POLL, 1, moves_offset=True) == FAIL


@pytest.mark.parametrize("dialect", [V0_11, *LATER])
def test_lane_when_a_request_writes_nothing_then_it_has_none(dialect):
    for code in (POLL, CommandCode.PING, CommandCode.SYNC_CONSUMER_GROUP):
        assert write_lane(dialect, code) is WriteLane.NONE


def test_lane_when_of_0_9_then_all_writes_share_it():
    for code in (SEND, DELETE, CommandCode.STORE_CONSUMER_OFFSET, CommandCode.LOGOUT_USER):
        assert write_lane(V0_11, code) is WriteLane.SESSION


@pytest.mark.parametrize("dialect", LATER)
def test_lane_when_later_then_partitions_have_their_own(dialect):
    for code in (SEND, CommandCode.STORE_CONSUMER_OFFSET, CommandCode.DELETE_CONSUMER_OFFSET):
        assert write_lane(dialect, code) is WriteLane.PARTITION
    for code in (DELETE, CommandCode.UPDATE_TOPIC, CommandCode.LOGOUT_USER):
        assert write_lane(dialect, code) is WriteLane.METADATA

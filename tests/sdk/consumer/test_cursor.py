"""Where polls start: one cursor per partition."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from iggy_protocol import PollingStrategy
from iggy_sdk.consumer.cursor import EMPTY_REPLY, PartitionCursors, PollDecision, ReplyOffsets
from iggy_sdk.consumer.start import StartPlan

NEXT, FIRST = PollingStrategy.next(), PollingStrategy.first()


@given(
    start=st.sampled_from([NEXT, FIRST, PollingStrategy.last(), PollingStrategy.offset(7)]),
    lasts=st.dictionaries(st.integers(0, 5), st.integers(0, 100)),
)
def test_strategy_when_some_partitions_were_read_starts_the_others_afresh(start, lasts):
    cursors = PartitionCursors(StartPlan(start))
    for partition_id, last in lasts.items():
        cursors.take(partition_id, last)
    for partition_id in range(6):
        if partition_id in lasts:
            expected = PollingStrategy.offset(lasts[partition_id] + 1)
        else:
            expected = start
        assert cursors.strategy(partition_id) == expected


def test_strategy_when_a_partition_is_lost_asks_for_the_stored_offset():
    cursors = PartitionCursors(StartPlan(FIRST))
    cursors.take(1, 40)
    cursors.reset_to_stored(1)
    assert cursors.strategy(1) == NEXT
    assert cursors.strategy(2) == FIRST


def test_strategy_when_seeking_goes_there_once():
    cursors = PartitionCursors(StartPlan(NEXT))
    cursors.take(0, 9)
    cursors.seek(PollingStrategy.offset(3), 0)
    assert cursors.has_pending_seek
    assert cursors.strategy(0) == PollingStrategy.offset(3)
    assert cursors.skip_before(0) == 0
    cursors.take(0, 5)
    assert cursors.strategy(0) == PollingStrategy.offset(6)
    assert not cursors.has_pending_seek


def test_strategy_when_seeking_everywhere_applies_to_all_partitions():
    cursors = PartitionCursors(StartPlan(NEXT))
    cursors.take(0, 9)
    cursors.seek(FIRST)
    assert cursors.strategy(0) == FIRST
    assert cursors.strategy(8) == FIRST


@pytest.mark.parametrize(
    ("start", "read", "seen", "verdict"),
    [
        (NEXT, None, ReplyOffsets(9, 0, 9), PollDecision.TAKE),
        (NEXT, None, EMPTY_REPLY, PollDecision.EMPTY),
        (FIRST, None, ReplyOffsets(9, 5, 9), PollDecision.ASK),
        (FIRST, None, ReplyOffsets(9), PollDecision.ASK),
        (FIRST, 4, ReplyOffsets(9, 5, 9), PollDecision.TAKE),
        (NEXT, 4, ReplyOffsets(9, 3, 9), PollDecision.TAKE),
        (NEXT, 4, ReplyOffsets(9, 0, 4), PollDecision.ASK),
        (NEXT, 40, ReplyOffsets(9, 0, 9), PollDecision.LOST),
        (NEXT, 40, EMPTY_REPLY, PollDecision.EMPTY),
    ],
)
def test_judge_next_when_the_server_chose_the_partition(start, read, seen, verdict):
    cursors = PartitionCursors(StartPlan(start))
    if read is not None:
        cursors.take(0, read)
    assert cursors.decide_next(0, seen) is verdict


@pytest.mark.parametrize(
    ("read", "seen", "certain", "verdict"),
    [
        (None, ReplyOffsets(9, 0, 9), True, PollDecision.TAKE),
        (4, ReplyOffsets(9, 5, 9), True, PollDecision.TAKE),
        (4, ReplyOffsets(9, 7, 9), True, PollDecision.TAKE),
        (4, ReplyOffsets(4), True, PollDecision.EMPTY),
        (4, ReplyOffsets(3), True, PollDecision.LOST),
        (4, EMPTY_REPLY, True, PollDecision.LOST),
        (4, EMPTY_REPLY, False, PollDecision.EMPTY),
        (0, EMPTY_REPLY, True, PollDecision.EMPTY),
    ],
)
def test_judge_when_the_partition_was_named(read, seen, certain, verdict):
    cursors = PartitionCursors(StartPlan(NEXT))
    if read is not None:
        cursors.take(0, read)
    assert cursors.decide(0, seen, certain=certain) is verdict


def test_skip_before_when_replay_is_allowed_leaves_nothing_out():
    strict, lenient = (
        PartitionCursors(StartPlan(NEXT)),
        PartitionCursors(StartPlan(NEXT), allow_replay=True),
    )
    for cursors in (strict, lenient):
        cursors.take(0, 9)
    assert strict.skip_before(0) == 10
    assert lenient.skip_before(0) == 0
    assert lenient.decide_next(0, ReplyOffsets(9, 0, 9)) is PollDecision.TAKE


def test_positions_when_rewound_tell_what_is_read_next():
    cursors = PartitionCursors(StartPlan(NEXT))
    cursors.take(2, 9)
    cursors.take(1, 3)
    cursors.rewind(2, 5)
    assert cursors.positions() == {1: 4, 2: 5}
    assert cursors.position(0) is None

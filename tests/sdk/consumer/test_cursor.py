"""Where polls start: one cursor per partition."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from iggy_protocol import PollingStrategy
from iggy_sdk.consumer.cursor import NOTHING, Cursors, Seen, Verdict

NEXT, FIRST = PollingStrategy.next(), PollingStrategy.first()


@given(
    start=st.sampled_from([NEXT, FIRST, PollingStrategy.last(), PollingStrategy.offset(7)]),
    lasts=st.dictionaries(st.integers(0, 5), st.integers(0, 100)),
)
def test_strategy_when_some_partitions_were_read_starts_the_others_afresh(start, lasts):
    cursors = Cursors(start)
    for partition_id, last in lasts.items():
        cursors.take(partition_id, last)
    for partition_id in range(6):
        if partition_id in lasts:
            expected = PollingStrategy.offset(lasts[partition_id] + 1)
        else:
            expected = start
        assert cursors.strategy(partition_id) == expected


def test_strategy_when_a_partition_is_lost_asks_for_the_stored_offset():
    cursors = Cursors(FIRST)
    cursors.take(1, 40)
    cursors.lose(1)
    assert cursors.strategy(1) == NEXT
    assert cursors.strategy(2) == FIRST


def test_strategy_when_somebody_seeks_goes_there_once():
    cursors = Cursors(NEXT)
    cursors.take(0, 9)
    cursors.seek(PollingStrategy.offset(3), 0)
    assert cursors.has_wanted
    assert cursors.strategy(0) == PollingStrategy.offset(3)
    assert cursors.skip_before(0) == 0
    cursors.take(0, 5)
    assert cursors.strategy(0) == PollingStrategy.offset(6)
    assert not cursors.has_wanted


def test_strategy_when_somebody_seeks_everywhere_applies_to_all_partitions():
    cursors = Cursors(NEXT)
    cursors.take(0, 9)
    cursors.seek(FIRST)
    assert cursors.strategy(0) == FIRST
    assert cursors.strategy(8) == FIRST


@pytest.mark.parametrize(
    ("start", "read", "seen", "verdict"),
    [
        (NEXT, None, Seen(9, 0, 9), Verdict.TAKE),
        (NEXT, None, NOTHING, Verdict.EMPTY),
        (FIRST, None, Seen(9, 5, 9), Verdict.ASK),
        (FIRST, None, Seen(9), Verdict.ASK),
        (FIRST, 4, Seen(9, 5, 9), Verdict.TAKE),
        (NEXT, 4, Seen(9, 3, 9), Verdict.TAKE),
        (NEXT, 4, Seen(9, 0, 4), Verdict.ASK),
        (NEXT, 40, Seen(9, 0, 9), Verdict.LOST),
        (NEXT, 40, NOTHING, Verdict.EMPTY),
    ],
)
def test_judge_next_when_the_server_chose_the_partition(start, read, seen, verdict):
    cursors = Cursors(start)
    if read is not None:
        cursors.take(0, read)
    assert cursors.judge_next(0, seen) is verdict


@pytest.mark.parametrize(
    ("read", "seen", "certain", "verdict"),
    [
        (None, Seen(9, 0, 9), True, Verdict.TAKE),
        (4, Seen(9, 5, 9), True, Verdict.TAKE),
        (4, Seen(9, 7, 9), True, Verdict.TAKE),
        (4, Seen(4), True, Verdict.EMPTY),
        (4, Seen(3), True, Verdict.LOST),
        (4, NOTHING, True, Verdict.LOST),
        (4, NOTHING, False, Verdict.EMPTY),
        (0, NOTHING, True, Verdict.EMPTY),
    ],
)
def test_judge_when_the_partition_was_named(read, seen, certain, verdict):
    cursors = Cursors(NEXT)
    if read is not None:
        cursors.take(0, read)
    assert cursors.judge(0, seen, certain=certain) is verdict


def test_skip_before_when_replay_is_allowed_leaves_nothing_out():
    strict, lenient = Cursors(NEXT), Cursors(NEXT, allow_replay=True)
    for cursors in (strict, lenient):
        cursors.take(0, 9)
    assert strict.skip_before(0) == 10
    assert lenient.skip_before(0) == 0
    assert lenient.judge_next(0, Seen(9, 0, 9)) is Verdict.TAKE


def test_positions_when_rewound_tell_what_is_read_next():
    cursors = Cursors(NEXT)
    cursors.take(2, 9)
    cursors.take(1, 3)
    cursors.rewind(2, 5)
    assert cursors.positions() == {1: 4, 2: 5}
    assert cursors.position(0) is None

"""The books: nothing is stored past a message that is still being worked on."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from iggy_sdk.consumer.auto_commit import AutoCommit
from iggy_sdk.consumer.tracker import OffsetTracker, OffsetTrackers

# Offsets with holes, as a server leaves them that drops duplicates.
OFFSETS = st.sets(st.integers(0, 60), min_size=1, max_size=20).map(sorted)


def eligible(mode: AutoCommit, offsets: list[int], ends: list[int], done: set[int]) -> int | None:
    """Work out from scratch what a mode wants stored, as the model of the ledger."""
    due = None
    for counted, offset in enumerate(offsets, start=1):
        if offset not in done:
            break
        if mode.trigger.name == "EACH" or (mode.trigger.name == "NTH" and counted % mode.nth == 0):
            due = offset
        if mode.trigger.name == "ALL" and offset in ends:
            due = offset
    return due


MODES = st.one_of(
    st.just(AutoCommit.after_each()),
    st.just(AutoCommit.after_all()),
    st.just(AutoCommit.disabled()),
    st.integers(1, 5).map(AutoCommit.after_every_nth),
)


@given(mode=MODES, offsets=OFFSETS, data=st.data())
def test_due_when_acknowledged_in_any_order_equals_the_sequential_model(mode, offsets, data):
    ends = sorted({offsets[-1], *data.draw(st.sets(st.sampled_from(offsets)))})
    tracker = OffsetTracker(0, mode)
    for offset in offsets:
        if offset in ends:
            tracker.poll(offset)
        tracker.open(offset)
    done: set[int] = set()
    for offset in data.draw(st.permutations(offsets)):
        tracker.acknowledge(offset)
        done.add(offset)
        assert tracker.due == eligible(mode, offsets, ends, done)
        missing = [older for older in offsets if older not in done]
        if missing and tracker.due is not None:
            assert tracker.due < missing[0]


@given(offsets=OFFSETS, data=st.data())
def test_acknowledged_when_some_are_not_done_stays_before_the_gap(offsets, data):
    done = data.draw(st.sets(st.sampled_from(offsets)))
    tracker = OffsetTracker(0, AutoCommit.interval(1))
    tracker.poll(offsets[-1])
    for offset in offsets:
        tracker.open(offset)
    for offset in data.draw(st.permutations(sorted(done))):
        tracker.acknowledge(offset)
    tracker.tick()
    prefix = [offset for n, offset in enumerate(offsets) if done.issuperset(offsets[: n + 1])]
    assert tracker.due == (prefix[-1] if prefix else None)


@given(mode=MODES, offsets=OFFSETS)
def test_advance_when_in_order_equals_opening_and_acknowledging(mode, offsets):
    one, other = OffsetTracker(0, mode), OffsetTracker(0, mode)
    for tracker in (one, other):
        tracker.poll(offsets[-1])
    for offset in offsets:
        one.advance(offset, 1)
        other.open(offset)
        other.acknowledge(offset)
        assert (one.due, one.acknowledged) == (other.due, other.acknowledged)


def test_ledger_when_nothing_was_handed_out_offers_nothing():
    tracker = OffsetTracker(0, AutoCommit.interval(1))
    tracker.poll(9)
    tracker.tick()
    assert not tracker.has_due
    assert not tracker.is_fully_stored


def test_ledger_when_all_is_stored_is_settled():
    tracker = OffsetTracker(0, AutoCommit.after_each())
    tracker.poll(2)
    tracker.advance(2, 3)
    assert tracker.waiting == 3
    tracker.store(2)
    assert tracker.is_fully_stored
    assert not tracker.has_due
    assert tracker.waiting == 0


def test_ledger_when_a_tail_is_forgotten_wants_the_end_that_is_left():
    tracker = OffsetTracker(0, AutoCommit.after_all())
    tracker.poll(4)
    tracker.poll(9)
    tracker.advance(4, 5)
    assert tracker.due == 4
    tracker.forget_undelivered()
    assert tracker.polled == 4
    tracker.poll(7)
    tracker.advance(7, 3)
    assert tracker.due == 7


@pytest.mark.parametrize(
    ("mode", "count"),
    [
        (AutoCommit.after_every_nth(5), 3),
        (AutoCommit.after_each(coalesce_messages=10), 8),
        (AutoCommit.after_all(), None),
    ],
)
def test_count_to_mark_when_two_are_done_says_how_many_are_left(mode, count):
    tracker = OffsetTracker(0, mode)
    tracker.advance(1, 2)
    assert tracker.messages_until_due() == count


def test_book_when_a_partition_is_forgotten_takes_no_news_of_it():
    book = OffsetTrackers(AutoCommit.after_each())
    old = book.get(3)
    old.poll(5)
    old.open(5)
    book.forget(3)
    old.acknowledge(5)
    assert book.with_due() == []
    assert book.is_fully_stored
    assert book.get(3) is not old

"""A few seconds of soak in every gate, and the ledger that judges a whole hour of it."""

from __future__ import annotations

import pytest

from iggy_protocol import SendConfirmation
from tests.server.soak.ledger import Intervals, Ledger, batch_payloads, batch_size
from tests.server.soak.run import Plan, soak
from tests.server.watching import Series

SEED = 13


@pytest.mark.timeout(180)
def test_server_when_soaked_for_seconds_then_keeps_every_promise(tmp_path):
    said: list[str] = []

    report = soak(Plan(minutes=0.2, rate=500.0, seed=SEED, say=said.append), tmp_path)

    assert report.is_clean, report.table()
    assert report.counts["acknowledged"] > 500
    assert report.counts["confirmed"] > 100
    assert report.counts["topics churned"] > 0
    assert sum(report.restarts.values()) == 3
    assert report.pings > 20


# ---- the ledger


@pytest.fixture
def ledger():
    made = Ledger(1)
    made.begin_life("written")
    return made


def send(ledger, batches, *, acknowledged=True):
    [track] = ledger.tracks
    for _ in range(batches):
        if acknowledged:
            ledger.acknowledge(track, track.next_batch, was_disturbed=False)
        else:
            ledger.give_up(track, track.next_batch)
        track.next_batch += 1


def read(ledger, batches, *, at=None):
    [track] = ledger.tracks
    offset = track.last_offset + 1 if at is None else at
    for batch in batches:
        for payload in batch_payloads(0, batch):
            ledger.see(track, offset, payload)
            offset += 1


def test_ledger_when_everything_is_read_then_is_content(ledger):
    send(ledger, 10)
    read(ledger, range(10))
    for offset in range(ledger.tracks[0].last_offset + 1):
        ledger.tracks[0].grouped.add(offset, offset)

    assert ledger.is_read_up()
    assert ledger.is_grouped_up()
    ledger.settle()
    assert not ledger.violations
    assert ledger.counts["consumed"] == ledger.counts["acknowledged"]


def test_ledger_when_an_acknowledged_batch_is_missing_then_counts_it_as_lost(ledger):
    send(ledger, 3)
    read(ledger, [0, 2])

    assert ledger.counts["lost"] == batch_size(0, 1)
    assert ledger.violations


def test_ledger_when_the_end_is_missing_then_counts_it_as_lost(ledger):
    send(ledger, 3)
    read(ledger, [0, 1])

    assert not ledger.is_read_up()
    ledger.settle()
    assert ledger.counts["lost"] == batch_size(0, 2)


def test_ledger_when_an_uncertain_batch_is_missing_then_is_content(ledger):
    send(ledger, 1)
    send(ledger, 1, acknowledged=False)
    send(ledger, 1)
    read(ledger, [0, 2])

    assert ledger.is_read_up()
    assert not ledger.violations


def test_ledger_when_memory_is_killed_then_its_losses_are_within_the_promise():
    ledger = Ledger(1)
    ledger.begin_life("memory")
    send(ledger, 2)
    read(ledger, [0])
    ledger.end_life(is_killed=True)
    ledger.begin_life("written")
    send(ledger, 1)
    read(ledger, [2], at=70_000)

    assert ledger.counts["lost within the promise"] == batch_size(0, 1)
    assert ledger.counts["lost"] == 0
    assert not ledger.violations


def test_ledger_when_a_message_comes_twice_then_accuses(ledger):
    send(ledger, 2)
    read(ledger, [0, 1, 1])

    assert ledger.counts["duplicates"] == batch_size(0, 1)
    assert "there twice" in ledger.violations[0]


def test_ledger_when_an_offset_is_given_again_then_accuses(ledger):
    send(ledger, 3)
    read(ledger, [0, 1])
    read(ledger, [2], at=0)

    assert "was message" in ledger.violations[0]


@pytest.mark.parametrize("is_read_first", [True, False])
def test_ledger_when_a_batch_is_not_where_it_was_told_to_be_then_accuses(ledger, is_read_first):
    [track] = ledger.tracks
    send(ledger, 2)
    told = [SendConfirmation(0, 0, 0, offset) for offset in (0, batch_size(0, 0) + 1)]
    if is_read_first:
        read(ledger, [0, 1, 2])
    for batch, confirmation in enumerate(told):
        ledger.confirm(track, batch, confirmation)
    if not is_read_first:
        read(ledger, [0, 1, 2])

    assert len(ledger.violations) == 1
    assert "batch 1 was told to be at offset" in ledger.violations[0]


def test_ledger_when_a_payload_is_changed_then_accuses(ledger):
    send(ledger, 1)
    [track] = ledger.tracks
    ledger.see(track, 0, b"0/0/0:" + b"changed")

    assert "not a message of it" in ledger.violations[0]


def test_ledger_when_the_group_misses_offsets_then_accuses(ledger):
    send(ledger, 3)
    read(ledger, [0, 1, 2])
    ledger.tracks[0].grouped.add(0, 0)

    ledger.settle()
    assert "the group never got offsets" in ledger.violations[0]


def test_ledger_when_a_buffer_outlives_a_killed_memory_life_then_the_group_need_not_see_it():
    ledger = Ledger(1)
    ledger.begin_life("memory")
    send(ledger, 2)
    ledger.end_life(is_killed=True)
    ledger.begin_life("written")
    read(ledger, [0, 1])

    assert ledger.is_grouped_up()
    ledger.settle()
    assert not ledger.violations


def test_ledger_when_a_batch_of_an_earlier_life_is_read_late_then_the_group_must_see_it():
    ledger = Ledger(1)
    ledger.begin_life("fsync")
    send(ledger, 2)
    ledger.end_life(is_killed=True)
    ledger.begin_life("memory")
    read(ledger, [0])
    ledger.end_life(is_killed=True)
    ledger.begin_life("written")
    read(ledger, [1])

    ledger.settle()
    assert "the group never got offsets" in ledger.violations[0]


def test_intervals_when_filled_in_any_order_then_name_what_is_missing():
    left, right = Intervals(), Intervals()
    left.add(0, 9)
    for first, last in ((7, 7), (1, 2), (4, 4), (3, 3), (2, 3)):
        right.add(first, last)

    assert right.ranges == [[1, 4], [7, 7]]
    assert right.count() == 5
    assert left.missing_from(right) == [(0, 0), (5, 6), (8, 9)]
    assert right.missing_from(left) == []


def test_series_when_long_enough_then_tells_its_trend():
    series = Series([float(second) for second in range(200)], list(range(0, 2000, 10)))

    trend = series.per_minute()

    assert trend is not None
    assert round(trend) == 600
    assert Series([0.0, 10.0], [1, 2]).per_minute() is None

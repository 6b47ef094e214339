"""When to write on the loop and when to step aside."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_ref_server.storage.files import WritebackLimit

QUICK_S = 0.001
SLOW_S = 0.02


class HandClock:
    """A clock that a test moves."""

    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def writeback_limit(clock):
    return WritebackLimit(clock, slow_s=0.005, pause_s=1.0, pause_max_s=4.0, probes_count=3)


def write(writeback_limit, clock, took_s):
    """Write inline, as long as it takes."""
    assert writeback_limit.allows(100)
    began_s = writeback_limit.begin()
    clock.now_s += took_s
    writeback_limit.end(began_s)


def pause_s(writeback_limit, clock):
    """Wait until inline writes are allowed again; return how long that was."""
    began_s = clock.now_s
    while not writeback_limit.allows(100):
        clock.now_s += 0.25
    return clock.now_s - began_s


def test_pressure_when_writes_are_quick_then_allows_all(writeback_limit, clock):
    for _ in range(100):
        write(writeback_limit, clock, QUICK_S)

    assert writeback_limit.pauses_count == 0


def test_pressure_when_one_write_is_slow_then_pauses_for_a_while(writeback_limit, clock):
    write(writeback_limit, clock, SLOW_S)

    assert not writeback_limit.allows(100)
    assert pause_s(writeback_limit, clock) == 1.0
    assert writeback_limit.pauses_count == 1


def test_pressure_when_a_probe_is_slow_then_the_pause_doubles_up_to_a_limit(writeback_limit, clock):
    pauses = []
    for _ in range(5):
        write(writeback_limit, clock, SLOW_S)
        pauses.append(pause_s(writeback_limit, clock))

    assert pauses == [1.0, 2.0, 4.0, 4.0, 4.0]


def test_pressure_when_all_probes_are_quick_then_the_next_pause_is_short_again(
    writeback_limit, clock
):
    for _ in range(3):
        write(writeback_limit, clock, SLOW_S)
        pause_s(writeback_limit, clock)
    for _ in range(3):
        write(writeback_limit, clock, QUICK_S)

    write(writeback_limit, clock, SLOW_S)

    assert pause_s(writeback_limit, clock) == 1.0


def test_pressure_when_some_probes_are_quick_then_it_is_not_over_yet(writeback_limit, clock):
    write(writeback_limit, clock, SLOW_S)
    pause_s(writeback_limit, clock)
    write(writeback_limit, clock, QUICK_S)

    write(writeback_limit, clock, SLOW_S)

    assert pause_s(writeback_limit, clock) == 2.0


def test_pressure_when_a_write_is_large_then_it_is_never_inline(clock):
    writeback_limit = WritebackLimit(clock, inline_bytes_max=100)

    assert writeback_limit.allows(100)
    assert not writeback_limit.allows(101)


@given(st.lists(st.floats(0, 0.1), max_size=60))
def test_pressure_when_any_times_are_taken_then_pauses_are_bounded(times_s):
    clock = HandClock()
    writeback_limit = WritebackLimit(clock, slow_s=0.005, pause_s=1.0, pause_max_s=4.0)

    for took_s in times_s:
        write(writeback_limit, clock, took_s)
        assert pause_s(writeback_limit, clock) <= 4.25

    slow_count = sum(took_s > 0.006 for took_s in times_s)
    assert slow_count <= writeback_limit.pauses_count <= len(times_s)

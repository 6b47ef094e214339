"""Rounds, idle waits and lanes, the small pure parts."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import TYPE_CHECKING

import hypothesis.strategies as st
from hypothesis import given

from iggy_sdk.consumer.idle import (
    IDLE_SECONDS_MAX,
    IDLE_SECONDS_MIN,
    EndDetector,
    IdleBackoff,
    PartitionRound,
)
from iggy_sdk.consumer.runner import OrderedQueue

if TYPE_CHECKING:
    from collections.abc import Hashable


def test_round_when_every_partition_was_quiet_is_over_as_one_comes_again():
    rounds = PartitionRound()
    assert [rounds.observe(partition, True) for partition in (0, 1, 2, 0)] == [False] * 3 + [True]


def test_round_when_one_partition_had_something_begins_anew():
    rounds = PartitionRound()
    said = [(0, True), (1, False), (2, True), (0, True), (1, True), (2, True)]
    assert [rounds.observe(*word) for word in said] == [False] * 5 + [True]


def test_round_when_the_partitions_are_known_needs_no_second_poll_of_any_and_one_of_all():
    rounds, both = PartitionRound(), frozenset({0, 1})
    assert not rounds.observe(0, True, expected=both)
    assert not rounds.observe(0, True, expected=both)
    assert rounds.observe(1, True, expected=both)


def test_round_when_other_partitions_are_expected_now_waits_for_those():
    rounds = PartitionRound()
    assert not rounds.observe(0, True, expected=frozenset({0, 1}))
    assert not rounds.observe(2, True, expected=frozenset({2, 3}))
    assert rounds.observe(3, True, expected=frozenset({2, 3}))


def test_end_when_a_partition_was_caught_up_with_and_grows_again_is_not_put_off():
    add_reader = EndDetector()
    moments = []
    for partition_id, at_end in ((0, True), (1, False), (0, False), (1, True), (0, False)):
        add_reader.observe(partition_id, at_end)
        moments.append(add_reader.is_over)
    assert moments == [False] * 4 + [True]


def test_idle_backoff_when_nothing_comes_doubles_up_to_its_bound():
    backoff = IdleBackoff()
    waits = [backoff.take() for _ in range(12)]
    assert waits[0] == IDLE_SECONDS_MIN
    assert waits[-1] == IDLE_SECONDS_MAX
    assert all(later in (2 * wait, IDLE_SECONDS_MAX) for wait, later in pairwise(waits))
    backoff.reset()
    assert backoff.take() == IDLE_SECONDS_MIN


@given(
    jobs=st.lists(st.integers(0, 3), max_size=30),
    workers=st.integers(1, 5),
    seed=st.integers(0, 2**32),
)
def test_ordered_queue_when_several_workers_take_jobs_keeps_order_and_leaves_none_idle(
    jobs, workers, seed
):
    chance = random.Random(seed)
    queue: OrderedQueue[int] = OrderedQueue()
    running: dict[Hashable, int] = {}
    finished: list[int] = []
    waiting = list(enumerate(jobs))
    while waiting or queue:
        if waiting and chance.random() < 0.6:
            number, key = waiting.pop(0)
            queue.add(key, number)
        while len(running) < workers and (taken := queue.take()) is not None:
            assert taken[0] not in running
            running[taken[0]] = taken[1]
        started = set(finished) | set(running.values()) | {number for number, _ in waiting}
        held_back = {jobs[number] for number in range(len(jobs)) if number not in started}
        assert len(running) == workers or held_back <= set(running)
        if running and chance.random() < 0.5:
            done = chance.choice(list(running))
            finished.append(running.pop(done))
            queue.finish(done)
    assert sorted(finished) == list(range(len(jobs)))
    for key in set(jobs):
        own = [number for number in finished if jobs[number] == key]
        assert own == sorted(own)


def test_ordered_queue_when_waiting_jobs_are_dropped_keeps_running_ones():
    queue: OrderedQueue[str] = OrderedQueue()
    for key, job in (("a", "a1"), ("a", "a2"), ("b", "b1")):
        queue.add(key, job)
    assert queue.take() == ("a", "a1")
    queue.drop_waiting()
    assert len(queue) == 1
    assert queue.take() is None
    queue.finish("a")
    assert len(queue) == 0
    queue.add("b", "b2")
    assert queue.take() == ("b", "b2")

"""The batcher against a model: nothing lost, order kept, bounds held, nobody lingers too long."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from iggy_sdk.producer.accumulator import STALE_TIMERS_MAX, Accumulator, ProducerBatch

BYTES_MAX = 50


def accumulator(
    *,
    batch_length: int | None = 3,
    batch_size: int | None = None,
    linger: float = 1.0,
    bytes_max: int = 1_000,
) -> Accumulator[str, int]:
    """Make one whose tickets are numbers."""
    return Accumulator(
        batch_length=batch_length,
        batch_size=batch_size,
        linger=linger,
        bytes_max=bytes_max,
        make_outcome=count().__next__,
    )


def put(
    into: Accumulator[str, int], destination: str, *messages: str, now: float = 0.0, size: int = 10
):
    """Add messages that are their own originals."""
    return [
        into.add(destination, message, original=message, size_bytes=size, now=now)
        for message in messages
    ]


def take_all(source: Accumulator[str, int], *, now: float = 0.0) -> list[list[str]]:
    """Take and finish whatever is ready."""
    taken = []
    while (batch := source.take()) is not None:
        taken.append(list(batch.messages))
        source.done(batch, now=now)
    return taken


def test_add_when_count_is_reached_then_batch_is_ready():
    box = accumulator(batch_length=2)

    put(box, "a", "1")
    assert (box.ready_count, box.take()) == (0, None)

    put(box, "a", "2", "3")
    assert take_all(box) == [["1", "2"]]


def test_add_when_bytes_are_reached_then_batch_is_ready():
    box = accumulator(batch_length=None, batch_size=25)

    put(box, "a", "1", "2", "3", "4")

    assert take_all(box) == [["1", "2", "3"]]


def test_add_when_request_would_be_too_large_then_next_batch_begins():
    box = accumulator(batch_length=None, bytes_max=25)

    first, second, third = put(box, "a", "1", "2", "3")

    assert first is second
    assert third is not first
    assert take_all(box) == [["1", "2"]]


def test_add_when_one_message_exceeds_every_bound_then_it_travels_alone():
    box = accumulator(batch_length=None, batch_size=40, bytes_max=25)

    put(box, "a", "1")
    put(box, "a", "huge", size=80)
    put(box, "a", "2")
    box.flush()

    assert take_all(box) == [["1"], ["huge"], ["2"]]


def test_tick_when_oldest_message_lingered_then_batch_is_ready():
    box = accumulator(batch_length=None, linger=1.0)

    put(box, "a", "1", now=10.0)
    put(box, "a", "2", now=10.9)
    assert box.deadline == 11.0
    box.tick(10.99)
    assert box.ready_count == 0
    box.tick(11.0)

    assert take_all(box) == [["1", "2"]]
    assert (box.deadline, box.is_empty) == (None, True)


def test_add_when_linger_is_zero_then_batch_is_ready_and_grows_until_taken():
    box = accumulator(batch_length=None, linger=0.0)

    put(box, "a", "1")
    assert box.ready_count == 1
    put(box, "a", "2")

    assert take_all(box) == [["1", "2"]]


def test_take_when_batch_of_destination_is_in_flight_then_only_others_give():
    box = accumulator(batch_length=1)
    put(box, "a", "1", "2")
    put(box, "b", "3")

    first, second = box.take(), box.take()

    assert first is not None
    assert second is not None
    assert (first.messages, second.messages, box.take()) == (["1"], ["3"], None)
    box.done(first, now=0.0)
    assert take_all(box) == [["2"]]


def test_done_when_rest_has_not_lingered_then_destination_waits_for_the_rest_of_its_time():
    box = accumulator(batch_length=2, linger=1.0)
    put(box, "a", "1", "2", now=0.0)
    batch = box.take()
    assert batch is not None
    put(box, "a", "3", now=0.5)

    box.done(batch, now=0.7)

    assert (box.ready_count, box.deadline) == (0, 1.5)


def test_done_when_rest_lingered_meanwhile_then_it_is_ready_as_one_batch():
    box = accumulator(batch_length=10, linger=1.0)
    put(box, "a", "1", now=0.0)
    box.tick(1.0)
    batch = box.take()
    assert batch is not None
    put(box, "a", "2", now=2.0)
    box.tick(3.0)
    put(box, "a", "3", now=3.5)

    box.done(batch, now=3.5)

    assert take_all(box) == [["2", "3"]]


def test_flush_when_batch_of_destination_is_in_flight_then_rest_follows_without_lingering():
    box = accumulator(batch_length=2, linger=60.0)
    put(box, "a", "1", "2", "3")
    batch = box.take()
    assert batch is not None

    box.flush()
    box.done(batch, now=0.0)
    assert take_all(box) == [["3"]]

    put(box, "a", "4")
    assert box.ready_count == 0


def test_flush_when_growing_batch_fills_before_it_is_taken_then_next_one_lingers():
    box = accumulator(batch_length=2, linger=60.0)
    put(box, "a", "1")
    box.flush()
    put(box, "a", "2", "3")

    assert take_all(box) == [["1", "2"]]
    assert box.deadline == 60.0


def test_clear_when_messages_wait_then_all_come_back_and_what_is_out_may_finish():
    box = accumulator(batch_length=2)
    put(box, "a", "1", "2", "3", "4", "5")
    put(box, "b", "6")
    batch = box.take()
    assert batch is not None

    assert [waiting.messages for waiting in box.clear()] == [["3", "4"], ["5"], ["6"]]
    box.done(batch, now=0.0)
    assert box.is_empty


def test_timers_when_destinations_come_and_go_then_stale_ones_are_swept():
    box = accumulator(batch_length=2, linger=3_600.0)

    for number in range(10_000):
        put(box, str(number), "1", "2", now=float(number))
        take_all(box, now=float(number))

    assert box.is_empty
    assert len(box._timers) <= STALE_TIMERS_MAX + 2


@given(
    sizes=st.lists(st.integers(1, 60), max_size=60),
    before=st.integers(0, 4),
    batch_length=st.none() | st.integers(1, 8),
    batch_size=st.none() | st.integers(1, 120),
)
def test_extend_when_compared_with_add_then_batches_are_the_same(
    sizes, before, batch_length, batch_size
):
    together = accumulator(
        batch_length=batch_length, batch_size=batch_size, bytes_max=BYTES_MAX, linger=9.0
    )
    singly = accumulator(
        batch_length=batch_length, batch_size=batch_size, bytes_max=BYTES_MAX, linger=9.0
    )
    messages = [str(number) for number in range(len(sizes))]
    for box in (together, singly):
        put(box, "a", *(f"before {number}" for number in range(before)))

    used = together.extend("a", messages, originals=messages, sizes=sizes, now=0.0)
    expected = [
        singly.add("a", message, original=message, size_bytes=size, now=0.0)
        for message, size in zip(messages, sizes, strict=True)
    ]

    assert [batch.outcome for batch, _, _ in used] == sorted({batch.outcome for batch in expected})
    assert [row for batch, start, stop in used for row in batch.messages[start:stop]] == messages
    assert shapes(together) == shapes(singly)


def shapes(box: Accumulator[str, int]) -> list[tuple[list[Any], list[Any], int]]:
    """Describe all that waits."""
    return [(batch.messages, batch.originals, batch.size_bytes) for batch in box.waiting()]


class AccumulatorMachine(RuleBasedStateMachine):
    """Any order of calls, against what must be true whatever the order."""

    LENGTH, SIZE, LINGER = 4, 30, 2.0

    def __init__(self) -> None:
        super().__init__()
        self.box = accumulator(
            batch_length=self.LENGTH,
            batch_size=self.SIZE,
            linger=self.LINGER,
            bytes_max=BYTES_MAX,
        )
        self.now = 0.0
        self.numbers = count()
        self.expected: dict[str, list[tuple[int, float]]] = {}
        self.out: list[ProducerBatch[str, int]] = []

    @rule(destination=st.sampled_from("abc"), size=st.integers(1, 60))
    def add(self, destination, size):
        number = next(self.numbers)
        self.box.add(destination, number, original=-number, size_bytes=size, now=self.now)
        self.expected.setdefault(destination, []).append((number, self.now))

    @rule(seconds=st.floats(0.0, 3.0))
    def pass_time(self, seconds):
        self.now += seconds
        self.box.tick(self.now)

    @rule()
    def flush(self):
        self.box.flush()

    @precondition(lambda self: self.box.ready_count)
    @rule()
    def take(self):
        batch = self.box.take()
        assert batch is not None
        assert batch.destination not in {other.destination for other in self.out}
        oldest, self.expected[batch.destination] = (
            self.expected[batch.destination][: len(batch)],
            self.expected[batch.destination][len(batch) :],
        )
        assert batch.messages == [number for number, _ in oldest], "out of order"
        assert batch.originals == [-number for number, _ in oldest]
        assert 1 <= len(batch) <= self.LENGTH
        assert len(batch) == 1 or batch.size_bytes <= BYTES_MAX
        assert batch.oldest_at == oldest[0][1]
        self.out.append(batch)

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def done(self, data):
        batch = data.draw(st.sampled_from(self.out))
        self.out.remove(batch)
        self.box.done(batch, now=self.now)

    @invariant()
    def nothing_is_lost(self):
        waiting: dict[str, list[int]] = {}
        for batch in self.box.waiting():
            waiting.setdefault(batch.destination, []).extend(batch.messages)
        assert waiting == {
            destination: [number for number, _ in rows]
            for destination, rows in self.expected.items()
            if rows
        }

    @invariant()
    def nobody_lingers_too_long(self):
        busy = {batch.destination for batch in self.out}
        idle = [
            rows[0][1]
            for destination, rows in self.expected.items()
            if rows and destination not in busy
        ]
        if idle and not self.box.ready_count:
            assert min(idle) + self.LINGER > self.now
            assert self.box.deadline == min(idle) + self.LINGER


TestAccumulatorMachine = AccumulatorMachine.TestCase


@pytest.mark.parametrize(("destination", "rows"), [("a", ["1", "2"]), ("b", ["3"])])
def test_add_when_destinations_differ_then_batches_do_not_mix(destination, rows):
    box = accumulator(batch_length=None)
    put(box, "a", "1")
    put(box, "b", "3")
    put(box, "a", "2")
    box.flush()

    taken = {}
    while (batch := box.take()) is not None:
        taken[batch.destination] = batch.messages

    assert taken[destination] == rows

"""Two layers of bytes, against a model that remembers every value a byte ever had."""

from __future__ import annotations

import random
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from iggy_ref_server.storage.simulated.disk import PowerLoss, Survival
from iggy_ref_server.storage.simulated.tree import FileContent

SIZE_MAX = 12


class Step(NamedTuple):
    """One thing to do to a file."""

    kind: str
    position: int
    data: bytes


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(["write", "write", "write", "truncate", "sync", "fail"]),
        st.integers(0, SIZE_MAX),
        st.binary(min_size=1, max_size=8),
    ),
    max_size=10,
)


def perform(content, step):
    """Do one step."""
    match step.kind:
        case "write":
            content.write(step.data, step.position)
        case "truncate":
            content.truncate(step.position)
        case "sync":
            content.finish_sync(content.begin_sync())
        case "fail":
            content.fail_sync(content.begin_sync())


def lose_power(content, survival, seed=0):
    """Return the bytes that are found afterwards."""
    loss = PowerLoss(random.Random(seed), survival)
    return bytes(content.after_power_loss(loss.surviving).written)


@given(STEPS)
def test_content_when_everything_survives_then_is_as_written(steps):
    content = FileContent()
    for step in steps:
        perform(content, step)

    assert lose_power(content, Survival.EVERYTHING) == content.written


@given(STEPS)
def test_content_when_nothing_else_survives_then_is_as_synced(steps):
    content, synced = FileContent(), b""
    for step in steps:
        if step.kind == "fail":
            continue
        perform(content, step)
        if step.kind == "sync":
            synced = bytes(content.written)

    assert lose_power(content, Survival.NOTHING) == synced


@given(STEPS, st.sampled_from(Survival), st.integers(0, 1000))
def test_content_when_power_fails_then_every_byte_had_that_value_since_the_sync(
    steps, survival, seed
):
    content = FileContent()
    has_failed_sync = any(step.kind == "fail" for step in steps)
    # None stands for "beyond the end".
    seen: dict[int, set[int | None]] = {position: {None} for position in range(2 * SIZE_MAX)}
    for step in steps:
        perform(content, step)
        for position, values in seen.items():
            if step.kind == "sync" and not has_failed_sync:
                values.clear()
            values.add(content.written[position] if position < len(content.written) else None)

    found = lose_power(content, survival, seed)

    for position, values in seen.items():
        if position < len(found):
            assert found[position] in values | {0}  # what a lost write leaves before another
        else:
            assert None in values


@given(STEPS, st.integers(0, 1000))
def test_content_when_the_power_is_back_then_what_is_there_is_durable(steps, seed):
    content = FileContent()
    for step in steps:
        perform(content, step)

    found = content.after_power_loss(PowerLoss(random.Random(seed)).surviving)

    assert lose_power(found, Survival.NOTHING) == found.written


def test_sync_when_it_failed_once_then_a_later_one_does_not_make_it_durable():
    content = FileContent(b"....")
    content.write(b"A", 0)
    content.fail_sync(content.begin_sync())
    content.write(b"B", 1)
    content.finish_sync(content.begin_sync())

    outcomes = {lose_power(content, Survival.SUBSET, seed) for seed in range(50)}

    assert outcomes == {b"AB..", b".B.."}
    assert lose_power(content, Survival.NOTHING) == b".B.."


def test_sync_when_doubtful_bytes_are_written_again_then_the_new_ones_are_durable():
    content = FileContent(b"....")
    content.write(b"AA", 0)
    content.fail_sync(content.begin_sync())
    content.write(b"BB", 0)
    content.finish_sync(content.begin_sync())

    assert {lose_power(content, Survival.SUBSET, seed) for seed in range(50)} == {b"BB.."}


def test_sync_when_something_is_written_meanwhile_then_covers_only_what_came_before():
    content = FileContent()
    content.write(b"before", 0)
    covered = content.begin_sync()
    content.write(b"after", 6)

    content.finish_sync(covered)

    assert lose_power(content, Survival.NOTHING) == b"before"


def test_syncs_when_two_overlap_and_one_fails_then_the_other_one_counts():
    content = FileContent()
    content.write(b"first", 0)
    failing = content.begin_sync()
    content.write(b"second", 5)
    succeeding = content.begin_sync()

    content.finish_sync(succeeding)
    content.fail_sync(failing)

    assert lose_power(content, Survival.NOTHING) == b"firstsecond"


def test_survival_when_a_subset_then_writes_are_torn_and_reordered():
    nothing, first, second = b"." * 10, b"A" * 10, b"B" * 10
    content = FileContent(nothing * 2)
    content.write(first, 0)
    content.write(second, 10)

    outcomes = {lose_power(content, Survival.SUBSET, seed) for seed in range(200)}

    assert {first + second, nothing + second, first + nothing, nothing * 2} < outcomes
    assert any(0 < found.count(b"A") < 10 for found in outcomes)


def test_survival_when_eight_bytes_are_written_then_they_are_never_torn():
    content = FileContent(bytes(8))
    content.write(b"AAAAAAAA", 0)

    for survival in Survival:
        outcomes = {lose_power(content, survival, seed) for seed in range(50)}
        assert outcomes <= {bytes(8), b"AAAAAAAA"}


def test_survival_when_a_prefix_then_only_the_last_is_torn():
    content = FileContent()
    for number in range(3):
        content.write(b"%d" % number * 9, number * 9)

    outcomes = {lose_power(content, Survival.PREFIX, seed) for seed in range(600)}

    assert outcomes == {(b"0" * 9 + b"1" * 9 + b"2" * 9)[:size] for size in range(28)}

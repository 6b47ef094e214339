"""Rules that strike by the count, by the name and by chance."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_ref_server.storage.simulated.fault_plan import FaultPlan


def test_plan_when_it_has_no_rules_then_nothing_goes_wrong():
    plan = FaultPlan(seed=1)

    assert plan.error("write", "a") is None
    assert plan.delay_s("read", "a") == 0
    assert plan.first_part("a", 10) == 10
    assert not plan.is_refused("a")
    assert not plan.is_uncached("a")


def test_fail_when_given_a_count_then_strikes_that_one_of_the_matching():
    plan = FaultPlan()
    rule = plan.fail("sync", path="*.log", at=3)

    outcomes = []
    for _ in range(5):
        outcomes.append(plan.error("sync", "a/b/0.log"))
        plan.error("sync", "a/b/0.index")
        plan.error("write", "a/b/0.log")

    assert outcomes == [None, None, errno.EIO, None, None]
    assert (rule.matched_count, rule.applied_count) == (5, 1)


def test_fail_when_given_several_counts_then_strikes_each():
    plan = FaultPlan()
    plan.fail("write", at=[1, 4], errno=errno.EROFS)

    assert [plan.error("write", "a") for _ in range(5)] == [
        errno.EROFS,
        None,
        None,
        errno.EROFS,
        None,
    ]


def test_fail_when_limited_then_stops_after_so_many():
    plan = FaultPlan()
    plan.fail("*", times=2)

    outcomes = [plan.error(verb, "a") for verb in ("write", "sync", "read")]

    assert outcomes == [errno.EIO, errno.EIO, None]


def test_fail_when_two_rules_match_then_the_first_decides_and_both_count():
    plan = FaultPlan()
    plan.fail("write", at=1, errno=errno.EIO)
    second = plan.fail("write", at=2, errno=errno.ENOSPC)

    assert [plan.error("write", "a") for _ in range(3)] == [errno.EIO, errno.ENOSPC, None]
    assert second.matched_count == 3


def test_rule_when_the_verb_is_unknown_then_is_refused():
    with pytest.raises(ValueError, match="no such verb: fsync"):
        FaultPlan().fail("fsync")  # type: ignore[arg-type]


def test_delay_when_several_rules_match_then_they_add_up():
    plan = FaultPlan()
    plan.delay("read", seconds=0.5)
    plan.delay("*", seconds=(1, 2), path="slow/*")

    assert plan.delay_s("read", "quick/file") == 0.5
    assert 1.5 <= plan.delay_s("read", "slow/file") <= 2.5


def test_shorten_when_it_strikes_then_something_but_not_all_is_taken():
    plan = FaultPlan()
    plan.shorten(path="*.log")

    assert {plan.first_part("0.log", 9) for _ in range(200)} == set(range(1, 9))
    assert plan.first_part("0.log", 0) == 0
    assert plan.first_part("0.index", 9) == 9


def test_shorten_when_eight_bytes_are_written_then_they_are_written_whole():
    plan = FaultPlan()
    plan.shorten()

    assert {plan.first_part("offset", 8) for _ in range(50)} == {8}
    assert {plan.any_part(8) for _ in range(50)} == {0, 8}


def test_heal_when_called_then_all_is_well():
    plan = FaultPlan(capacity_bytes=0)
    plan.fail("*")

    plan.heal()

    assert plan.error("write", "a") is None
    assert plan.capacity_bytes is None


@given(st.integers(), st.floats(0.1, 0.9))
def test_plan_when_the_seed_is_the_same_then_all_goes_wrong_in_the_same_way(seed, probability):
    def outcomes():
        plan = FaultPlan(seed)
        plan.fail("write", probability=probability)
        plan.delay("*", seconds=(0, 1), probability=probability)
        plan.refuse(probability=probability)
        plan.uncache(probability=probability)
        return [
            (
                plan.error("write", "a"),
                plan.delay_s("sync", "a"),
                plan.is_refused("a"),
                plan.is_uncached("a"),
                plan.any_part(1000),
            )
            for _ in range(20)
        ]

    assert outcomes() == outcomes()


def test_plan_when_left_to_chance_then_strikes_about_as_often_as_told():
    plan = FaultPlan(seed=3)
    rule = plan.fail("write", probability=0.25)

    for _ in range(1000):
        plan.error("write", "a")

    assert 200 < rule.applied_count < 300

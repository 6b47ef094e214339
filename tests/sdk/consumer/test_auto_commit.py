"""The modes of committing, as values."""

from __future__ import annotations

from datetime import timedelta

import pytest

from iggy_sdk.consumer.auto_commit import AutoCommit, Basis, Trigger
from iggy_sdk.errors import ConfigurationError


def test_default_mode_is_after_each_with_gathered_stores():
    assert AutoCommit() == AutoCommit.after_each()
    assert AutoCommit().pulse == 0.2


@pytest.mark.parametrize(
    ("mode", "trigger", "basis"),
    [
        (AutoCommit.disabled(), Trigger.NEVER, Basis.ACKNOWLEDGED),
        (AutoCommit.interval(2), Trigger.NEVER, Basis.ACKNOWLEDGED),
        (AutoCommit.when_polling(), Trigger.POLLING, Basis.DELIVERED),
        (AutoCommit.when_each(), Trigger.EACH, Basis.DELIVERED),
        (AutoCommit.when_all(), Trigger.ALL, Basis.DELIVERED),
        (AutoCommit.when_every_nth(3), Trigger.NTH, Basis.DELIVERED),
        (AutoCommit.after_each(), Trigger.EACH, Basis.ACKNOWLEDGED),
        (AutoCommit.after_all(), Trigger.ALL, Basis.ACKNOWLEDGED),
        (AutoCommit.after_every_nth(3), Trigger.NTH, Basis.ACKNOWLEDGED),
    ],
)
def test_mode_when_made_says_what_and_when(mode, trigger, basis):
    assert (mode.trigger, mode.basis) == (trigger, basis)


def test_interval_when_joined_with_a_mode_keeps_both():
    mode = AutoCommit.interval(timedelta(seconds=1), or_=AutoCommit.when_every_nth(5))
    assert (mode.every, mode.trigger, mode.nth) == (1.0, Trigger.NTH, 5)
    assert mode.counts_handed_out


def test_only_the_disabled_mode_when_asked_is_disabled():
    assert AutoCommit.disabled().is_disabled
    assert not AutoCommit.interval(1).is_disabled
    assert not AutoCommit.after_each().is_disabled


@pytest.mark.parametrize(
    "make",
    [
        lambda: AutoCommit.interval(0),
        lambda: AutoCommit.interval(-1),
        lambda: AutoCommit.interval(1, or_=AutoCommit.interval(2)),
        lambda: AutoCommit.after_every_nth(0),
        lambda: AutoCommit.when_every_nth(-1),
        lambda: AutoCommit.after_each(coalesce_messages=0),
    ],
)
def test_mode_when_it_makes_no_sense_is_refused(make):
    with pytest.raises(ConfigurationError):
        make()


def test_pulse_when_time_plays_no_part_is_none():
    assert AutoCommit.after_all().pulse is None
    assert AutoCommit.when_each().pulse is None
    assert AutoCommit.interval(0.05, or_=AutoCommit.after_each()).pulse == 0.05

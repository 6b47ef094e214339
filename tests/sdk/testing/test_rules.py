"""The rules of faults: which command is struck, how often, and how it is named."""

from __future__ import annotations

import pytest

from iggy_protocol import CommandCode, Ping, SendMessages
from iggy_sdk.testing.faults import Fault, FaultAction, FaultEffect, FaultRules, command_code

PING = int(CommandCode.PING)
SEND = int(CommandCode.SEND_MESSAGES)


def fault(action=FaultAction.CUT, *, command=None, skip=0, times=1, delay_s=0.0):
    return Fault(FaultEffect(action, delay_s=delay_s), command=command, skip=skip, times=times)


@pytest.mark.parametrize("name", [SendMessages, "send_messages", "SendMessages", 101])
def test_command_when_named_in_any_way_then_has_its_code(name):
    assert command_code(name) == SEND


def test_command_when_unknown_then_says_how_to_name_one():
    with pytest.raises(ValueError, match="send_messages"):
        command_code("sendd")


def test_fault_when_commands_pass_first_then_strikes_the_next():
    book = FaultRules()
    book.add(fault(skip=2))

    assert [book.decide(PING).action for _ in range(4)] == [
        FaultAction.PASS,
        FaultAction.PASS,
        FaultAction.CUT,
        FaultAction.PASS,
    ]


def test_fault_when_it_names_a_command_then_counts_and_strikes_only_that():
    book = FaultRules()
    made = book.add(fault(command=SendMessages, skip=1))

    actions = [book.decide(code).action for code in (PING, SEND, PING, SEND)]

    assert actions == [FaultAction.PASS, FaultAction.PASS, FaultAction.PASS, FaultAction.CUT]
    assert made.hits == 1


def test_faults_when_delayed_and_answered_then_both_hold():
    book = FaultRules()
    book.add(fault(FaultAction.PASS, delay_s=1.0))
    book.add(fault(FaultAction.PASS, delay_s=0.5))
    book.add(fault(FaultAction.SWALLOW))

    assert book.decide(PING) == FaultEffect(FaultAction.SWALLOW, delay_s=1.5)


def test_faults_when_two_could_end_a_command_then_the_older_wins_and_the_other_waits():
    book = FaultRules()
    book.add(fault(FaultAction.CUT))
    book.add(fault(FaultAction.SWALLOW))

    assert [book.decide(PING).action for _ in range(3)] == [
        FaultAction.CUT,
        FaultAction.SWALLOW,
        FaultAction.PASS,
    ]


def test_fault_when_removed_then_strikes_no_more():
    book = FaultRules()
    made = book.add(fault(times=None))
    book.decide(PING)
    made.remove()

    assert (book.decide(PING).action, made.hits) == (FaultAction.PASS, 1)


def test_rules_when_cleared_then_nothing_strikes_and_what_was_seen_stays():
    book = FaultRules()
    book.add(fault(times=None))
    book.clear()
    book.decide(PING)
    book.decide(9_999)

    assert book.seen() == {"ping": 1, "9999": 1}


@pytest.mark.parametrize(("skip", "times"), [(-1, 1), (0, 0)])
def test_fault_when_it_could_never_strike_then_is_refused(skip, times):
    with pytest.raises(ValueError, match="give"):
        fault(skip=skip, times=times)


def test_fault_when_for_one_command_then_ping_has_its_class():
    assert command_code(Ping) == PING

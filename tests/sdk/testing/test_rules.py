"""The rules of faults: which command is struck, how often, and how it is named."""

from __future__ import annotations

import pytest

from iggy_protocol import CommandCode, Ping, SendMessages
from iggy_sdk.testing.rules import Action, Fault, RuleBook, Verdict, command_code

PING = int(CommandCode.PING)
SEND = int(CommandCode.SEND_MESSAGES)


def fault(action=Action.CUT, *, command=None, skip=0, times=1, delay_s=0.0):
    return Fault(Verdict(action, delay_s=delay_s), command=command, skip=skip, times=times)


@pytest.mark.parametrize("name", [SendMessages, "send_messages", "SendMessages", 101])
def test_command_when_named_in_any_way_then_has_its_code(name):
    assert command_code(name) == SEND


def test_command_when_nobody_knows_it_then_says_how_to_name_one():
    with pytest.raises(ValueError, match="send_messages"):
        command_code("sendd")


def test_fault_when_commands_pass_first_then_strikes_the_next():
    book = RuleBook()
    book.add(fault(skip=2))

    assert [book.judge(PING).action for _ in range(4)] == [
        Action.PASS,
        Action.PASS,
        Action.CUT,
        Action.PASS,
    ]


def test_fault_when_it_names_a_command_then_counts_and_strikes_only_that():
    book = RuleBook()
    made = book.add(fault(command=SendMessages, skip=1))

    actions = [book.judge(code).action for code in (PING, SEND, PING, SEND)]

    assert actions == [Action.PASS, Action.PASS, Action.PASS, Action.CUT]
    assert made.hits == 1


def test_faults_when_delayed_and_answered_then_both_hold():
    book = RuleBook()
    book.add(fault(Action.PASS, delay_s=1.0))
    book.add(fault(Action.PASS, delay_s=0.5))
    book.add(fault(Action.SWALLOW))

    assert book.judge(PING) == Verdict(Action.SWALLOW, delay_s=1.5)


def test_faults_when_two_could_end_a_command_then_the_older_wins_and_the_other_waits():
    book = RuleBook()
    book.add(fault(Action.CUT))
    book.add(fault(Action.SWALLOW))

    assert [book.judge(PING).action for _ in range(3)] == [
        Action.CUT,
        Action.SWALLOW,
        Action.PASS,
    ]


def test_fault_when_removed_then_strikes_no_more():
    book = RuleBook()
    made = book.add(fault(times=None))
    book.judge(PING)
    made.remove()

    assert (book.judge(PING).action, made.hits) == (Action.PASS, 1)


def test_rules_when_cleared_then_nothing_strikes_and_what_was_seen_stays():
    book = RuleBook()
    book.add(fault(times=None))
    book.clear()
    book.judge(PING)
    book.judge(9_999)

    assert book.seen() == {"ping": 1, "9999": 1}


@pytest.mark.parametrize(("skip", "times"), [(-1, 1), (0, 0)])
def test_fault_when_it_could_never_strike_then_is_refused(skip, times):
    with pytest.raises(ValueError, match="give"):
        fault(skip=skip, times=times)


def test_fault_when_for_one_command_then_ping_has_its_class():
    assert command_code(Ping) == PING

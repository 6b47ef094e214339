"""Receipts of metadata requests: the same reply for a repeat, and bounds for all of them."""

from __future__ import annotations

import contextlib

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol import V0_11, V0_12_0, V0_12_2, StatusCode
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.sessions import receipts as module
from iggy_ref_server.sessions.receipts import (
    OVERHEAD_BYTES,
    REPLIES_MAX,
    REPLY_BYTES_MAX,
    ReceiptBudget,
    RecordedReply,
    ReplyReceipts,
    answer_once,
)

ID = b"i" * 16
FINAL = RecordedReply(0, b"payload", 7)
REFUSAL = RecordedReply(StatusCode.UNAUTHORIZED)
BUSINESS_ERROR = RecordedReply(StatusCode.STREAM_NAME_ALREADY_EXISTS, b"", 7)


@pytest.fixture
def receipts():
    return ReplyReceipts(V0_12_2, ReceiptBudget())


def answered(receipts, number, reply=FINAL, identifier=ID):
    receipt = receipts.begin(number, identifier)
    receipts.settle(receipt, reply)
    return receipt


def kept_reply(receipts, number):
    receipt = receipts.find(number, ID)
    return None if receipt is None else receipt.reply


def status_of(receipts, number, identifier=ID):
    with pytest.raises(ServerFault) as caught:
        receipts.find(number, identifier)
    return caught.value.status


@pytest.mark.parametrize("reply", [FINAL, BUSINESS_ERROR])
def test_reply_when_final_then_is_kept_as_it_was(receipts, reply):
    answered(receipts, 4, reply)

    assert kept_reply(receipts, 4) == reply


def test_reply_when_a_refusal_then_the_request_may_come_again(receipts):
    answered(receipts, 4, REFUSAL)

    assert receipts.find(4, ID) is None
    answered(receipts, 4)
    assert kept_reply(receipts, 4) == FINAL


@pytest.mark.parametrize(
    ("dialect", "status"),
    [
        (V0_11, StatusCode.REQUEST_ALREADY_APPLIED),
        (V0_12_0, StatusCode.REQUEST_TOO_OLD),
        (V0_12_2, StatusCode.REQUEST_TOO_OLD),
    ],
)
def test_request_when_older_than_what_is_kept_then_is_refused(dialect, status):
    receipts = ReplyReceipts(dialect, ReceiptBudget())
    for number in range(10, 10 + 2 * REPLIES_MAX, 2):
        answered(receipts, number)
    answered(receipts, 40)

    assert status_of(receipts, 10) == status
    assert status_of(receipts, 13) == status, "it was never seen, but newer ones were"
    assert kept_reply(receipts, 12) == FINAL
    assert receipts.find(41, ID) is None
    assert len(receipts) == REPLIES_MAX


def test_request_when_its_number_had_another_identifier_then_is_refused(receipts):
    answered(receipts, 4)

    assert status_of(receipts, 4, b"j" * 16) == StatusCode.INVALID_FORMAT


def test_reply_when_too_large_then_is_not_kept_and_its_request_not_run_again(receipts):
    answered(receipts, 4, RecordedReply(0, bytes(REPLY_BYTES_MAX + 1), 7))

    assert status_of(receipts, 4) == StatusCode.REQUEST_TOO_OLD


def test_replies_when_all_sessions_hold_too_much_then_the_oldest_are_forgotten():
    budget = ReceiptBudget(total_bytes_max=3 * (OVERHEAD_BYTES + len(FINAL.payload)))
    sessions = [ReplyReceipts(V0_12_2, budget) for _ in range(4)]
    for session in sessions:
        answered(session, 1)

    assert status_of(sessions[0], 1) == StatusCode.REQUEST_TOO_OLD
    assert [kept_reply(session, 1) for session in sessions[1:]] == [FINAL] * 3
    for session in sessions:
        session.clear()
    assert budget.total_bytes == 0


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["begin", "settle", "refuse", "abandon", "clear"]),
            st.integers(0, 2),
            st.integers(0, 60),
        ),
        max_size=60,
    )
)
def test_budget_when_requests_end_in_any_way_then_counts_what_is_kept(steps):
    size_bytes = OVERHEAD_BYTES + 20
    budget = ReceiptBudget(total_bytes_max=4 * size_bytes)
    sessions = [ReplyReceipts(V0_12_2, budget) for _ in range(3)]
    running, number = [], 0
    for action, index, choice in steps:
        receipts = sessions[index]
        if action == "begin":
            number += 1
            running.append((receipts, receipts.begin(number, ID)))
        elif action == "clear":
            receipts.clear()
        elif running:
            owner, receipt = running.pop(choice % len(running))
            if action == "abandon":
                owner.abandon(receipt)
            else:
                position = 7 if action == "settle" else 0
                owner.settle(receipt, RecordedReply(0, bytes(20), position))
            assert receipt.is_done
        kept = sum(
            receipt.reply is not None
            for session in sessions
            for receipt in session._receipts.values()
        )
        assert budget.total_bytes == kept * size_bytes <= 4 * size_bytes


# --- answering


@pytest.mark.trio
async def test_request_when_repeated_while_it_runs_then_waits_for_the_one_answer(receipts):
    runs, may_end, replies = [], trio.Event(), []

    async def answer():
        runs.append(True)
        await may_end.wait()
        return FINAL

    async def ask():
        replies.append(await answer_once(receipts, 4, ID, answer))

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        assert replies == []
        may_end.set()

    assert len(runs) == 1
    assert replies == [FINAL] * 3
    assert await answer_once(receipts, 4, ID, answer) == FINAL
    assert len(runs) == 1


@pytest.mark.trio
@pytest.mark.parametrize("reply", [REFUSAL, FINAL])
async def test_repeats_when_the_first_ends_then_have_its_reply_also_a_refusal(receipts, reply):
    may_end, replies = trio.Event(), []

    async def answer():
        await may_end.wait()
        return reply

    async def ask():
        replies.append(await answer_once(receipts, 4, ID, answer))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        may_end.set()

    assert replies == [reply] * 2


@pytest.mark.trio
@pytest.mark.parametrize("error", [ValueError("a bug"), None])
async def test_request_when_interrupted_then_repeats_are_told_and_the_next_one_runs(
    receipts, error
):
    """The first is cancelled, or fails in a way that nobody has foreseen."""
    started, statuses = trio.Event(), []

    async def answer():
        started.set()
        if error is None:
            await trio.sleep_forever()
        await trio.testing.wait_all_tasks_blocked()
        raise error

    async def ask():
        with trio.CancelScope() as scope:
            scopes.append(scope)
            with contextlib.suppress(ValueError):
                await answer_once(receipts, 4, ID, answer)

    async def repeat():
        await started.wait()
        with pytest.raises(ServerFault) as caught:
            await answer_once(receipts, 4, ID, answer)
        statuses.append(caught.value.status)

    scopes: list[trio.CancelScope] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        nursery.start_soon(repeat)
        if error is None:
            await trio.testing.wait_all_tasks_blocked()
            scopes[0].cancel()

    assert statuses == [StatusCode.TRANSIENT_NOT_COMMITTED]

    async def answer_well():
        return FINAL

    assert await answer_once(receipts, 4, ID, answer_well) == FINAL


def test_limits_when_compared_then_one_reply_fits_into_the_whole():
    assert module.REPLY_BYTES_MAX + OVERHEAD_BYTES < module.TOTAL_BYTES_MAX

"""How many requests wait, what wakes one, and when a poll has enough."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol import PollingStrategy, StatusCode
from iggy_ref_server.completion import Completion, Wait
from iggy_ref_server.dispatch import deferred_slots
from iggy_ref_server.dispatch.deferred_slots import DeferredSlots, Sleep
from iggy_ref_server.dispatch.handlers.deferred import awaited_offset
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.partitions.poll_plan import PollResult

LOST = ServerFault(StatusCode.CONSUMER_GROUP_PARTITION_NOT_OWNED, "lost")


# Slots


def test_slots_when_taken_and_left_then_count_again(monkeypatch):
    monkeypatch.setattr(deferred_slots, "REQUESTS_PER_SESSION_MAX", 2)
    monkeypatch.setattr(deferred_slots, "PARTITIONS_MAX", 10)
    slots = DeferredSlots()

    def refused(session, count):
        try:
            with slots.take(session, count):
                return 0
        except ServerFault as fault:
            return fault.status

    too_many = StatusCode.TOO_MANY_DEFERRED_POLLS
    with slots.take(1, 3), slots.take(1, 1):
        assert refused(1, 1) == too_many
        assert refused(2, 6) == 0
        assert refused(2, 7) == too_many
        with slots.take(2, 6):
            assert refused(3, 1) == too_many
        assert len(slots) == 2
    assert refused(1, 10) == 0
    assert len(slots) == 0


def test_slots_when_one_session_waits_for_many_partitions_then_leaves_some_for_others(monkeypatch):
    monkeypatch.setattr(deferred_slots, "PARTITIONS_PER_SESSION_MAX", 5)
    slots = DeferredSlots()

    with slots.take(1, 3), slots.take(1, 2):
        with pytest.raises(ServerFault) as caught, slots.take(1, 1):
            pass
        assert caught.value.status == StatusCode.TOO_MANY_DEFERRED_POLLS
        with slots.take(2, 5):
            assert len(slots) == 3
    with slots.take(1, 5):
        assert len(slots) == 1


def test_requests_when_their_session_ends_then_are_told_and_others_not():
    slots = DeferredSlots()
    with slots.take(1, 1) as first, slots.take(1, 1) as second, slots.take(2, 1) as other:
        slots.end_session(1)
        slots.end_session(1)
        slots.end_session(3)

        assert (first.is_done, second.is_done, other.is_done) == (True, True, False)


# Sleep


@pytest.mark.trio
async def test_sleep_when_nothing_happens_then_ends_at_its_deadline(autojump_clock):
    wait = Wait()
    with Sleep(Completion(), trio.current_time() + 5) as sleep:
        sleep.add(wait)
        began = trio.current_time()

        await sleep.until_woken()

        assert trio.current_time() - began == 5
        assert sleep.is_over
        assert not wait.is_done


@pytest.mark.trio
async def test_sleep_when_something_happened_before_then_does_not_miss_it(autojump_clock):
    wait = Wait()
    with Sleep(Completion(), trio.current_time() + 5) as sleep:
        sleep.add(wait)
        wait.finish()
        began = trio.current_time()

        await sleep.until_woken()

        assert trio.current_time() == began
        sleep.forget(wait)


@pytest.mark.trio
@pytest.mark.parametrize(("fault", "status"), [(None, 5009), (ServerFault(57, "gone"), 57)])
async def test_sleep_when_an_alarm_rings_then_ends_with_its_fault(autojump_clock, fault, status):
    alarm, ended = Wait(), Completion()
    with Sleep(ended, trio.current_time() + 5) as sleep:
        sleep.end_with(alarm, LOST)
        alarm.finish(fault)

        with pytest.raises(ServerFault) as caught:
            await sleep.until_woken()
        assert caught.value.status == status


@pytest.mark.trio
async def test_sleep_when_the_session_ends_then_is_unauthenticated(autojump_clock):
    ended = Completion()
    with Sleep(ended, trio.current_time() + 5) as sleep:
        ended.finish()
        with pytest.raises(ServerFault) as caught:
            sleep.check()
    assert caught.value.status == StatusCode.UNAUTHENTICATED


@pytest.mark.trio
async def test_waits_when_the_sleep_is_cancelled_then_are_cancelled(autojump_clock):
    cancelled: list[Wait] = []
    waits = [Wait(cancelled.append) for _ in range(2)]

    async def rest():
        with Sleep(Completion(), trio.current_time() + 5) as sleep:
            sleep.add(waits[0])
            sleep.end_with(waits[1], LOST)
            await sleep.until_woken()

    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rest)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()

    assert cancelled == waits


# When a poll has enough


def polled_of(count, last_offset, next_offset):
    return PollResult(max(next_offset - 1, 0), count, 0, (), last_offset, next_offset)


@given(
    start=st.integers(0, 20),
    messages=st.integers(0, 20),
    messages_min=st.integers(1, 10),
    limit=st.integers(1, 10),
)
def test_poll_when_it_has_too_few_then_awaits_the_message_that_makes_it_enough(
    start, messages, messages_min, limit
):
    """Against a log of messages 0 to n - 1 that is read from an offset, so many at once."""
    offsets = list(range(start, messages))[:limit]
    polled = polled_of(len(offsets), offsets[-1] if offsets else None, messages)

    awaited = awaited_offset(PollingStrategy.offset(start), messages_min, polled)

    is_cut = bool(offsets) and offsets[-1] + 1 < messages
    if len(offsets) >= messages_min or is_cut:
        assert awaited is None
    else:
        assert awaited == start + messages_min - 1
        assert awaited >= messages, "only a message that is not there is awaited"


@pytest.mark.parametrize(
    "strategy", [PollingStrategy.next(), PollingStrategy.first(), PollingStrategy.timestamp(9)]
)
def test_poll_when_it_names_no_offset_then_awaits_from_the_end_of_the_log(strategy):
    assert awaited_offset(strategy, 1, polled_of(0, None, 30)) == 30
    assert awaited_offset(strategy, 4, polled_of(0, None, 30)) == 33
    assert awaited_offset(strategy, 4, polled_of(1, 29, 30)) == 32

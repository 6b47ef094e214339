"""Waiting for messages: what wakes a wait, what ends it, and what it costs others."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol import PollingStrategy, StatusCode
from iggy_ref_server.completion import Completion, Wait
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.partitions import waiters
from iggy_ref_server.partitions.settings import AckLevel, PartitionSettings
from iggy_ref_server.partitions.steps import run_async
from iggy_ref_server.partitions.waiters import NO_OFFSET, MessageWaiters
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.partitions.partition_calls import (
    GENERATION,
    commit,
    create,
    payloads,
    request,
    send,
    stage,
)

LEVELS = pytest.mark.parametrize("ack", AckLevel)
OFFSETS = st.integers(min_value=0, max_value=12)

# --- the table of waits


@given(
    steps=st.lists(
        st.tuples(st.just("add"), OFFSETS)
        | st.tuples(st.just("cancel"), st.integers(0, 20))
        | st.tuples(st.just("publish"), st.integers(1, 3)),
        max_size=30,
    )
)
def test_waits_when_messages_come_then_exactly_those_up_to_them_are_woken(steps):
    table, last_offset = MessageWaiters(), -1
    waits: list[tuple[int, Wait]] = []
    cancelled: set[int] = set()
    for action, number in steps:
        if action == "add":
            offset = last_offset + 1 + number
            waits.append((offset, table.add(offset)))
        elif action == "cancel" and waits:
            index = number % len(waits)
            waits[index][1].cancel()
            if not waits[index][1].is_done:
                cancelled.add(index)
        elif action == "publish":
            last_offset += number
            if last_offset >= table.lowest_offset:
                table.wake(last_offset)
        open_offsets = [
            offset
            for index, (offset, _) in enumerate(waits)
            if index not in cancelled and offset > last_offset
        ]
        assert len(table) == len(open_offsets)
        assert table.lowest_offset == min(open_offsets, default=NO_OFFSET)
        for index, (offset, wait) in enumerate(waits):
            assert wait.is_done == (offset <= last_offset and index not in cancelled)


def test_wait_when_cancelled_then_its_callback_is_not_called():
    table, told = MessageWaiters(), list[Completion]()
    wait = table.add(3)
    wait.add_done_callback(told.append)

    wait.cancel()
    wait.cancel()
    table.wake(3)

    assert told == []
    assert len(table) == 0


def test_waits_when_a_callback_cancels_the_others_then_they_are_not_told():
    table, told = MessageWaiters(), list[Completion]()
    waits = [table.add(3) for _ in range(3)]

    def tell(done):
        told.append(done)
        for wait in waits:
            wait.cancel()

    for wait in waits:
        wait.add_done_callback(tell)
    table.wake(5)

    assert told == [waits[0]]


def test_wait_when_made_by_a_callback_then_waits_for_later_messages():
    table = MessageWaiters()
    later = []
    table.add(3).add_done_callback(lambda _: later.append(table.add(4)))

    table.wake(3)
    assert not later[0].is_done
    table.wake(4)
    assert later[0].is_done


def test_waits_when_too_many_then_the_next_is_refused_until_one_has_ended(monkeypatch):
    monkeypatch.setattr(waiters, "WAITS_MAX", 2)
    table = MessageWaiters()
    first, _ = table.add(1), table.add(1)

    with pytest.raises(ServerFault) as caught:
        table.add(1)
    assert caught.value.status == StatusCode.TOO_MANY_DEFERRED_POLLS

    first.cancel()
    table.add(1)


class CountedOffset(int):
    """An offset that counts how often it is compared."""

    comparisons = 0

    def __lt__(self, other):
        CountedOffset.comparisons += 1
        return int(self) < int(other)

    def __le__(self, other):
        CountedOffset.comparisons += 1
        return int(self) <= int(other)

    __gt__, __ge__ = (lambda self, other: other < self), (lambda self, other: other <= self)


@pytest.mark.parametrize("end", ["wake", "fault", "cancel"])
def test_waits_when_many_end_at_once_then_each_costs_little(end):
    count, table = waiters.WAITS_MAX, MessageWaiters()
    waits = [table.add(CountedOffset(number)) for number in range(count)]
    CountedOffset.comparisons = 0

    if end == "wake":
        table.wake(count)
    elif end == "fault":
        table.end(ServerFault(StatusCode.ERROR, "it is closed"))
    else:
        for wait in waits:
            wait.cancel()

    assert len(table) == 0
    assert CountedOffset.comparisons < 40 * count


def test_waits_when_they_come_and_go_behind_another_then_nothing_of_them_is_kept():
    table = MessageWaiters()
    table.add(0)
    for number in range(10_000):
        table.add(1 + number % 7).cancel()

    assert len(table._offsets) <= waiters.HEAP_SPARE + 2 * 2
    assert (len(table), table.lowest_offset) == (1, 0)


# --- a partition


def is_woken(wait):
    """Tell whether a wait is done, now and not as it was asked before."""
    return wait.is_done


@pytest.mark.trio
@LEVELS
async def test_wait_when_a_message_is_appended_then_is_woken_and_reads_it(ack):
    partition = await create(SimulatedStorage(), PartitionSettings(ack=ack))
    await send(partition, b"a")
    wait = partition.wait_for(1)
    assert not is_woken(wait)

    await send(partition, b"b")

    assert is_woken(wait)
    assert wait.fault is None
    assert await payloads(partition, request(PollingStrategy.offset(1))) == [b"b"]


@pytest.mark.trio
@LEVELS
@pytest.mark.parametrize("offset", [0, 1])
async def test_wait_when_the_message_is_there_then_is_done_at_once(ack, offset):
    partition = await create(SimulatedStorage(), PartitionSettings(ack=ack))
    await send(partition, b"a", b"b")

    assert partition.wait_for(offset).is_done


@pytest.mark.trio
async def test_wait_when_a_batch_is_staged_only_then_sleeps_until_it_is_visible():
    partition = await create(SimulatedStorage())
    group = stage(partition, [b"a"])
    wait = partition.wait_for(0)
    assert not any(one.is_done for one in (group, wait))

    await commit(partition)

    assert all(one.is_done for one in (group, wait))


@pytest.mark.trio
async def test_wait_when_an_append_fails_then_sleeps_on_until_one_succeeds():
    storage = SimulatedStorage()
    partition = await create(storage)
    wait = partition.wait_for(0)
    storage.plan.fail("write", path="*.log")
    group = stage(partition, [b"lost"])
    await commit(partition)
    assert group.fault is not None
    assert not is_woken(wait)

    storage.plan.heal()
    await send(partition, b"a")

    assert is_woken(wait)


@pytest.mark.trio
async def test_wait_when_for_several_messages_then_sleeps_until_the_last_of_them():
    partition = await create(SimulatedStorage())
    wait = partition.wait_for(2)

    await send(partition, b"a", b"b")
    assert not is_woken(wait)
    await send(partition, b"c", b"d")
    assert is_woken(wait)


@pytest.mark.trio
async def test_wait_when_all_messages_are_gone_then_sleeps_until_the_next():
    partition = await create(SimulatedStorage(), PartitionSettings(segment_size_bytes=1))
    await send(partition, b"a")
    await send(partition, b"b")
    await partition.delete_segments(10)
    assert partition.statistics().messages_count == 0
    wait = partition.wait_for(0)
    assert not is_woken(wait)

    await send(partition, b"c")

    assert is_woken(wait)


@pytest.mark.trio
async def test_waits_when_the_partition_is_purged_then_end_with_its_history():
    partition = await create(SimulatedStorage())
    await send(partition, b"a")
    wait = partition.wait_for(5)

    await partition.purge(generation=GENERATION + 1)

    assert wait.fault is not None
    assert wait.fault.status == StatusCode.PARTITION_HISTORY_UNAVAILABLE
    again = partition.wait_for(0)
    assert not is_woken(again)
    await send(partition, b"new")
    assert is_woken(again)


@pytest.mark.trio
async def test_waits_when_the_partition_is_closed_then_end_and_no_more_begin():
    partition = await create(SimulatedStorage())
    wait = partition.wait_for(0)

    await partition.aclose()

    assert wait.fault is not None
    assert wait.fault.status == StatusCode.PARTITION_NOT_FOUND
    with pytest.raises(ServerFault) as caught:
        partition.wait_for(0)
    assert caught.value.status == StatusCode.PARTITION_NOT_FOUND


@pytest.mark.trio
async def test_wait_when_its_task_is_cancelled_then_nothing_is_left():
    partition = await create(SimulatedStorage())
    waiting = trio.Event()

    async def sleep():
        wait = partition.wait_for(0)
        waiting.set()
        try:
            await wait.wait()
        finally:
            wait.cancel()

    with trio.CancelScope() as scope:
        async with trio.open_nursery() as inner:
            inner.start_soon(sleep)
            await waiting.wait()
            scope.cancel()
    await send(partition, b"a")

    assert len(partition._segment_list.waiters) == 0


@pytest.mark.trio
@LEVELS
async def test_poll_when_it_says_what_comes_next_then_no_append_can_slip_through(ack):
    """Between a poll and a wait there may be an append; the wait is then done at once."""
    partition = await create(SimulatedStorage(), PartitionSettings(ack=ack))
    await send(partition, b"a")
    polled = await run_async(partition.poll(request(PollingStrategy.offset(1))))
    assert (polled.messages_count, polled.next_offset) == (0, 1)

    await send(partition, b"b")

    assert partition.wait_for(polled.next_offset).is_done


@pytest.mark.trio
async def test_append_when_nobody_waits_then_asks_no_table(monkeypatch):
    partition = await create(SimulatedStorage())
    partition.wait_for(0).cancel()
    monkeypatch.setattr(MessageWaiters, "wake", lambda *_: pytest.fail("nobody waits"))

    await send(partition, b"a")

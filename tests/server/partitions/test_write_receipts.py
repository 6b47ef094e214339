"""Repeated writes: done once, answered alike, and never without a bound."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol import NewMessage, StatusCode
from iggy_ref_server.completion import Completion
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.partitions.repeated_writes import (
    delete_offset_once,
    stage_once,
    store_offset_once,
)
from iggy_ref_server.partitions.settings import (
    AckLevel,
    DeduplicationSettings,
    PartitionSettings,
)
from iggy_ref_server.partitions.steps import run_async
from iggy_ref_server.partitions.write_receipts import (
    RecordedWrite,
    WriteId,
    WriteKind,
    WriteReceipts,
)
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.partitions.partition_calls import (
    CONSUMER,
    body_of,
    commit,
    create,
    payloads,
    send,
)

SEND, OFFSET = WriteKind.SEND, WriteKind.OFFSET
LEVELS = pytest.mark.parametrize("ack", AckLevel)
FAILED = ServerFault(StatusCode.CANNOT_WRITE_TO_FILE, "the disk refused")


def stage(partition, messages, write, producer=None):
    """Stage a batch as a client does that repeats it if need be."""
    body, shape = body_of(messages)
    return stage_once(partition, memoryview(body), shape, write, producer)


async def send_once(partition, messages, write, producer=None):
    """Send a batch, wait for its commit, and return where it is."""
    staged = stage(partition, messages, write, producer)
    await commit(partition)
    await staged.pending.wait()
    return staged.base_offset


def status_of(action, *arguments):
    """Return the status that an action is refused with."""
    with pytest.raises(ServerFault) as caught:
        action(*arguments)
    return caught.value.status


# --- the table of receipts


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["write", "succeed", "fail"]), st.integers(1, 8)), max_size=40
    )
)
def test_receipts_when_writes_end_in_any_order_then_the_newest_success_bounds_the_old(steps):
    """Play one session against a model: which numbers are kept, which are refused."""
    receipts = WriteReceipts()
    in_flight: dict[int, Completion] = {}
    kept: dict[int, Completion] = {}
    for action, number in steps:
        write = WriteId(1, number)
        if action == "write":
            newest = max([*in_flight, *kept], default=0)
            if number > newest:
                assert receipts.find(SEND, write) is None
                pending = in_flight[number] = Completion()
                receipts.note(SEND, write, RecordedWrite(pending, number))
        elif number in in_flight:
            pending = in_flight.pop(number)
            pending.finish(FAILED if action == "fail" else None)
            if action == "succeed":
                kept = {n: one for n, one in kept.items() if n > number}
                kept[number] = pending
                # Older writes that are still in flight are not remembered any more either.
                in_flight = {n: one for n, one in in_flight.items() if n > number}
        newest = max([*in_flight, *kept], default=0)
        for candidate in range(1, 9):
            write = WriteId(1, candidate)
            if candidate in in_flight or candidate in kept:
                found = receipts.find(SEND, write)
                assert found is not None
                assert found.base_offset == candidate
            elif candidate > newest:
                assert receipts.find(SEND, write) is None
            else:
                assert status_of(receipts.find, SEND, write) == StatusCode.REQUEST_TOO_OLD


def test_receipts_when_of_other_sessions_or_kinds_then_are_apart():
    receipts = WriteReceipts()
    receipts.note(SEND, WriteId(1, 7), RecordedWrite(Completion.finished(), 0))

    assert receipts.find(SEND, WriteId(2, 3)) is None
    assert receipts.find(OFFSET, WriteId(1, 3)) is None
    assert status_of(receipts.find, SEND, WriteId(1, 3)) == StatusCode.REQUEST_TOO_OLD


def test_receipts_when_too_many_then_the_session_that_wrote_longest_ago_is_forgotten():
    receipts = WriteReceipts(sessions_max=2)
    for session in (1, 2):
        receipts.note(SEND, WriteId(session, 1), RecordedWrite(Completion.finished(), 0))
    receipts.note(SEND, WriteId(1, 2), RecordedWrite(Completion.finished(), 0))

    receipts.note(SEND, WriteId(3, 1), RecordedWrite(Completion.finished(), 0))

    assert receipts.find(SEND, WriteId(2, 1)) is None
    assert receipts.find(SEND, WriteId(1, 2)) is not None
    assert len(receipts) == 2


def test_receipts_when_in_flight_then_are_not_forgotten_for_others():
    receipts, pending = WriteReceipts(sessions_max=1), Completion()
    receipts.note(SEND, WriteId(1, 1), RecordedWrite(pending, 0))
    receipts.note(SEND, WriteId(2, 1), RecordedWrite(Completion.finished(), 0))

    assert receipts.find(SEND, WriteId(1, 1)) is not None
    pending.finish()
    receipts.note(SEND, WriteId(3, 1), RecordedWrite(Completion.finished(), 0))
    assert len(receipts) == 1


def test_receipts_when_all_writes_of_a_session_failed_then_nothing_is_left():
    receipts, pending = WriteReceipts(), Completion()
    receipts.note(SEND, WriteId(1, 1), RecordedWrite(pending, 0))

    pending.finish(FAILED)

    assert len(receipts) == 0


# --- sends


@pytest.mark.trio
@LEVELS
async def test_send_when_repeated_then_is_stored_once_and_confirmed_alike(ack):
    partition = await create(SimulatedStorage(), PartitionSettings(ack=ack))
    await send(partition, b"before")

    first = await send_once(partition, [b"a", b"b"], WriteId(9, 4))
    again = await send_once(partition, [b"a", b"b"], WriteId(9, 4))

    assert (first, again) == (1, 1)
    assert await payloads(partition) == [b"before", b"a", b"b"]


@pytest.mark.trio
async def test_send_when_repeated_in_flight_then_both_wait_for_one_commit():
    partition = await create(SimulatedStorage())

    first = stage(partition, [b"a"], WriteId(9, 4))
    again = stage(partition, [b"a"], WriteId(9, 4))
    assert not again.pending.is_done
    await commit(partition)

    assert first.pending.is_done
    assert again.pending.is_done
    assert (first.base_offset, again.base_offset) == (0, 0)
    assert await payloads(partition) == [b"a"]


@pytest.mark.trio
async def test_send_when_it_failed_then_a_repeat_tries_again():
    storage = SimulatedStorage()
    partition = await create(storage)
    storage.plan.fail("write", path="*.log")
    first = stage(partition, [b"a"], WriteId(9, 4))
    again = stage(partition, [b"a"], WriteId(9, 4))
    await commit(partition)
    assert first.pending.fault is not None
    assert again.pending.fault is not None

    storage.plan.heal()

    assert await send_once(partition, [b"a"], WriteId(9, 4)) == 0
    assert await payloads(partition) == [b"a"]


@pytest.mark.trio
async def test_send_when_it_is_older_than_the_newest_then_is_refused():
    partition = await create(SimulatedStorage())
    await send_once(partition, [b"new"], WriteId(9, 5))

    assert status_of(stage, partition, [b"late"], WriteId(9, 4)) == StatusCode.REQUEST_TOO_OLD
    assert await payloads(partition) == [b"new"]


@pytest.mark.trio
async def test_send_when_the_newer_one_failed_then_the_older_receipt_still_counts():
    storage = SimulatedStorage()
    partition = await create(storage)
    assert await send_once(partition, [b"a"], WriteId(9, 4)) == 0
    storage.plan.fail("write", path="*.log")
    stage(partition, [b"b"], WriteId(9, 6))
    await commit(partition)
    storage.plan.heal()

    assert await send_once(partition, [b"a"], WriteId(9, 4)) == 0
    assert await payloads(partition) == [b"a"]


@pytest.mark.trio
async def test_send_when_all_its_messages_are_duplicates_then_has_no_offset():
    window = DeduplicationSettings(entries_max=10, expiry_us=0)
    partition = await create(SimulatedStorage(), PartitionSettings(deduplication=window))
    messages = [NewMessage(b"a", id=7)]

    assert await send_once(partition, messages, WriteId(9, 4)) == 0
    assert await send_once(partition, messages, WriteId(9, 5)) is None
    assert await send_once(partition, messages, WriteId(9, 5)) is None


@pytest.mark.trio
async def test_classic_send_when_made_then_leaves_no_receipt():
    partition = await create(SimulatedStorage())

    await send(partition, b"a")

    assert len(partition.receipts) == len(partition.producers) == 0


# --- offsets


@pytest.mark.trio
async def test_offset_when_stored_again_then_a_newer_one_stays():
    partition = await create(SimulatedStorage())
    await send(partition, b"a", b"b", b"c")
    await run_async(store_offset_once(partition, CONSUMER, 1, WriteId(9, 4)))
    await run_async(partition.store_offset(CONSUMER, 2))

    await run_async(store_offset_once(partition, CONSUMER, 1, WriteId(9, 4)))

    assert partition.stored_offset(CONSUMER) == 2


@pytest.mark.trio
async def test_offset_when_older_than_the_newest_then_is_refused():
    partition = await create(SimulatedStorage())
    await send(partition, b"a", b"b")
    await run_async(store_offset_once(partition, CONSUMER, 1, WriteId(9, 5)))

    with pytest.raises(ServerFault) as caught:
        await run_async(store_offset_once(partition, CONSUMER, 0, WriteId(9, 4)))
    assert caught.value.status == StatusCode.REQUEST_TOO_OLD
    with pytest.raises(ServerFault) as caught:
        await delete_offset_once(partition, CONSUMER, WriteId(9, 3))
    assert caught.value.status == StatusCode.REQUEST_TOO_OLD
    assert partition.stored_offset(CONSUMER) == 1


@pytest.mark.trio
async def test_offset_when_deleted_again_then_is_a_success():
    partition = await create(SimulatedStorage())
    await send(partition, b"a")
    await run_async(partition.store_offset(CONSUMER, 0))

    await delete_offset_once(partition, CONSUMER, WriteId(9, 4))
    await delete_offset_once(partition, CONSUMER, WriteId(9, 4))

    with pytest.raises(ServerFault):
        await delete_offset_once(partition, CONSUMER, WriteId(9, 5))


@pytest.mark.trio
async def test_offset_when_refused_then_leaves_no_receipt():
    partition = await create(SimulatedStorage())
    for _ in range(2):
        with pytest.raises(ServerFault) as caught:
            await run_async(store_offset_once(partition, CONSUMER, 0, WriteId(9, 4)))
        assert caught.value.status == StatusCode.INVALID_OFFSET
    await send(partition, b"a")

    await run_async(store_offset_once(partition, CONSUMER, 0, WriteId(9, 4)))

    assert partition.stored_offset(CONSUMER) == 0


@pytest.mark.trio
async def test_offset_when_its_write_is_cancelled_then_repeats_are_told_and_may_try_again(
    autojump_clock,
):
    storage = SimulatedStorage()
    partition = await create(storage)
    await send(partition, b"a")
    storage.plan.delay("*", seconds=(5, 5))
    statuses = []

    async def repeat():
        with pytest.raises(ServerFault) as caught:
            await delete_offset_once(partition, CONSUMER, WriteId(9, 4))
        statuses.append(caught.value.status)

    await run_async(partition.store_offset(CONSUMER, 0))
    async with partition._offsets.lock, trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as inner:
                inner.start_soon(delete_offset_once, partition, CONSUMER, WriteId(9, 4))
                await trio.testing.wait_all_tasks_blocked()
                nursery.start_soon(repeat)
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
    assert statuses == [StatusCode.TRANSIENT_NOT_COMMITTED]

    await delete_offset_once(partition, CONSUMER, WriteId(9, 4))

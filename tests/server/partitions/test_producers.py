"""Idempotent producers: which batches of theirs are stored, and what others are told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol import ProducerSequence, StatusCode
from iggy_ref_server.completion import Completion
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.partitions.producers import BATCHES_MAX, SEQUENCE_END, ProducerTable
from iggy_ref_server.partitions.write_receipts import RecordedWrite, WriteId
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.partitions.partition_calls import (
    GENERATION,
    commit,
    create,
    payloads,
    reopen,
)
from tests.server.partitions.test_write_receipts import send_once, stage

PRODUCER = 4097
FAILED = ServerFault(StatusCode.CANNOT_WRITE_TO_FILE, "the disk refused")
OUT_OF_ORDER = StatusCode.PRODUCER_SEQUENCE_OUT_OF_ORDER


def sequence(number, epoch=0, producer_id=PRODUCER):
    return ProducerSequence(producer_id, epoch, number)


def send_to(table, number, count=1, *, epoch=0, producer_id=PRODUCER, pending=None):
    """Send a batch; return what is remembered of it, or the status of the refusal."""
    producer = sequence(number, epoch, producer_id)
    try:
        found = table.find(producer, count)
    except ServerFault as fault:
        return fault.status
    if found is None:
        found = RecordedWrite(pending or Completion.finished(), number)
        table.note(producer, count, found)
    return found


def test_producer_when_it_counts_on_then_all_is_accepted():
    table = ProducerTable()

    sent = [send_to(table, number, 3) for number in (0, 3, 6)]

    assert [one.base_offset for one in sent] == [0, 3, 6]


@pytest.mark.parametrize("number", [1, 4, 7, 100, SEQUENCE_END - 1])
def test_producer_when_it_leaves_a_gap_or_goes_back_then_is_out_of_order(number):
    table = ProducerTable()
    send_to(table, 0, 3)
    send_to(table, 3, 3)

    assert send_to(table, number, 3) == OUT_OF_ORDER


def test_producer_when_a_batch_is_repeated_with_another_count_then_is_out_of_order():
    table = ProducerTable()
    send_to(table, 0, 3)

    assert send_to(table, 0, 2) == OUT_OF_ORDER


def test_batch_when_repeated_then_has_its_first_confirmation_while_it_is_remembered():
    table = ProducerTable()
    sent = [send_to(table, number) for number in range(BATCHES_MAX + 1)]

    assert [send_to(table, number) for number in range(1, BATCHES_MAX + 1)] == sent[1:]
    assert send_to(table, 0) == OUT_OF_ORDER


@pytest.mark.parametrize(("epoch", "expected"), [(0, StatusCode.PRODUCER_EPOCH_FENCED), (1, None)])
def test_epoch_when_a_newer_one_has_begun_then_the_older_is_fenced(epoch, expected):
    table = ProducerTable()
    send_to(table, 0)
    assert isinstance(send_to(table, 0, epoch=1), RecordedWrite)

    found = send_to(table, 1, epoch=epoch)

    assert (found == expected) if expected else isinstance(found, RecordedWrite)


def test_epoch_when_it_begins_behind_its_first_message_then_is_out_of_order():
    table = ProducerTable()
    send_to(table, 0)

    assert send_to(table, 1, epoch=1) == OUT_OF_ORDER
    assert isinstance(send_to(table, 1), RecordedWrite), "the old epoch goes on"


def test_producer_when_unknown_then_begins_at_zero_only():
    table = ProducerTable()

    assert send_to(table, 5) == StatusCode.PRODUCER_UNKNOWN
    assert isinstance(send_to(table, 0, epoch=3), RecordedWrite)


def test_count_when_it_reaches_its_end_then_goes_on_at_zero():
    table = ProducerTable()
    send_to(table, 0, SEQUENCE_END - 2)

    last = send_to(table, SEQUENCE_END - 2, 5)

    assert isinstance(last, RecordedWrite)
    assert isinstance(send_to(table, 3), RecordedWrite)
    assert send_to(table, SEQUENCE_END - 2, 5) is last


def test_producers_when_too_many_then_the_one_that_sent_longest_ago_is_unknown():
    table = ProducerTable(producers_max=2)
    for producer_id in (1, 2):
        send_to(table, 0, producer_id=producer_id)
    send_to(table, 1, producer_id=1)

    send_to(table, 0, producer_id=3)

    assert send_to(table, 1, producer_id=2) == StatusCode.PRODUCER_UNKNOWN
    assert isinstance(send_to(table, 2, producer_id=1), RecordedWrite)
    assert len(table) == 2


@given(
    outcomes=st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=6),
    prefix=st.integers(0, 3),
)
def test_batches_when_a_commit_fails_then_the_count_goes_back_to_the_first_that_failed(
    outcomes, prefix
):
    """A failed write fails all batches behind it, so the producer sends from there again."""
    table, number = ProducerTable(), 0
    for _ in range(prefix):
        send_to(table, number)
        number += 1
    in_flight = []
    for count, is_stored in outcomes:
        pending = Completion()
        assert isinstance(send_to(table, number, count, pending=pending), RecordedWrite)
        in_flight.append((number, count, pending, is_stored))
        number += count
    has_failed, expected = False, number
    for first, _, pending, is_stored in in_flight:
        if not is_stored and not has_failed:
            has_failed, expected = True, first
        pending.finish(FAILED if has_failed else None)

    assert isinstance(send_to(table, expected), RecordedWrite)
    assert send_to(table, expected + 7) == OUT_OF_ORDER


# --- a partition


@pytest.mark.trio
async def test_producer_when_it_repeats_from_a_new_session_then_nothing_is_stored_twice():
    partition = await create(SimulatedStorage())
    assert await send_once(partition, [b"a", b"b"], WriteId(1, 1), sequence(0)) == 0
    assert await send_once(partition, [b"c"], WriteId(1, 2), sequence(2)) == 2

    assert await send_once(partition, [b"c"], WriteId(2, 1), sequence(2)) == 2

    assert await payloads(partition) == [b"a", b"b", b"c"]


@pytest.mark.trio
async def test_producer_when_its_batch_failed_then_the_repeat_is_stored():
    storage = SimulatedStorage()
    partition = await create(storage)
    await send_once(partition, [b"a"], WriteId(1, 1), sequence(0))
    storage.plan.fail("write", path="*.log")
    failed = stage(partition, [b"b"], WriteId(1, 2), sequence(1))
    await commit(partition)
    assert failed.pending.fault is not None
    storage.plan.heal()

    assert await send_once(partition, [b"b"], WriteId(1, 2), sequence(1)) == 1
    assert await payloads(partition) == [b"a", b"b"]


@pytest.mark.trio
async def test_producer_when_the_server_restarts_then_is_unknown_and_begins_a_new_epoch():
    storage = SimulatedStorage()
    partition = await create(storage)
    await send_once(partition, [b"a"], WriteId(1, 1), sequence(0))
    await partition.aclose()
    partition = await reopen(storage)

    with pytest.raises(ServerFault) as caught:
        stage(partition, [b"b"], WriteId(2, 1), sequence(1))
    assert caught.value.status == StatusCode.PRODUCER_UNKNOWN

    assert await send_once(partition, [b"b"], WriteId(2, 2), sequence(0, epoch=1)) == 1


@pytest.mark.trio
async def test_producers_when_the_partition_is_purged_then_are_forgotten():
    partition = await create(SimulatedStorage())
    await send_once(partition, [b"a"], WriteId(1, 1), sequence(0))

    await partition.purge(generation=GENERATION + 1)

    with pytest.raises(ServerFault) as caught:
        stage(partition, [b"b"], WriteId(1, 2), sequence(1))
    assert caught.value.status == StatusCode.PRODUCER_UNKNOWN

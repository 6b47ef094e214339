"""Deduplication: dense offsets, windows, restarts and failures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol import NewMessage
from iggy_ref_server.clock import SimulatedClock
from iggy_ref_server.partitions.deduplication import Deduplicator
from iggy_ref_server.partitions.settings import AckLevel, DeduplicationSettings, PartitionSettings
from iggy_ref_server.storage.simulated.fault_plan import FaultPlan
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.partitions.partition_calls import (
    body_of,
    commit,
    create,
    offsets,
    poll,
    reopen,
    send,
    stage,
)

if TYPE_CHECKING:
    from iggy_ref_server.partitions.partition import PartitionLog

LEVELS = pytest.mark.parametrize("ack", AckLevel)


def settings(
    *, entries_max: int = 1000, expiry_us: int = 0, ack: AckLevel = AckLevel.WRITTEN
) -> PartitionSettings:
    """Look for duplicates."""
    return PartitionSettings(
        ack=ack,
        segment_size_bytes=300,
        messages_required_to_save=3,
        deduplication=DeduplicationSettings(entries_max=entries_max, expiry_us=expiry_us),
    )


def messages(*ids: int) -> list[NewMessage]:
    """Make messages with these ids."""
    return [NewMessage(b"payload", id=message_id) for message_id in ids]


async def ids(partition: PartitionLog) -> list[int]:
    """Poll the ids of all messages, whose offsets are dense."""
    found = await poll(partition)
    assert [message.offset for message in found] == list(range(len(found)))
    return [message.id for message in found]


@pytest.mark.trio
@LEVELS
async def test_duplicates_when_within_and_across_batches_then_dropped_and_offsets_dense(ack):
    """The real server stores 4, 5, 7 and loses the next message (C4)."""
    partition = await create(SimulatedStorage(), settings(ack=ack))
    await send(partition, *messages(11, 12, 11))
    await send(partition, *messages(12, 13))
    await send(partition, *messages(14))

    assert await ids(partition) == [11, 12, 13, 14]
    assert partition.statistics().messages_count == 4


@pytest.mark.trio
@LEVELS
async def test_batch_when_all_are_duplicates_then_acknowledged_and_nothing_stored(ack):
    """The real server answers 11001 and stops (C4)."""
    partition = await create(SimulatedStorage(), settings(ack=ack))
    await send(partition, *messages(1, 2))
    before = partition.statistics()

    await send(partition, *messages(2, 1))

    assert partition.statistics() == before


@pytest.mark.trio
async def test_messages_without_an_id_when_sent_then_never_duplicates():
    partition = await create(SimulatedStorage(), settings())
    await send(partition, b"a", b"a", *messages(5), b"a")
    await send(partition, b"a", *messages(5))

    found = await ids(partition)
    assert len(found) == len(set(found)) == 5


@pytest.mark.trio
async def test_duplicates_when_switched_off_then_all_stored():
    partition = await create(SimulatedStorage())
    await send(partition, *messages(1, 1))
    await send(partition, *messages(1))

    assert await offsets(partition) == [0, 1, 2]


@pytest.mark.trio
async def test_window_when_full_then_the_oldest_id_may_come_again():
    partition = await create(SimulatedStorage(), settings(entries_max=2))
    await send(partition, *messages(1, 2, 3))

    await send(partition, *messages(2, 3))
    await send(partition, *messages(1))

    assert await ids(partition) == [1, 2, 3, 1]


@pytest.mark.trio
async def test_window_when_expired_then_the_id_may_come_again():
    clock = SimulatedClock()
    partition = await create(SimulatedStorage(), settings(expiry_us=60_000_000), clock)
    await send(partition, *messages(1))
    clock.step(30_000_000)
    await send(partition, *messages(1, 2))
    clock.step(40_000_000)
    await send(partition, *messages(1, 2))

    assert await ids(partition) == [1, 2, 1]


@pytest.mark.trio
@LEVELS
async def test_window_when_restarted_then_made_again_from_the_log(ack):
    storage = SimulatedStorage()
    partition = await create(storage, settings(ack=ack))
    for number in range(1, 21):
        await send(partition, *messages(number))
    await partition.aclose()

    partition = await reopen(storage, settings(ack=ack))
    await send(partition, *messages(*range(1, 22)))

    assert await ids(partition) == list(range(1, 22))


@pytest.mark.trio
@pytest.mark.parametrize("entries_max", [1, 5, 19, 20, 100])
async def test_window_when_restarted_then_has_the_same_size(entries_max):
    storage = SimulatedStorage()
    partition = await create(storage, settings(entries_max=entries_max))
    for number in range(1, 21):
        await send(partition, *messages(number))
    await partition.aclose()
    partition = await reopen(storage, settings(entries_max=entries_max))

    await send(partition, *messages(*range(20, 0, -1)))

    forgotten = list(range(20 - entries_max, 0, -1))
    assert await ids(partition) == list(range(1, 21)) + forgotten


@pytest.mark.trio
async def test_window_when_restarted_then_expired_ids_are_not_read():
    clock = SimulatedClock()
    storage = SimulatedStorage()
    partition = await create(storage, settings(expiry_us=60_000_000), clock)
    await send(partition, *messages(*range(1, 9)))
    clock.step(50_000_000)
    await send(partition, *messages(*range(9, 13)))
    clock.step(20_000_000)
    await partition.aclose()

    partition = await reopen(storage, settings(expiry_us=60_000_000), clock)
    await send(partition, *messages(8, 9))

    assert await ids(partition) == [*range(1, 13), 8]


@pytest.mark.trio
@pytest.mark.parametrize("ack", [AckLevel.WRITTEN, AckLevel.FSYNC])
async def test_ids_when_their_write_failed_then_may_be_sent_again(ack):
    plan = FaultPlan()
    partition = await create(SimulatedStorage(plan), settings(ack=ack))
    plan.fail("write", path="*.log", times=1)
    failed = stage(partition, messages(1, 2))
    duplicate = stage(partition, messages(2))
    await commit(partition)
    assert failed.fault is not None
    assert duplicate.fault is not None, "a duplicate of what is not stored is not stored either"

    await send(partition, *messages(1, 2))

    assert await ids(partition) == [1, 2]


@pytest.mark.trio
@pytest.mark.parametrize("ack", [AckLevel.WRITTEN, AckLevel.FSYNC])
async def test_duplicate_when_the_first_is_still_being_written_then_waits_for_it(ack):
    partition = await create(SimulatedStorage(), settings(ack=ack))
    first = stage(partition, messages(1))
    second = stage(partition, messages(1))

    assert not second.is_done
    await commit(partition)

    assert (first.fault, second.is_done, second.fault) == (None, True, None)
    assert await ids(partition) == [1]


@given(st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=6), max_size=8), st.integers(0, 4))
def test_deduplicator_when_anything_is_sent_then_keeps_what_a_simple_model_keeps(
    batches, entries_max
):
    deduplicator = Deduplicator(DeduplicationSettings(entries_max=entries_max, expiry_us=0))
    window: list[int] = []
    for batch in batches:
        body, shape = body_of(messages(*batch))
        content = memoryview(body)[shape.messages_at :]
        admission = deduplicator.admit(content, len(batch), 0)
        kept = [
            number
            for place, number in enumerate(batch)
            if not number or (number not in window and number not in batch[:place])
        ]
        assert admission.messages_count == len(kept)
        assert admission.ids == tuple(number for number in kept if number)
        deduplicator.confirm(admission.ids, 0)
        window += admission.ids
        if entries_max:
            del window[:-entries_max]
        assert len(deduplicator) == len(window)

"""Polls: strategies, limits, and the three places where messages are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from iggy_protocol import PollingKind, PollingStrategy
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.partitions.health import PartitionHealth
from iggy_ref_server.partitions.poll import SLICES_MAX
from iggy_ref_server.partitions.poll_plan import PollParams
from iggy_ref_server.partitions.settings import AckLevel, IndexCache, PartitionSettings
from iggy_ref_server.partitions.steps import run_async, run_if_ready
from iggy_ref_server.storage.interface import FileSlice
from iggy_ref_server.storage.simulated.fault_plan import FaultPlan
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.partitions.partition_calls import (
    CONSUMER,
    FROM_START,
    GROUP,
    PATH,
    UNLIMITED,
    Message,
    create,
    fetch,
    offsets,
    payloads,
    poll,
    reopen,
    request,
    send,
    stage,
    unpack,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iggy_ref_server.partitions.partition import PartitionLog

EVERY_STRATEGY = [
    PollingStrategy.offset(0),
    PollingStrategy.timestamp(0),
    PollingStrategy.first(),
    PollingStrategy.last(),
    PollingStrategy.next(),
]


def expected(
    kept: list[Message], wanted: PollParams, stored: int | None, current: int
) -> list[int]:
    """Say which offsets a poll should bring, the slow and obvious way."""
    kind, value = wanted.strategy.kind, wanted.strategy.value
    if kind is PollingKind.TIMESTAMP:
        chosen = [message for message in kept if message.timestamp_us >= value]
    else:
        start = {
            PollingKind.OFFSET: value,
            PollingKind.FIRST: 0,
            PollingKind.LAST: current - min(wanted.count, current + 1) + 1,
            PollingKind.NEXT: 0 if stored is None else stored + 1,
        }[kind]
        chosen = [message for message in kept if message.offset >= start]
    brought: list[int] = []
    room = wanted.size_max_bytes
    for message in chosen[: wanted.count]:
        room -= 64 + len(message.payload)
        if room < 0 and brought:
            break
        brought.append(message.offset)
    return brought


START_US = 1_700_000_000_000_000
STEP_US = 1_000


LIMITS = [(1, UNLIMITED), (2, 130), (7, 300), (30, 1), (2**32 - 1, 1000), (2**32 - 1, UNLIMITED)]


def every_start() -> Iterator[tuple[int | None, PollingStrategy]]:
    """Go through all places where a poll can begin, with what is stored for its consumer."""
    yield None, PollingStrategy.first()
    yield None, PollingStrategy.last()
    yield None, PollingStrategy.next()
    for offset in range(32):
        yield None, PollingStrategy.offset(offset)
    for batch in range(-1, 12):
        for beside_us in (-1, 0, 1):
            yield None, PollingStrategy.timestamp(START_US + batch * STEP_US + beside_us)
    for stored in range(30):
        yield stored, PollingStrategy.next()


class SteppedClock:
    """A clock that goes one step with every look at it."""

    def __init__(self) -> None:
        self._looks = 0

    def now_us(self) -> int:
        self._looks += 1
        return START_US + (self._looks - 1) * STEP_US


async def filled(
    settings: PartitionSettings, plan: FaultPlan | None = None
) -> tuple[PartitionLog, list[Message]]:
    """Send thirty messages in batches of three, and write only some of those that need not be."""
    partition = await create(SimulatedStorage(plan), settings, SteppedClock())
    for batch in range(10):
        await send(partition, *[b"%d" % batch * (number * 20) for number in range(3)])
    return partition, await poll(partition)


@pytest.mark.parametrize("ack", [AckLevel.WRITTEN, AckLevel.MEMORY])
@pytest.mark.parametrize("segment_size_bytes", [300, 1 << 20])
@pytest.mark.parametrize("index_cache", IndexCache)
@pytest.mark.parametrize("is_uncached", [False, True], ids=["warm", "cold"])
@pytest.mark.trio
async def test_poll_when_anything_is_asked_then_brings_what_the_model_says(
    ack, segment_size_bytes, index_cache, is_uncached
):
    plan = FaultPlan()
    settings = PartitionSettings(
        ack=ack,
        segment_size_bytes=segment_size_bytes,
        index_cache=index_cache,
        messages_required_to_save=8,
    )
    partition, kept = await filled(settings, plan)
    assert [message.offset for message in kept] == list(range(30))
    if is_uncached:
        plan.uncache()
    for stored, strategy in every_start():
        if stored is not None:
            await run_async(partition.store_offset(CONSUMER, stored))
        elif partition.stored_offset(CONSUMER) is not None:
            await partition.delete_offset(CONSUMER)
        for count, size_max_bytes in LIMITS:
            wanted = PollParams(strategy, count, CONSUMER, size_max_bytes)
            assert await offsets(partition, wanted) == expected(kept, wanted, stored, 29), wanted


@pytest.mark.trio
@pytest.mark.parametrize("strategy", EVERY_STRATEGY, ids=lambda strategy: strategy.kind.name)
async def test_poll_when_partition_is_empty_then_nothing_and_offset_0(strategy):
    partition = await create(SimulatedStorage())

    polled = run_if_ready(partition.poll(request(strategy, consumer=CONSUMER)))

    assert polled == (0, 0, 0, (), None, 0)


@pytest.mark.trio
async def test_poll_when_count_is_0_then_only_the_current_offset():
    partition, _ = await filled(PartitionSettings())

    assert run_if_ready(partition.poll(request(PollingStrategy.offset(3), 0))) == (
        29,
        0,
        0,
        (),
        None,
        30,
    )


@pytest.mark.trio
async def test_poll_when_beyond_the_end_then_empty():
    partition, _ = await filled(PartitionSettings())

    assert await offsets(partition, request(PollingStrategy.offset(30))) == []
    assert await offsets(partition, request(PollingStrategy.offset(2**64 - 1))) == []
    hour_ahead_us = START_US + 3_600_000_000
    assert await offsets(partition, request(PollingStrategy.timestamp(hour_ahead_us))) == []


@pytest.mark.trio
async def test_timestamp_when_a_batch_has_it_then_the_whole_batch_comes():
    """The real server starts inside the batch, where its binary search happens to hit."""
    partition = await create(SimulatedStorage(), clock=SteppedClock())
    for _ in range(3):
        await send(partition, b"a", b"b", b"c", b"d")
    second_us = (await poll(partition))[4].timestamp_us

    found = await offsets(partition, request(PollingStrategy.timestamp(second_us)))

    assert found == list(range(4, 12))


@pytest.mark.trio
async def test_next_when_group_and_consumer_share_an_id_then_each_has_its_own_offset():
    partition, _ = await filled(PartitionSettings())
    await run_async(partition.store_offset(CONSUMER, 9))
    await run_async(partition.store_offset(GROUP, 19))

    for key, first in ((CONSUMER, 10), (GROUP, 20)):
        wanted = request(PollingStrategy.next(), 1, consumer=key)
        assert await offsets(partition, wanted) == [first]


@pytest.mark.trio
async def test_poll_when_message_is_larger_than_the_limit_then_it_comes_alone():
    partition = await create(SimulatedStorage())
    await send(partition, bytes(10_000), b"small", b"small")

    wanted = request(PollingStrategy.first(), size_max_bytes=1_000)

    assert await offsets(partition, wanted) == [0]


@pytest.mark.trio
async def test_poll_when_bytes_are_on_disk_then_brings_slices_and_reads_nothing():
    plan = FaultPlan()
    partition, _ = await filled(PartitionSettings(), plan)
    plan.fail("read")
    plan.uncache(path="*.log")

    polled = run_if_ready(partition.poll(FROM_START))

    assert polled is not None
    assert [type(part) for part in polled.parts] == [FileSlice]


@pytest.mark.trio
async def test_poll_when_messages_are_in_three_places_then_in_order_without_gaps():
    """Sealed segments, the open segment and the journal: the tiers of up #2715 and #2958."""
    settings = PartitionSettings(
        ack=AckLevel.MEMORY, segment_size_bytes=600, messages_required_to_save=7
    )
    partition, _ = await filled(settings)

    polled = await run_async(partition.poll(FROM_START))

    kinds = [isinstance(part, FileSlice) for part in polled.parts]
    assert kinds == sorted(kinds, reverse=True)
    assert set(kinds) == {True, False}
    assert [message.offset for message in await unpack(polled)] == list(range(30))


@pytest.mark.trio
async def test_poll_when_segments_are_many_then_all_come_with_few_files_open():
    settings = PartitionSettings(segment_size_bytes=64, messages_required_to_save=1)
    storage = SimulatedStorage()
    partition = await create(storage, settings)
    for number in range(80):
        await send(partition, b"%d" % number)
    assert partition.statistics().segments_count == 41

    for _ in range(2):
        polled = await run_async(partition.poll(FROM_START))
        assert [message.offset for message in await unpack(polled)] == list(range(80))
        files = {id(part.file) for part in polled.parts if isinstance(part, FileSlice)}
        assert len(files) <= 9
        assert sum(segment.is_open for segment in partition._segment_list.segments) <= 9
        storage = storage.kill()
        partition = await reopen(storage, settings)


@pytest.mark.trio
async def test_slice_when_its_segment_is_removed_then_can_still_be_read():
    partition, kept = await filled(PartitionSettings(segment_size_bytes=300))
    polled = await run_async(partition.poll(FROM_START))

    await partition.delete_segments(100)

    assert [message.offset for message in await unpack(polled)] == [m.offset for m in kept]
    assert (await offsets(partition))[0] > 0


@pytest.mark.trio
async def test_poll_when_below_the_oldest_then_moved_up():
    partition, _ = await filled(PartitionSettings(segment_size_bytes=300))
    await run_async(partition.store_offset(CONSUMER, 29))
    await partition.delete_segments(1)
    oldest = (await offsets(partition))[0]
    await run_async(partition.store_offset(CONSUMER, 0))

    assert oldest > 1
    for strategy in (
        PollingStrategy.offset(1),
        PollingStrategy.first(),
        PollingStrategy.next(),
        PollingStrategy.timestamp(0),
    ):
        wanted = request(strategy, 1, consumer=CONSUMER)
        assert await offsets(partition, wanted) == [oldest], strategy
    assert partition.statistics().current_offset == 29


@pytest.mark.trio
async def test_poll_when_cold_then_told_to_wait_and_right():
    plan = FaultPlan()
    settings = PartitionSettings(index_cache=IndexCache.NONE, messages_required_to_save=1)
    partition, _ = await filled(settings, plan)
    plan.uncache()
    wanted = request(PollingStrategy.offset(5), 3)

    assert run_if_ready(partition.poll(wanted)) is None
    assert await offsets(partition, wanted) == [5, 6, 7]


@pytest.mark.trio
async def test_poll_when_the_disk_fails_then_the_client_is_told():
    plan = FaultPlan()
    settings = PartitionSettings(index_cache=IndexCache.NONE, messages_required_to_save=1)
    partition, _ = await filled(settings, plan)
    plan.uncache()
    plan.fail("read", times=1)
    wanted = request(PollingStrategy.offset(5), 3)

    with pytest.raises(ServerFault) as caught:
        await run_async(partition.poll(wanted))
    assert caught.value.status == 10002
    assert await offsets(partition, wanted) == [5, 6, 7]


@pytest.mark.trio
@pytest.mark.parametrize("index_cache", IndexCache)
async def test_count_when_index_is_not_cached_after_a_restart_then_matches_the_body(index_cache):
    """The real server answered count 1 with six messages (C5, C22)."""
    storage = SimulatedStorage()
    settings = PartitionSettings(index_cache=index_cache, messages_required_to_save=1)
    partition = await create(storage, settings)
    for _ in range(5):
        await send(partition, b"before")
    partition = await reopen(storage.kill(), settings)
    await send(partition, b"after")
    await partition.flush(fsync=False)

    assert await payloads(partition, request(PollingStrategy.offset(0), 1)) == [b"before"]
    assert await payloads(partition, request(PollingStrategy.offset(4), 2)) == [b"before", b"after"]


@pytest.mark.trio
@pytest.mark.parametrize("hole", [(16, 32), (0, 16), (0, 480)], ids=["middle", "first", "all"])
async def test_index_when_it_has_a_hole_then_a_poll_mends_it(hole):
    storage = SimulatedStorage()
    partition = await create(storage)
    await send(partition, *[b"payload"] * 30)
    await partition.aclose()
    file = await storage.open(f"{PATH}/{0:020}.index")
    start, end = hole
    await file.write([bytes(end - start - 16 * (end == 480))], start)
    partition = await reopen(storage)

    assert await offsets(partition, request(PollingStrategy.offset(1), 2)) == [1, 2]
    assert await offsets(partition, request(PollingStrategy.offset(2), 1)) == [2]
    assert partition.health is PartitionHealth.OK


@pytest.mark.trio
async def test_log_when_found_damaged_by_a_poll_then_read_only_and_told():
    storage = SimulatedStorage()
    partition = await create(storage)
    await send(partition, *[b"payload"] * 9)
    await partition.aclose()
    index = await storage.open(f"{PATH}/{0:020}.index")
    await index.write([bytes(32)], 16)
    log = await storage.open(f"{PATH}/{0:020}.log")
    await log.write([b"\xff" * 8], 300)
    partition = await reopen(storage)

    with pytest.raises(ServerFault) as caught:
        await poll(partition, request(PollingStrategy.offset(2), 1))

    assert caught.value.status == 4011
    assert partition.health is PartitionHealth.READ_ONLY
    assert "offset 4" in partition.reason
    with pytest.raises(ServerFault):
        stage(partition, [b"x"])


@pytest.mark.trio
async def test_parts_when_polled_twice_then_equal():
    partition, _ = await filled(PartitionSettings(segment_size_bytes=400))

    first, second = [await run_async(partition.poll(FROM_START)) for _ in range(2)]

    assert await fetch(first) == await fetch(second)


@pytest.mark.trio
async def test_poll_when_only_memory_is_bounded_then_what_is_read_into_it_is_cut():
    plan = FaultPlan()
    partition = await create(SimulatedStorage(plan), PartitionSettings(segment_size_bytes=512))
    for _ in range(30):
        await send(partition, bytes(600))
    plan.uncache()

    whole = await offsets(
        partition, PollParams(PollingStrategy.first(), 100, CONSUMER, UNLIMITED, 1 << 20)
    )
    cut = await offsets(
        partition, PollParams(PollingStrategy.first(), 100, CONSUMER, UNLIMITED, 10)
    )

    assert whole == list(range(30))
    assert SLICES_MAX <= len(cut) < len(whole)
    assert cut == whole[: len(cut)]

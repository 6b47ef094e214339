"""Everything that was sent can be read back, whatever the settings: upstream's retrieval matrix."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest

from iggy_protocol import NewMessage, PollingStrategy
from iggy_ref_server.partitions.settings import AckLevel, IndexCache, PartitionSettings
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.partitions.partition_calls import Message, create, poll, reopen, request, send

if TYPE_CHECKING:
    from iggy_ref_server.partitions.partition import PartitionLog

pytestmark = pytest.mark.trio

TOTAL = 40
HEADERS = b"three headers, as bytes"
STEP_US = 1_000_000

# Batch sizes that add up to the total.
PATTERNS = {
    "one by one": [1] * TOTAL,
    "all at once": [TOTAL],
    "a few": [20, 15, 5],
    "mixed": [1, 7, 2, 17, 3, 9, 1],
}


class SteppedClock:
    """A clock that goes a second with every look at it."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000_000

    def now_us(self) -> int:
        self.now += STEP_US
        return self.now


async def fill(partition: PartitionLog, pattern: list[int], size: int) -> list[Message]:
    """Send all messages; return what should be read."""
    number = 0
    for count in pattern:
        batch = [
            NewMessage(b"%d:" % place + bytes(size), id=place + 1, user_headers=HEADERS)
            for place in range(number, number + count)
        ]
        await send(partition, *batch)
        number += count
    found = await poll(partition)
    assert [message.offset for message in found] == list(range(TOTAL))
    assert [message.id for message in found] == list(range(1, TOTAL + 1))
    assert all(message.user_headers == HEADERS for message in found)
    assert all(message.payload == b"%d:" % n + bytes(size) for n, message in enumerate(found))
    return found


async def check_offsets(partition: PartitionLog, sent: list[Message]) -> None:
    """Read from the start, the middle, beyond the end, across segments, and in chunks."""
    for start, count in ((0, TOTAL), (TOTAL // 2, TOTAL), (TOTAL + 100, 5), (0, 3), (4, 33)):
        found = await poll(partition, request(PollingStrategy.offset(start), count))
        assert found == sent[start : start + count]
    chunks = [
        message
        for start in range(0, TOTAL, 8)
        for message in await poll(partition, request(PollingStrategy.offset(start), 8))
    ]
    assert chunks == sent


async def check_times(partition: PartitionLog, sent: list[Message]) -> None:
    """Read from before the first batch, between batches, an hour ahead, and a limited number."""
    before = request(PollingStrategy.timestamp(sent[0].timestamp_us - 1))
    assert await poll(partition, before) == sent
    middle_us = sent[TOTAL // 2].timestamp_us + 1
    later = [message for message in sent if message.timestamp_us >= middle_us]
    assert await poll(partition, request(PollingStrategy.timestamp(middle_us))) == later
    ahead_us = sent[-1].timestamp_us + 3_600 * STEP_US
    assert await poll(partition, request(PollingStrategy.timestamp(ahead_us))) == []
    few = request(PollingStrategy.timestamp(sent[0].timestamp_us), 33)
    assert await poll(partition, few) == sent[:33]


async def check_ends(partition: PartitionLog, sent: list[Message]) -> None:
    """Read the first and the last."""
    assert await poll(partition, request(PollingStrategy.first(), 5)) == sent[:5]
    assert await poll(partition, request(PollingStrategy.last(), 10)) == sent[-10:]


@pytest.mark.parametrize("segment_size_bytes", [512, 1024, 10 << 20])
@pytest.mark.parametrize("index_cache", IndexCache)
@pytest.mark.parametrize("ack", [AckLevel.MEMORY, AckLevel.WRITTEN])
@pytest.mark.parametrize("pattern", PATTERNS)
async def test_messages_when_stored_under_any_settings_then_read_back(
    segment_size_bytes, index_cache, ack, pattern
):
    for saved_every, size in product((1, 32, 1024), (50, 1000)):
        storage = SimulatedStorage()
        settings = PartitionSettings(
            segment_size_bytes=segment_size_bytes,
            index_cache=index_cache,
            ack=ack,
            messages_required_to_save=saved_every,
        )
        partition = await create(storage, settings, SteppedClock())
        sent = await fill(partition, PATTERNS[pattern], size)
        for check in (check_offsets, check_times, check_ends):
            await check(partition, sent)
        before = partition.statistics()
        await partition.aclose()
        partition = await reopen(storage, settings, SteppedClock())
        assert partition.statistics() == before
        for check in (check_offsets, check_times, check_ends):
            await check(partition, sent)

"""Polls of a log that is damaged in its middle: what is intact is handed out, the rest refused."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from iggy_protocol import PayloadCipher, PollingStrategy, StatusCode
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.partitions import poll as verification_module
from iggy_ref_server.partitions.settings import PartitionSettings
from iggy_ref_server.partitions.steps import run_if_ready
from iggy_ref_server.segments.file_names import log_path
from iggy_ref_server.segments.log_scanner import LogScanner
from iggy_ref_server.segments.segment import RANGES_MAX, CheckedRanges
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.partitions.partition_calls import (
    PATH,
    create,
    offsets,
    poll,
    reopen,
    request,
    send,
)

if TYPE_CHECKING:
    from iggy_ref_server.partitions.partition import PartitionLog
    from iggy_ref_server.partitions.poll_plan import PollParams

pytestmark = pytest.mark.trio

COUNT = 30
SIZE = 64 + 10
# Where the fields of a message begin, one of each kind of damage.
PLACES = {"checksum": 0, "offset": 24, "headers length": 48, "payload length": 52, "payload": 66}


def from_offset(offset: int, count: int = 1000) -> PollParams:
    return request(PollingStrategy.offset(offset), count)


async def stopped(settings: PartitionSettings | None = None) -> SimulatedStorage:
    """Send messages and stop in order."""
    storage = SimulatedStorage()
    partition = await create(storage, settings)
    for number in range(COUNT):
        await send(partition, b"%010d" % number)
    await partition.aclose()
    return storage


async def flip(storage: SimulatedStorage, at: int, start_offset: int = 0) -> None:
    path = log_path(PATH, start_offset)
    content = bytearray(await storage.read_file(path) or b"")
    content[at] ^= 1
    log = await storage.open(path)
    await log.write([content], 0)


async def assert_served_around(partition: PartitionLog, damaged: int) -> None:
    """All but one message can be read, and whoever asks for that one is told."""
    assert await offsets(partition) == list(range(damaged))
    for _ in range(2):
        with pytest.raises(ServerFault, match=f"poll from offset {damaged + 1}") as refusal:
            await poll(partition, from_offset(damaged))
        assert refusal.value.status == StatusCode.CANNOT_READ_MESSAGE
    assert await offsets(partition, from_offset(damaged + 1)) == list(range(damaged + 1, COUNT))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("damaged", [1, 5, 28])
async def test_log_when_damaged_in_the_middle_then_served_up_to_there_and_behind(
    place, damaged, caplog
):
    storage = await stopped()
    await flip(storage, damaged * SIZE + PLACES[place])
    with caplog.at_level(logging.ERROR):
        partition = await reopen(storage)

        await assert_served_around(partition, damaged)

    assert caplog.text.count("is damaged at byte") == 1, "once, not for every poll"
    await send(partition, b"new")
    assert (await offsets(partition, from_offset(COUNT))) == [COUNT]


async def test_range_when_read_in_pieces_then_the_same(monkeypatch):
    monkeypatch.setattr(verification_module, "INLINE_VERIFY_BYTES_MAX", SIZE)
    storage = await stopped()
    await flip(storage, 7 * SIZE + 52)

    await assert_served_around(await reopen(storage), 7)


async def test_damage_when_others_need_the_descriptors_meanwhile_then_told_all_the_same(
    monkeypatch,
):
    storage = await stopped()
    await flip(storage, 7 * SIZE + 52)
    partition = await reopen(storage)
    finish = LogScanner.finish

    async def finish_and_lose_all_files(walk: LogScanner) -> None:
        await finish(walk)
        while storage.open_files.evict_some():
            pass

    monkeypatch.setattr(LogScanner, "finish", finish_and_lose_all_files)

    await assert_served_around(partition, 7)


async def test_messages_when_sealed_with_a_key_then_the_same():
    settings = PartitionSettings(encryptor=PayloadCipher(bytes(32)))
    storage = await stopped(settings)
    size = len(await storage.read_file(log_path(PATH, 0)) or b"") // COUNT
    await flip(storage, 7 * size + 52)

    await assert_served_around(await reopen(storage, settings), 7)


async def test_segments_when_one_is_damaged_then_polls_end_before_it():
    settings = PartitionSettings(segment_size_bytes=5 * SIZE)
    storage = await stopped(settings)
    start = sorted(
        int(entry.name[:20]) for entry in await storage.entries(PATH) if entry.name.endswith(".log")
    )[1]
    await flip(storage, 2 * SIZE + 52, start)

    await assert_served_around(await reopen(storage, settings), start + 2)


async def test_range_when_it_was_read_once_then_not_again():
    storage = await stopped()
    partition = await reopen(storage)
    assert len(await offsets(partition)) == COUNT
    storage.plan.fail("read", path="*.log")
    storage.plan.uncache(path="*.log")

    for start in range(0, COUNT, 7):
        assert run_if_ready(partition.poll(from_offset(start, 3))) is not None


async def test_messages_when_this_process_wrote_them_then_not_read_at_all():
    storage = SimulatedStorage()
    partition = await create(storage)
    storage.plan.fail("read", path="*.log")
    storage.plan.uncache(path="*.log")
    await send(partition, b"a", b"b")

    assert run_if_ready(partition.poll(from_offset(0))) is not None


async def test_polls_when_all_are_to_be_verified_then_damage_is_found_while_running():
    settings = PartitionSettings(validate_checksums=True)
    storage = SimulatedStorage()
    partition = await create(storage, settings)
    for number in range(COUNT):
        await send(partition, b"%010d" % number)
    assert len(await offsets(partition)) == COUNT

    await flip(storage, 9 * SIZE + 70)

    await assert_served_around(partition, 9)


async def test_ranges_when_added_then_known_and_few():
    ranges = CheckedRanges()
    ranges.add(100, 200)
    ranges.add(200, 300)
    ranges.add(0, 50)
    assert ranges.covers(100, 300)
    assert ranges.covers(0, 50)
    assert not ranges.covers(0, 100)
    ranges.add(50, 100)
    assert ranges.covers(0, 300)
    for number in range(10, 10 + 3 * RANGES_MAX):
        ranges.add(number * 1_000, number * 1_000 + number)
    assert ranges.covers(0, 300), "the longest stay"
    assert not ranges.covers(10_000, 10_010)

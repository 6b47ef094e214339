"""The record that says whose files these are: it is believed, or nothing is touched."""

from __future__ import annotations

import logging

import pytest

from iggy_ref_server.partitions.generation import (
    GENERATION_FILE,
    Generation,
    GenerationState,
    read_generation,
    remove_partition_files,
    write_generation,
)
from iggy_ref_server.partitions.settings import AckLevel, PartitionSettings
from iggy_ref_server.partitions.steps import run_async
from iggy_ref_server.segments.errors import CorruptPartition
from iggy_ref_server.storage.simulated.fault_plan import FaultPlan
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.partitions.partition_calls import (
    CONSUMER,
    GENERATION,
    PATH,
    create,
    interrupt,
    offsets,
    payloads,
    reopen,
    send,
)
from tests.server.partitions.test_purge import open_life

pytestmark = pytest.mark.trio

FILE = f"{PATH}/{GENERATION_FILE}"
NEXT = GENERATION + 1


async def filled(settings: PartitionSettings | None = None) -> SimulatedStorage:
    """Make a partition with three messages and a stored offset, and stop in order."""
    storage = SimulatedStorage()
    partition = await create(storage, settings)
    for payload in (b"a", b"b", b"c"):
        await send(partition, payload)
    await run_async(partition.store_offset(CONSUMER, 1))
    await partition.aclose()
    return storage


async def everything(storage: SimulatedStorage, path: str = PATH) -> dict[str, bytes | None]:
    """Read all files of the partition."""
    found: dict[str, bytes | None] = {}
    for entry in await storage.entries(path):
        name = f"{path}/{entry.name}"
        if entry.is_directory:
            found |= await everything(storage, name)
        else:
            found[name] = await storage.read_file(name)
    return found


async def test_record_when_any_bit_is_flipped_then_set_aside_and_untouched():
    storage = await filled()
    content = await storage.read_file(FILE)
    assert content is not None
    for bit in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        await storage.replace(FILE, damaged)
        before = await everything(storage)

        with pytest.raises(CorruptPartition, match=GENERATION_FILE):
            await reopen(storage)

        assert await everything(storage) == before
    await storage.replace(FILE, content)
    assert await payloads(await reopen(storage)) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("size", range(33))
async def test_record_when_cut_or_longer_then_set_aside(size):
    storage = await filled()
    content = await storage.read_file(FILE)
    assert content is not None
    await storage.replace(FILE, content[:size] if size < len(content) else content + b"\0")

    with pytest.raises(CorruptPartition, match=GENERATION_FILE):
        await reopen(storage)

    assert (await everything(storage))[f"{PATH}/{0:020}.log"]


async def test_record_when_missing_beside_messages_then_set_aside():
    storage = await filled()
    await storage.remove(FILE)
    before = await everything(storage)

    with pytest.raises(CorruptPartition, match=f"`{GENERATION_FILE}` is missing"):
        await reopen(storage)

    assert await everything(storage) == before


async def test_record_when_it_is_of_another_partition_then_set_aside():
    """Two records that somebody swapped are both intact, and both wrong."""
    storage = await filled()
    other = "streams/0/topics/0/partitions/1"
    await storage.make_directories(other)
    await write_generation(storage, other, Generation(GENERATION - 1))
    content = await storage.read_file(f"{other}/{GENERATION_FILE}")
    assert content is not None
    await storage.replace(FILE, content)

    with pytest.raises(CorruptPartition, match="belongs to another partition"):
        await reopen(storage)


async def test_logs_when_missing_then_set_aside_instead_of_beginning_again():
    storage = await filled()
    await storage.remove(f"{PATH}/{0:020}.log")

    with pytest.raises(CorruptPartition, match="log files of generation 7 are missing"):
        await reopen(storage)


async def test_generation_when_lower_then_wiped_with_a_line(caplog):
    storage = await filled()

    with caplog.at_level(logging.INFO):
        partition = await open_life(storage, NEXT)

    assert await payloads(partition) == []
    assert partition.stored_offset(CONSUMER) is None
    assert "generation 7, which was deleted or purged" in caplog.text


async def test_generation_when_higher_then_the_metadata_are_older_and_nothing_is_touched():
    storage = await filled()
    before = await everything(storage)

    with pytest.raises(CorruptPartition, match="the metadata are older than the messages"):
        await open_life(storage, GENERATION - 1)

    assert await everything(storage) == before


async def test_text_when_of_an_earlier_release_then_opened_and_given_a_checksum():
    storage = await filled(PartitionSettings(ack=AckLevel.MEMORY))
    reservation = await storage.read_file(f"{PATH}/reservation")
    assert reservation is not None
    await storage.replace(FILE, b"7\n")
    await storage.replace(f"{PATH}/reservation", reservation.partition(b"\n")[0])

    partition = await reopen(storage)

    assert await payloads(partition) == [b"a", b"b", b"c"]
    assert await read_generation(storage, PATH) == Generation(GENERATION, has_reservation=True)
    assert await storage.read_file(f"{PATH}/reservation") == reservation


@pytest.mark.parametrize("text", [b"6\n", b"5\n", b"8\n", b"17\n", b"7", b"07\n", b"", b"7\n\n"])
async def test_text_when_it_is_not_the_number_then_set_aside(text):
    """No checksum vouches for it, so it may be one flipped bit."""
    storage = await filled()
    await storage.replace(FILE, text)
    before = await everything(storage)

    with pytest.raises(CorruptPartition):
        await reopen(storage)

    assert await everything(storage) == before


@pytest.mark.parametrize("number", [None, b"6\n"])
async def test_creation_when_an_earlier_release_was_interrupted_then_finished(number):
    storage = SimulatedStorage()
    await storage.make_directories(f"{PATH}/offsets/consumers")
    for suffix in ("log", "index"):
        await storage.replace(f"{PATH}/{0:020}.{suffix}", b"")
    if number is not None:
        await storage.replace(FILE, number)

    partition = await reopen(storage)

    await send(partition, b"first")
    assert await offsets(partition) == [0]


async def test_making_when_interrupted_then_begun_again(caplog):
    storage = await filled()
    creating = Generation(GENERATION, GenerationState.CREATING)
    await write_generation(storage, PATH, creating)

    with caplog.at_level(logging.INFO):
        partition = await reopen(storage)

    assert await payloads(partition) == []
    assert "was interrupted" in caplog.text


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("power", [False, True], ids=["kill", "power loss"])
async def test_deletion_when_interrupted_then_the_next_partition_with_these_ids_is_served(
    seed, power, autojump_clock
):
    plan = FaultPlan(seed)
    storage = SimulatedStorage(plan)
    settings = PartitionSettings(ack=AckLevel.FSYNC, segment_size_bytes=200)
    partition = await create(storage, settings)
    for _ in range(8):
        await send(partition, b"old")
    await run_async(partition.store_offset(CONSUMER, 3))
    await partition.aclose()
    plan.delay("*", seconds=(0, 0.2))
    left = await interrupt(
        storage,
        lambda: remove_partition_files(storage, PATH),
        after_s=plan.rng.uniform(0, 2),
        power=power,
    )

    partition = await open_life(left, NEXT, settings)

    assert await payloads(partition) == []
    assert partition.stored_offset(CONSUMER) is None
    await send(partition, b"new")
    assert await payloads(await open_life(left.kill(), NEXT, settings)) == [b"new"]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("power", [False, True], ids=["kill", "power loss"])
async def test_creation_when_interrupted_then_the_next_start_serves_it(seed, power, autojump_clock):
    plan = FaultPlan(seed)
    storage = SimulatedStorage(plan)
    plan.delay("*", seconds=(0, 0.2))
    left = await interrupt(
        storage, lambda: create(storage), after_s=plan.rng.uniform(0, 2), power=power
    )

    partition = await reopen(left)

    await send(partition, b"first")
    assert await offsets(partition) == [0]


@pytest.mark.parametrize("seed", range(20))
async def test_purge_from_memory_when_interrupted_then_no_offset_is_given_twice(
    seed, autojump_clock
):
    """What is acknowledged from memory belongs to a generation that the next start keeps."""
    plan = FaultPlan(seed)
    storage = SimulatedStorage(plan)
    settings = PartitionSettings(ack=AckLevel.MEMORY)
    partition = await create(storage, settings)
    await send(partition, b"old")
    told: list[bytes] = []

    async def purge_and_send() -> None:
        await partition.purge(generation=NEXT)
        await send(partition, b"told")
        told.append(b"told")

    plan.delay("*", seconds=(0, 0.2))
    left = await interrupt(storage, purge_and_send, after_s=plan.rng.uniform(0, 4), power=False)

    partition = await open_life(left, NEXT, settings)
    await send(partition, b"new")

    assert set(await offsets(partition)) != {0} or not told or b"told" in await payloads(partition)


async def test_reservation_when_any_bit_is_flipped_or_it_is_missing_then_set_aside():
    storage = await filled(PartitionSettings(ack=AckLevel.MEMORY))
    path = f"{PATH}/reservation"
    content = await storage.read_file(path)
    assert content is not None
    for bit in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        await storage.replace(path, damaged)
        with pytest.raises(CorruptPartition, match="reservation"):
            await reopen(storage)
    await storage.remove(path)
    with pytest.raises(CorruptPartition, match="`reservation` is missing"):
        await reopen(storage)
    await storage.replace(path, content)
    assert await payloads(await reopen(storage)) == [b"a", b"b", b"c"]


async def test_reservation_when_the_process_dies_before_it_is_announced_then_still_opens():
    storage = await filled()
    found = await read_generation(storage, PATH)
    assert found == Generation(GENERATION, has_reservation=True)
    await write_generation(storage, PATH, found._replace(has_reservation=False))

    assert await payloads(await reopen(storage)) == [b"a", b"b", b"c"]

    assert await read_generation(storage, PATH) == found


async def test_text_when_of_an_earlier_release_and_the_logs_are_missing_then_set_aside():
    """An index and stored offsets tell that there were messages."""
    storage = await filled()
    await storage.replace(FILE, b"7\n")
    await storage.remove(f"{PATH}/reservation")
    await storage.remove(f"{PATH}/{0:020}.log")
    before = await everything(storage)

    with pytest.raises(CorruptPartition, match="log files of generation 7 are missing"):
        await reopen(storage)

    assert await everything(storage) == before


@pytest.mark.parametrize(
    "older", [Generation(GENERATION - 1), Generation(GENERATION, GenerationState.CREATING)]
)
async def test_record_when_older_than_what_a_server_has_opened_then_set_aside(older):
    """It was brought back from a copy, and is no proof that the messages were purged."""
    storage = await filled()
    await write_generation(storage, PATH, older)
    before = await everything(storage)

    with pytest.raises(CorruptPartition, match="has opened generation 7"):
        await reopen(storage, PartitionSettings(opened_generation=GENERATION))

    assert await everything(storage) == before

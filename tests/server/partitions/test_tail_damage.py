"""Damage at the end of the last log: a torn write is cut, and nothing that was acknowledged."""

from __future__ import annotations

import pytest

from iggy_protocol import checksum
from iggy_ref_server.partitions.settings import AckLevel, PartitionSettings
from iggy_ref_server.segments.errors import CorruptPartition
from iggy_ref_server.segments.recovery import SALVAGE_PATH
from iggy_ref_server.segments.segment import Segment
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.partitions.partition_calls import PATH, create, offsets, poll, reopen, send

pytestmark = pytest.mark.trio

LOG = f"{PATH}/{0:020}.log"
INDEX = f"{PATH}/{0:020}.index"
COUNT = 50
SIZE = 64 + 10
LEVELS = pytest.mark.parametrize("ack", [AckLevel.WRITTEN, AckLevel.FSYNC])


def settings_of(ack: AckLevel, *, survived: bool) -> PartitionSettings:
    """Say how messages are acknowledged, and whether the machine has run since then."""
    return PartitionSettings(ack=ack, writes_survived=survived)


async def filled(ack: AckLevel) -> SimulatedStorage:
    """Send messages one by one, and kill the process."""
    storage = SimulatedStorage()
    partition = await create(storage, settings_of(ack, survived=True))
    for number in range(COUNT):
        await send(partition, b"%010d" % number)
    return storage.kill()


async def change(
    storage: SimulatedStorage, path: str, *, flip: int | None = None, cut: int = 0
) -> None:
    """Turn a bit over, or cut bytes off."""
    content = bytearray(await storage.read_file(path) or b"")
    if flip is not None:
        content[flip] ^= 1
    await storage.replace(path, content[: len(content) - cut])


async def names_and_bytes(storage: SimulatedStorage) -> dict[str, bytes | None]:
    """Read the files of segments."""
    names = [entry.name for entry in await storage.entries(PATH) if entry.name[0] == "0"]
    return {name: await storage.read_file(f"{PATH}/{name}") for name in names}


@LEVELS
@pytest.mark.parametrize("at", [0, 10, 48])
@pytest.mark.parametrize("has_index", [True, False])
async def test_bit_when_flipped_before_intact_messages_then_set_aside_and_untouched(
    ack, at, has_index
):
    storage = await filled(ack)
    await change(storage, LOG, flip=at * SIZE + 70)
    if has_index:
        await storage.replace(INDEX, b"")
    else:
        await storage.remove(INDEX)
    before = await names_and_bytes(storage)

    for _ in range(2):
        with pytest.raises(CorruptPartition, match=f"offset {at} cannot be read"):
            await reopen(storage, settings_of(ack, survived=True))

    assert await names_and_bytes(storage) == before


@LEVELS
@pytest.mark.parametrize("at", [0, 10, 48])
async def test_bit_when_flipped_and_the_power_was_lost_then_all_others_are_kept(ack, at):
    """Nobody can tell then whether a write was torn, so nothing intact is given up."""
    storage = await filled(ack)
    await change(storage, LOG, flip=at * SIZE + 70)
    await storage.replace(INDEX, b"")

    partition = await reopen(storage, settings_of(ack, survived=False))

    found = [message.offset for message in await poll(partition)]
    assert found == [offset for offset in range(COUNT) if offset != at]
    await send(partition, b"new")
    assert (await offsets(partition))[-1] == COUNT
    [kept] = await storage.entries("quarantine/at-start/" + PATH)
    assert kept.size_bytes == SIZE
    await partition.aclose()
    again = await reopen(storage, settings_of(ack, survived=True))
    assert await offsets(again) == [*found, COUNT]


@pytest.mark.parametrize("cut", [1, SIZE, 10 * SIZE + 5, COUNT * SIZE])
async def test_log_when_shorter_than_its_index_tells_then_set_aside(cut):
    storage = await filled(AckLevel.FSYNC)
    await change(storage, LOG, cut=cut)
    before = await names_and_bytes(storage)

    for survived in (True, False):
        with pytest.raises(CorruptPartition, match="the index tells"):
            await reopen(storage, settings_of(AckLevel.FSYNC, survived=survived))

    assert await names_and_bytes(storage) == before


@pytest.mark.parametrize("cut", [1, SIZE, COUNT * SIZE])
async def test_log_when_the_power_took_its_end_then_no_offset_is_given_again(cut):
    storage = await filled(AckLevel.FSYNC)
    await change(storage, LOG, cut=cut)

    partition = await reopen(storage, settings_of(AckLevel.WRITTEN, survived=False))

    left = (COUNT * SIZE - cut) // SIZE
    assert await offsets(partition) == list(range(left))
    await send(partition, b"new")
    assert await offsets(partition) == [*range(left), COUNT]


@LEVELS
@pytest.mark.parametrize("survived", [True, False])
@pytest.mark.parametrize("name", ["log", "log and index"])
async def test_log_when_shorter_than_at_an_orderly_stop_then_set_aside(ack, survived, name):
    storage = SimulatedStorage()
    partition = await create(storage, settings_of(ack, survived=True))
    for number in range(COUNT):
        await send(partition, b"%010d" % number)
    await partition.aclose()
    await change(storage, LOG, cut=3 * SIZE)
    if name == "log and index":
        await change(storage, INDEX, cut=48)

    with pytest.raises(CorruptPartition):
        await reopen(storage, settings_of(ack, survived=survived))


@LEVELS
@pytest.mark.parametrize("written", [1, 63, 64, SIZE - 1])
async def test_write_when_torn_then_cut(ack, written):
    storage = await filled(ack)
    content = await storage.read_file(LOG) or b""
    message = bytearray(content[-SIZE:])
    message[24:32] = COUNT.to_bytes(8, "little")
    await storage.replace(LOG, content + message[:written])

    partition = await reopen(storage, settings_of(ack, survived=True))

    assert await offsets(partition) == list(range(COUNT))
    await send(partition, b"new")
    assert (await offsets(partition))[-1] == COUNT


@pytest.mark.parametrize("survived", [True, False])
async def test_sealed_segment_when_damaged_and_not_noted_as_synced_then_never_cut_in_silence(
    survived,
):
    storage = SimulatedStorage()
    settings = PartitionSettings(segment_size_bytes=10 * SIZE, writes_survived=survived)
    partition = await create(storage, settings)
    for number in range(COUNT):
        await send(partition, b"%010d" % number)
    storage = storage.kill()
    await change(storage, LOG, flip=4 * SIZE + 70)
    await storage.remove(INDEX)
    before = await names_and_bytes(storage)

    if survived:
        with pytest.raises(CorruptPartition):
            await reopen(storage, settings)
        assert await names_and_bytes(storage) == before
    else:
        partition = await reopen(storage, settings)
        assert await offsets(partition) == [at for at in range(COUNT) if at != 4]


async def test_last_log_when_missing_then_set_aside():
    storage = SimulatedStorage()
    settings = PartitionSettings(segment_size_bytes=10 * SIZE, writes_survived=True)
    partition = await create(storage, settings)
    for number in range(25):
        await send(partition, b"%010d" % number)
    await partition.aclose()
    last = [entry.name for entry in await storage.entries(PATH) if entry.name.endswith(".log")][-1]
    await storage.remove(f"{PATH}/{last}")

    with pytest.raises(CorruptPartition, match="is missing"):
        await reopen(storage, settings)


@pytest.mark.parametrize("survived", [True, False])
async def test_last_log_when_missing_beside_an_empty_index_then_set_aside_unless_power_was_lost(
    survived,
):
    storage = SimulatedStorage()
    settings = PartitionSettings(segment_size_bytes=10 * SIZE, writes_survived=survived)
    partition = await create(storage, settings)
    for number in range(20):
        await send(partition, b"%010d" % number)
    storage = storage.kill()
    last = Segment(PATH, 20)
    await last.create(storage)
    await storage.remove(last.log_path)

    if survived:
        with pytest.raises(CorruptPartition, match="is missing, and it was the last one"):
            await reopen(storage, settings)
    else:
        assert await offsets(await reopen(storage, settings)) == [*range(20)]


@pytest.mark.parametrize("survived", [True, False])
@pytest.mark.parametrize("kept", [0, 1, 20])
async def test_log_when_its_end_is_zeroed_then_kept_aside_and_no_offset_is_given_again(
    kept, survived
):
    storage = await filled(AckLevel.WRITTEN)
    content = await storage.read_file(LOG) or b""
    await storage.replace(LOG, content[: kept * SIZE] + bytes((COUNT - kept) * SIZE))
    await storage.replace(INDEX, b"")

    partition = await reopen(storage, settings_of(AckLevel.WRITTEN, survived=survived))
    await send(partition, b"new")

    found = await offsets(partition)
    assert found[:kept] == [*range(kept)]
    assert found[kept] >= COUNT
    assert await storage.entries(f"{SALVAGE_PATH}/{PATH}")


async def test_index_when_synced_messages_are_acknowledged_then_holds_all_of_them():
    storage = SimulatedStorage()
    partition = await create(storage, PartitionSettings(ack=AckLevel.FSYNC))
    for number in range(1, 6):
        await send(partition, b"x", b"y")
        assert len(await storage.read_file(INDEX) or b"") == 2 * 16 * number
    # Under pressure nothing is written at once, and the acknowledgement waits for the index.
    storage.plan.refuse(probability=1.0)
    await send(partition, b"z")
    assert len(await storage.read_file(INDEX) or b"") == 11 * 16


@pytest.mark.parametrize("ack", AckLevel)
async def test_index_when_a_flush_is_acknowledged_then_holds_all_messages(ack):
    storage = SimulatedStorage()
    partition = await create(storage, PartitionSettings(ack=ack))
    for _ in range(5):
        await send(partition, b"x")

    await partition.flush(fsync=False)

    assert len(await storage.read_file(INDEX) or b"") == 5 * 16


LAST = (COUNT - 1) * SIZE


@LEVELS
@pytest.mark.parametrize("flip", [0, 24, 40, 56, 70])
async def test_bit_when_flipped_in_the_very_last_message_then_set_aside_and_untouched(ack, flip):
    """A process that dies writes a part of a message, and never all of it with a wrong bit."""
    storage = await filled(ack)
    await change(storage, LOG, flip=LAST + flip)
    await storage.replace(INDEX, b"")
    before = await names_and_bytes(storage)

    with pytest.raises(CorruptPartition, match=r"offset 49 cannot be read, and .* in whole"):
        await reopen(storage, settings_of(ack, survived=True))

    assert await names_and_bytes(storage) == before


@LEVELS
@pytest.mark.parametrize("survived", [True, False])
@pytest.mark.parametrize("offset", [3, 300])
async def test_log_when_it_belongs_to_another_segment_then_set_aside_and_untouched(
    ack, survived, offset
):
    """Also after a power loss, which changes no offsets."""
    storage = await filled(ack)
    other = bytearray(await storage.read_file(LOG) or b"")
    for number in range(COUNT):
        message = memoryview(other)[number * SIZE : (number + 1) * SIZE]
        message[24:32] = (number + offset).to_bytes(8, "little")
        message[:8] = checksum(message[8:]).to_bytes(8, "little")
    await storage.replace(LOG, other)
    await storage.replace(INDEX, b"")

    with pytest.raises(CorruptPartition, match=f"begins with offset {offset}"):
        await reopen(storage, settings_of(ack, survived=survived))

    assert await storage.read_file(LOG) == other

"""Files that a real server 0.8.0 left behind open in ours, and ours are laid out alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from iggy_protocol import ConsumerKind, NewMessage, PayloadCipher, PollingStrategy
from iggy_ref_server.clock import SimulatedClock
from iggy_ref_server.partitions.offsets import OffsetKey
from iggy_ref_server.partitions.partition import PartitionLog
from iggy_ref_server.partitions.settings import PartitionSettings
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.partitions.partition_calls import (
    PATH,
    create,
    offsets,
    payloads,
    poll,
    request,
    send,
)

pytestmark = pytest.mark.trio

DISK = Path(__file__).parents[2] / "golden" / "disk"
KEY = PayloadCipher(bytes(range(32)))


async def copy(sample: str, path: str) -> SimulatedStorage:
    """Copy one partition of a sample."""
    storage = SimulatedStorage()
    await storage.make_directories(path)
    for file in sorted((DISK / sample / path).rglob("*")):
        if file.is_file():
            target = f"{path}/{file.relative_to(DISK / sample / path).as_posix()}"
            await storage.make_directories(target.rpartition("/")[0])
            await storage.replace(target, file.read_bytes())
    return storage


async def open_imported(
    storage: SimulatedStorage, path: str, settings: PartitionSettings | None = None
) -> PartitionLog:
    """Open what has no incarnation."""
    return await PartitionLog.open(
        storage, SimulatedClock(), settings or PartitionSettings(), path, generation=0
    )


@pytest.mark.parametrize(
    ("sample", "settings"),
    [("plain", PartitionSettings()), ("encrypted", PartitionSettings(encryptor=KEY))],
)
async def test_sample_when_opened_then_serves_messages_and_offsets(sample, settings):
    path = "streams/1/topics/0/partitions/0"
    storage = await copy(sample, path)
    before = {
        entry.name: await storage.read_file(f"{path}/{entry.name}")
        for entry in await storage.entries(path)
        if not entry.is_directory
    }
    partition = await open_imported(storage, path, settings)

    found = await poll(partition)

    assert [message.offset for message in found] == [0, 1, 2, 3, 4]
    assert sum(1 for message in found if message.user_headers) == 1
    assert partition.stored_offset(OffsetKey(ConsumerKind.SINGLE, 1)) == 3
    assert partition.stored_offset(OffsetKey(ConsumerKind.SINGLE, 1338303147)) is not None
    assert partition.stored_offset(OffsetKey(ConsumerKind.GROUP, 1)) is not None
    for name, content in before.items():
        assert await storage.read_file(f"{path}/{name}") == content, "opening changes nothing"
    await send(partition, b"ours")
    assert (await payloads(partition, request(PollingStrategy.last(), 1))) == [b"ours"]


async def test_samples_when_plain_and_encrypted_then_hold_the_same_messages():
    path = "streams/1/topics/0/partitions/0"
    plain = await open_imported(await copy("plain", path), path)
    sealed_settings = PartitionSettings(encryptor=KEY)
    sealed = await open_imported(await copy("encrypted", path), path, sealed_settings)

    assert await payloads(sealed) == await payloads(plain)


async def test_sample_when_it_has_segments_then_ours_has_the_same_files():
    """The same 17 records: the real server's index and ours differ in nothing but the times."""
    path = "streams/0/topics/0/partitions/0"
    theirs = await copy("segments", path)
    settings = PartitionSettings(segment_size_bytes=5120, messages_required_to_save=1)
    imported = await open_imported(theirs, path, settings)
    assert await offsets(imported) == list(range(17))
    assert imported.statistics()[:4] == (3, 17_000, 17, 16)

    ours = SimulatedStorage()
    partition = await create(ours, settings)
    for message in await poll(imported):
        copy_of = NewMessage(message.payload, message.id, message.user_headers)
        await send(partition, copy_of)

    for entry in await theirs.entries(path):
        if entry.name.endswith(".index"):
            their_index = await theirs.read_file(f"{path}/{entry.name}")
            our_index = await ours.read_file(f"{PATH}/{entry.name}")
            assert their_index is not None
            assert our_index is not None
            assert places(our_index) == places(their_index)


def places(index: bytes) -> list[bytes]:
    """Take the offsets and positions out of an index."""
    return [index[at : at + 8] for at in range(0, len(index), 16)]

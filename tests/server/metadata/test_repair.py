"""Damaged metadata: told, and saved as far as it goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from iggy_protocol import CreateStream, CreateTopic, PayloadCipher
from iggy_ref_server.clock import SimulatedClock
from iggy_ref_server.metadata.changes import StreamCreated, encode_change
from iggy_ref_server.metadata.errors import MetadataDamaged, MetadataKeyMismatch
from iggy_ref_server.metadata.log import HEADER_SIZE, LOG_PATH, encode_frame, intact_frames
from iggy_ref_server.metadata.recovery import check_metadata, repair_metadata
from iggy_ref_server.metadata.snapshot import SNAPSHOT_PATH
from iggy_ref_server.metadata.store import MetadataStore
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.metadata.metadata_calls import planned

if TYPE_CHECKING:
    from iggy_ref_server.metadata.state import Metadata

COMMANDS = (CreateStream("a"), CreateStream("b"), CreateTopic("b", "t", 1), CreateStream("c"))
CLOCK = SimulatedClock()
KEY = PayloadCipher(bytes(range(32)))


async def written(
    *, encryptor: PayloadCipher | None = None, compact_after: int = 0
) -> SimulatedStorage:
    """Make some changes, with a snapshot in between if asked."""
    storage = SimulatedStorage()
    store = await MetadataStore.open(storage, CLOCK, encryptor=encryptor)
    for number, command in enumerate(COMMANDS, start=1):
        await store.change(planned(command))
        if number == compact_after:
            await store.compact()
    return storage


async def damage(storage: SimulatedStorage, path: str, position: int) -> bytes:
    """Flip a bit; return the whole damaged file."""
    data = bytearray(await storage.read_file(path) or b"")
    data[position] ^= 1
    await storage.replace(path, data)
    return bytes(data)


async def damage_change(storage: SimulatedStorage, number: int) -> bytes:
    """Damage one frame of the log, counted from 0."""
    frames = [*intact_frames(await storage.read_file(LOG_PATH) or b"", HEADER_SIZE)]
    return await damage(storage, LOG_PATH, frames[number].position + 1)


async def state_of(storage: SimulatedStorage) -> Metadata:
    return (await MetadataStore.open(storage, CLOCK)).current


@pytest.mark.trio
@pytest.mark.parametrize("compact_after", [0, 2, 4])
async def test_check_when_all_is_well_then_finds_nothing_and_repair_writes_nothing(compact_after):
    storage = await written(compact_after=compact_after)
    before = await storage.entries("state")

    assert await check_metadata(storage) == ()
    assert await repair_metadata(storage, CLOCK) == ()
    assert await storage.entries("state") == before


@pytest.mark.trio
async def test_check_when_there_is_no_metadata_then_finds_nothing():
    assert await check_metadata(SimulatedStorage()) == ()


@pytest.mark.trio
async def test_check_when_the_tail_is_torn_then_tells():
    storage = await written()
    await storage.replace(LOG_PATH, (await storage.read_file(LOG_PATH) or b"")[:-1])

    [finding] = await check_metadata(storage)

    assert "never took effect" in finding


@pytest.mark.trio
@pytest.mark.parametrize(
    ("number", "names"), [(0, ["b", "c"]), (1, ["a", "c"]), (2, ["a", "b", "c"])]
)
async def test_repair_when_a_change_is_damaged_then_saves_all_others_and_keeps_the_file(
    number, names
):
    storage = await written()
    damaged = await damage_change(storage, number)

    findings = await repair_metadata(storage, CLOCK)

    state = await state_of(storage)
    assert [stream.name for stream in state.streams] == names
    assert state.version == len(COMMANDS)
    assert f"1 changes are lost: numbers {number + 1} to {number + 1}" in findings
    assert await storage.read_file(LOG_PATH + ".damaged") == damaged
    assert await check_metadata(storage) == ()


@pytest.mark.trio
async def test_repair_when_there_is_a_snapshot_then_builds_on_it():
    storage = await written(compact_after=2)
    await damage_change(storage, 0)

    await repair_metadata(storage, CLOCK)

    state = await state_of(storage)
    assert [stream.name for stream in state.streams] == ["a", "b", "c"]
    assert len(state.require_stream("b").topics) == 0


@pytest.mark.trio
async def test_repair_when_the_log_still_holds_what_the_snapshot_does_then_counts_it_once():
    storage = await written()
    log = await storage.read_file(LOG_PATH) or b""
    await (await MetadataStore.open(storage, CLOCK)).compact()
    await storage.replace(LOG_PATH, log + encode_frame(7, 1, b""))

    await repair_metadata(storage, CLOCK)

    state = await state_of(storage)
    assert [stream.name for stream in state.streams] == ["a", "b", "c"]


@pytest.mark.trio
async def test_repair_when_a_change_is_unknown_then_goes_on_behind_it():
    storage = await written(compact_after=4)
    log = await storage.read_file(LOG_PATH) or b""
    known = encode_frame(6, 1, encode_change(StreamCreated(3, "d", 1)))
    await storage.replace(LOG_PATH, log + encode_frame(5, 1, b"\x80") + known)

    findings = await repair_metadata(storage, CLOCK)

    assert any("not known to this version" in finding for finding in findings)
    assert (await state_of(storage)).find_stream("d") is not None


@pytest.mark.trio
async def test_repair_when_the_snapshot_is_damaged_then_refuses_and_writes_nothing():
    storage = await written(compact_after=2)
    await damage(storage, SNAPSHOT_PATH, 50)
    before = await storage.entries("state")

    with pytest.raises(MetadataDamaged):
        await repair_metadata(storage, CLOCK)

    assert await storage.entries("state") == before


@pytest.mark.trio
async def test_repair_when_the_key_is_missing_then_refuses_and_writes_nothing():
    storage = await written(encryptor=KEY)
    await damage_change(storage, 1)
    before = await storage.entries("state")

    with pytest.raises(MetadataKeyMismatch):
        await repair_metadata(storage, CLOCK)
    assert await storage.entries("state") == before

    await repair_metadata(storage, CLOCK, encryptor=KEY)
    assert await check_metadata(storage, encryptor=KEY) == ()

"""The store: what is answered is on the disk, and nothing else happened."""

from __future__ import annotations

import pytest
import trio

from iggy_protocol import (
    CreateStream,
    CreateTopic,
    StatusCode,
)
from iggy_ref_server.clock import SystemClock
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.metadata.changes import StreamCreated
from iggy_ref_server.metadata.errors import MetadataDamaged, MetadataKeyMismatch
from iggy_ref_server.metadata.log import LOG_PATH
from iggy_ref_server.metadata.recovery import apply_entry
from iggy_ref_server.metadata.snapshot import SNAPSHOT_PATH, decode_snapshot
from iggy_ref_server.metadata.state import Metadata
from iggy_ref_server.metadata.store import CompactionPolicy, MetadataStore
from iggy_ref_server.storage.interface import StorageError
from iggy_ref_server.storage.simulated.disk import Survival
from iggy_ref_server.storage.simulated.fault_plan import FaultPlan
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from iggy_ref_server.storage.threads import ThreadStorage
from tests.server.metadata.metadata_calls import CONTEXT, after, planned, with_root
from tests.server.metadata.store_calls import (
    COMMANDS,
    KEY,
    OTHER_KEY,
    make,
    nothing,
    open_store,
    read,
    status_of_failed,
)


@pytest.mark.trio
async def test_open_when_there_is_nothing_then_starts_empty():
    store = await open_store(SimulatedStorage())

    assert store.current == Metadata.EMPTY
    assert store.is_new


@pytest.mark.trio
@pytest.mark.parametrize("survival", Survival)
async def test_change_when_the_power_fails_afterwards_then_is_there(survival):
    storage = SimulatedStorage()
    store = await open_store(storage)
    await make(store, *COMMANDS)

    reopened = await open_store(storage.crash(survival))

    assert reopened.current == store.current == after(Metadata.EMPTY, *COMMANDS)
    assert not reopened.is_new


@pytest.mark.trio
async def test_store_when_on_real_files_then_keeps_its_changes(tmp_path):
    async def open_real() -> MetadataStore:
        policy = CompactionPolicy(entries_max=4)
        return await MetadataStore.open(ThreadStorage(tmp_path), SystemClock(), compaction=policy)

    store = await open_real()
    await make(store, *COMMANDS)
    with (tmp_path / LOG_PATH).open("ab") as log:
        log.write(b"torn")

    assert (await open_real()).current == store.current
    assert (tmp_path / SNAPSHOT_PATH).exists()


@pytest.mark.trio
async def test_change_when_made_then_returns_what_was_planned():
    store = await open_store(SimulatedStorage())

    change = await store.change(planned(CreateStream("s")))

    assert change == StreamCreated(0, "s", CONTEXT.now_us)


@pytest.mark.trio
async def test_change_when_the_plan_refuses_or_wants_nothing_then_nothing_is_written():
    storage = SimulatedStorage()
    store = await open_store(storage)
    await make(store, CreateStream("s"))
    before = await read(storage)

    status = await status_of_failed(store, CreateStream("s"))
    await store.change(nothing)

    assert status == StatusCode.STREAM_NAME_ALREADY_EXISTS
    assert await read(storage) == before
    assert store.current.version == 1


@pytest.mark.trio
async def test_change_when_not_yet_on_the_disk_then_is_not_visible(autojump_clock):
    plan = FaultPlan()
    store = await open_store(SimulatedStorage(plan))
    plan.delay("sync", seconds=5)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(make, store, CreateStream("s"))
        await trio.sleep(4)
        assert store.current == Metadata.EMPTY
        await trio.sleep(2)
        assert store.current.find_stream("s") is not None


@pytest.mark.trio
async def test_changes_when_made_at_once_then_follow_each_other_on_the_latest_state(autojump_clock):
    plan = FaultPlan()
    plan.delay("*", seconds=1)
    storage = SimulatedStorage(plan)
    store = await open_store(storage)
    refused: list[int] = []
    seen: list[tuple[int, str]] = []

    async def create(name: str) -> None:
        try:
            change, version = await store.change_at(planned(CreateStream(name)))
        except ServerFault as fault:
            refused.append(fault.status)
        else:
            assert isinstance(change, StreamCreated)
            # Others may have come behind it, and nobody in between.
            assert store.current.require_stream(name).id == change.id
            assert version == change.id + 1
            seen.append((change.id, name))

    async with trio.open_nursery() as nursery:
        for name in ("a", "b", "a", "c", "b", "a"):
            nursery.start_soon(create, name)

    assert sorted(name for _, name in seen) == ["a", "b", "c"]
    assert sorted(number for number, _ in seen) == [0, 1, 2]
    assert refused == [StatusCode.STREAM_NAME_ALREADY_EXISTS] * 3
    assert (await open_store(storage.crash())).current == store.current


@pytest.mark.trio
async def test_change_when_its_caller_is_cancelled_then_is_finished_all_the_same(autojump_clock):
    plan = FaultPlan()
    storage = SimulatedStorage(plan)
    store = await open_store(storage)
    plan.delay("write", seconds=5)

    with trio.move_on_after(2):
        await make(store, CreateStream("s"), CreateStream("t"))

    assert [stream.name for stream in store.current.streams] == ["s"]
    assert (await open_store(storage.crash())).current == store.current


@pytest.mark.trio
async def test_change_when_cancelled_the_moment_it_is_planned_then_is_made_all_the_same():
    store = await open_store(SimulatedStorage())

    with trio.CancelScope() as scope:

        def plan_and_cancel(metadata: Metadata) -> StreamCreated:
            scope.cancel()
            return StreamCreated(0, "s", 1)

        await store.change(plan_and_cancel)
        await trio.lowlevel.checkpoint()

    assert scope.cancelled_caught
    assert store.current.find_stream("s") is not None


@pytest.mark.trio
async def test_change_when_a_killed_server_left_it_unsynced_then_is_safe_once_it_is_seen(
    autojump_clock,
):
    plan = FaultPlan()
    storage = SimulatedStorage(plan)
    store = await open_store(storage)
    plan.delay("sync", seconds=5)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(status_of_failed, store, CreateStream("s"))
        await trio.sleep(1)
        killed = storage.kill()
    plan.heal()

    reopened = await open_store(killed)
    assert reopened.current.find_stream("s") is not None
    assert (await open_store(killed.crash(Survival.NOTHING))).current == reopened.current


@pytest.mark.trio
async def test_listener_when_changes_are_made_then_replicas_can_follow():
    store = await open_store(SimulatedStorage(), encryptor=KEY)
    entries: list[bytes] = []
    states: list[Metadata] = []
    store.subscribe(lambda entry, metadata: entries.append(entry))
    store.subscribe(lambda entry, metadata: states.append(metadata))
    await make(store, *COMMANDS[:2])
    snapshot = store.snapshot_bytes()
    await make(store, *COMMANDS[2:])

    early, late = Metadata.EMPTY, decode_snapshot(snapshot)
    for entry in entries:
        early, late = apply_entry(early, entry), apply_entry(late, entry)

    assert early == late == states[-1] == store.current
    assert [state.version for state in states] == [1, 2, 3, 4, 5, 6]


@pytest.mark.trio
async def test_replica_when_an_entry_was_missed_then_says_so():
    store = await open_store(SimulatedStorage())
    entries: list[bytes] = []
    store.subscribe(lambda entry, metadata: entries.append(entry))
    await make(store, *COMMANDS[:2])

    with pytest.raises(MetadataDamaged, match="change 1 is missing"):
        apply_entry(Metadata.EMPTY, entries[1])
    with pytest.raises(MetadataDamaged, match="no change"):
        apply_entry(Metadata.EMPTY, entries[0][:-1])


SECRETS = (CreateStream("confidential"), CreateTopic("confidential", "private", 1))


@pytest.mark.trio
@pytest.mark.parametrize("compacted", [False, True])
async def test_metadata_when_there_is_a_key_then_nothing_is_readable_without_it(compacted):
    storage = SimulatedStorage()
    store = await open_store(storage, encryptor=KEY)
    await make(store, *SECRETS)
    if compacted:
        await store.compact()

    for path in (LOG_PATH, SNAPSHOT_PATH):
        data = await storage.read_file(path) or b""
        assert b"confidential" not in data
        assert b"private" not in data
    for key in (None, OTHER_KEY):
        with pytest.raises(MetadataKeyMismatch):
            await open_store(storage, encryptor=key)
    assert (await open_store(storage, encryptor=KEY)).current == store.current


@pytest.mark.trio
async def test_metadata_when_a_key_is_set_later_then_old_changes_stay_readable():
    storage = SimulatedStorage()
    await make(await open_store(storage), CreateStream("plain"))
    store = await open_store(storage, encryptor=KEY)
    await make(store, CreateStream("sealed"))

    assert b"sealed" not in await read(storage)
    assert (await open_store(storage, encryptor=KEY)).current == store.current


@pytest.mark.trio
async def test_adopt_when_the_store_is_new_then_takes_all_or_nothing():
    whole = after(with_root(), *COMMANDS)
    for at in range(1, 3):
        plan = FaultPlan()
        storage = SimulatedStorage(plan)
        store = await open_store(storage)
        plan.fail(("replace", "sync_directory")[at - 1], times=1)
        with pytest.raises(StorageError):
            await store.adopt(whole)
        assert store.is_new
        found = (await open_store(storage.crash())).current
        assert found in (Metadata.EMPTY, whole)

    await (store := await open_store(SimulatedStorage())).adopt(whole)
    assert store.current == whole


@pytest.mark.trio
async def test_adopt_when_there_is_metadata_then_is_refused():
    store = await open_store(SimulatedStorage())
    await make(store, CreateStream("s"))

    with pytest.raises(AssertionError):
        await store.adopt(with_root())

"""The store on disks that fail: torn, damaged, full, or unable to take a snapshot."""

from __future__ import annotations

import errno
import logging

import msgspec
import pytest
import trio
import trio.testing

from iggy_protocol import (
    CreateStream,
    StatusCode,
)
from iggy_ref_server.clock import SimulatedClock
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.metadata.errors import MetadataDamaged
from iggy_ref_server.metadata.log import HEADER_SIZE, LOG_MAGIC, LOG_PATH, encode_frame, file_header
from iggy_ref_server.metadata.snapshot import SNAPSHOT_MAGIC, SNAPSHOT_PATH, decode_snapshot
from iggy_ref_server.metadata.state import Metadata
from iggy_ref_server.metadata.store import CompactionPolicy, MetadataStore
from iggy_ref_server.storage.simulated.disk import Survival
from iggy_ref_server.storage.simulated.fault_plan import FaultPlan
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.metadata.metadata_calls import after, planned
from tests.server.metadata.store_calls import COMMANDS, make, open_store, read, status_of_failed

FAILURES = (
    ("write", errno.EIO, StatusCode.CANNOT_APPEND_TO_FILE),
    ("write", errno.ENOSPC, StatusCode.CANNOT_WRITE_TO_FILE),
    ("sync", errno.EIO, StatusCode.CANNOT_SYNC_FILE),
)


@pytest.mark.trio
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("verb", "number", "status"), FAILURES)
async def test_change_when_the_disk_fails_then_nothing_happened_and_the_next_one_works(
    verb, number, status, seed
):
    plan = FaultPlan(seed)
    storage = SimulatedStorage(plan)
    store = await open_store(storage)
    told: list[int] = []
    store.subscribe(lambda entry, metadata: told.append(metadata.version))
    await make(store, CreateStream("before"))
    plan.fail(verb, errno=number, path=LOG_PATH, times=1)

    answered = await status_of_failed(store, CreateStream("failed"))
    failed = await open_store(storage.crash())
    assert answered == status
    assert failed.current == store.current == after(Metadata.EMPTY, CreateStream("before"))
    assert told == [1]


@pytest.mark.trio
@pytest.mark.parametrize(("verb", "number", "status"), FAILURES)
async def test_change_when_the_disk_recovers_then_goes_on(verb, number, status):
    plan = FaultPlan()
    storage = SimulatedStorage(plan)
    store = await open_store(storage)
    plan.fail(verb, errno=number, path=LOG_PATH, times=1)
    await status_of_failed(store, CreateStream("failed"))

    await make(store, CreateStream("later"))

    assert [stream.name for stream in store.current.streams] == ["later"]
    assert (await open_store(storage.crash())).current == store.current


@pytest.mark.trio
async def test_log_when_it_cannot_be_cleaned_then_takes_no_changes_until_it_can_be():
    plan = FaultPlan()
    storage = SimulatedStorage(plan)
    store = await open_store(storage)
    await make(store, CreateStream("before"))
    plan.fail("write", path=LOG_PATH, times=1)
    plan.fail("truncate", path=LOG_PATH, times=2)
    for _ in range(2):
        failed = await status_of_failed(store, CreateStream("failed"))
        assert failed == StatusCode.CANNOT_APPEND_TO_FILE

    await make(store, CreateStream("later"))

    assert [stream.name for stream in store.current.streams] == ["before", "later"]
    assert (await open_store(storage.crash())).current == store.current


@pytest.mark.trio
async def test_log_when_its_cleaning_was_not_synced_then_takes_no_changes_until_restarted():
    plan = FaultPlan()
    storage = SimulatedStorage(plan)
    store = await open_store(storage)
    await make(store, CreateStream("before"))
    plan.fail("write", path=LOG_PATH, times=1)
    plan.fail("sync", path=LOG_PATH, times=1)
    await status_of_failed(store, CreateStream("failed"))
    plan.heal()

    refused = await status_of_failed(store, CreateStream("more"))
    reopened = await open_store(storage.crash())
    await make(reopened, CreateStream("again"))

    assert refused == StatusCode.CANNOT_APPEND_TO_FILE
    assert store.current.find_stream("before") is not None
    assert reopened.current.find_stream("again") is not None


@pytest.mark.trio
async def test_open_when_the_tail_is_torn_then_drops_it_and_goes_on(caplog):
    storage = SimulatedStorage()
    store = await open_store(storage)
    await make(store, CreateStream("kept"), CreateStream("torn"))
    data = await read(storage)
    await storage.replace(LOG_PATH, data[:-3])

    with caplog.at_level(logging.WARNING):
        reopened = await open_store(storage)
    await make(reopened, CreateStream("next"))

    assert [stream.name for stream in reopened.current.streams] == ["kept", "next"]
    assert (await open_store(storage.crash())).current == reopened.current
    assert "truncated" in caplog.text


@pytest.mark.trio
async def test_open_when_the_middle_is_damaged_then_refuses_and_changes_nothing():
    storage = SimulatedStorage()
    store = await open_store(storage)
    await make(store, *COMMANDS)
    data = bytearray(await read(storage))
    data[HEADER_SIZE + 60] ^= 1
    await storage.replace(LOG_PATH, data)

    with pytest.raises(MetadataDamaged, match="iggy-server repair"):
        await open_store(storage)

    assert await read(storage) == data


@pytest.mark.trio
@pytest.mark.parametrize("size", range(HEADER_SIZE))
async def test_open_when_the_log_is_shorter_than_its_head_then_refuses_and_changes_nothing(size):
    # It is made as a whole, so no crash leaves a part of it: whatever it held is lost.
    storage = SimulatedStorage()
    await make(await open_store(storage), *COMMANDS)
    head = (await read(storage))[:size]
    await storage.replace(LOG_PATH, head)

    with pytest.raises(MetadataDamaged, match="does not start with the expected header"):
        await open_store(storage)

    assert await read(storage) == head


@pytest.mark.trio
async def test_open_when_the_log_is_missing_beside_a_snapshot_then_refuses_and_changes_nothing():
    storage = SimulatedStorage()
    store = await open_store(storage)
    await make(store, *COMMANDS[:3])
    await store.compact()
    await make(store, *COMMANDS[3:])
    await storage.remove(LOG_PATH)

    with pytest.raises(MetadataDamaged, match="every change behind number 3"):
        await open_store(storage)

    assert await storage.read_file(LOG_PATH) is None


@pytest.mark.trio
async def test_open_when_the_log_is_older_than_the_snapshot_then_refuses():
    storage = SimulatedStorage()
    store = await open_store(storage)
    await make(store, *COMMANDS[:2])
    older = await read(storage)
    await make(store, *COMMANDS[2:])
    await store.compact()
    await storage.replace(LOG_PATH, older)

    with pytest.raises(MetadataDamaged, match="this log is older than the snapshot"):
        await open_store(storage)


@pytest.mark.trio
async def test_open_when_a_snapshot_is_damaged_then_refuses():
    storage = SimulatedStorage()
    store = await open_store(storage)
    await make(store, *COMMANDS)
    await store.compact()
    data = bytearray(await read(storage, SNAPSHOT_PATH))
    data[-1] ^= 1
    await storage.replace(SNAPSHOT_PATH, data)

    with pytest.raises(MetadataDamaged, match="checksum"):
        await open_store(storage)


@pytest.mark.trio
@pytest.mark.parametrize("path", [LOG_PATH, SNAPSHOT_PATH])
async def test_open_when_a_newer_server_wrote_what_is_unknown_then_refuses(path):
    storage = SimulatedStorage()
    await open_store(storage)
    head = file_header(LOG_MAGIC if path == LOG_PATH else SNAPSHOT_MAGIC)
    unknown = msgspec.msgpack.encode({"type": "moon+"})
    await storage.replace(path, head + encode_frame(1, 1, unknown))

    with pytest.raises(MetadataDamaged, match="not known to this version"):
        await open_store(storage)


@pytest.mark.trio
async def test_open_when_changes_between_snapshot_and_log_are_missing_then_refuses():
    storage = SimulatedStorage()
    store = await open_store(storage)
    await make(store, *COMMANDS[:2])
    await store.compact()
    await make(store, *COMMANDS[2:])
    await storage.remove(SNAPSHOT_PATH)

    with pytest.raises(MetadataDamaged, match="change 1 is missing, change 3 follows"):
        await open_store(storage)


@pytest.mark.trio
async def test_log_when_long_enough_then_gives_way_to_a_snapshot():
    storage = SimulatedStorage()
    store = await open_store(storage, entries_max=4)
    await make(store, *COMMANDS)

    snapshot = decode_snapshot(await read(storage, SNAPSHOT_PATH))
    assert snapshot == after(Metadata.EMPTY, *COMMANDS[:4])
    assert len(await read(storage)) < 500
    assert (await open_store(storage.crash())).current == store.current


@pytest.mark.trio
async def test_log_when_large_enough_then_gives_way_to_a_snapshot():
    storage = SimulatedStorage()
    policy = CompactionPolicy(size_max_bytes=200)
    store = await MetadataStore.open(storage, SimulatedClock(), compaction=policy)
    await make(store, CreateStream("n" * 200))

    assert len(await read(storage)) == HEADER_SIZE
    assert (await open_store(storage.crash())).current == store.current


@pytest.mark.trio
@pytest.mark.parametrize(
    ("verb", "path"), [("replace", SNAPSHOT_PATH), ("truncate", LOG_PATH), ("sync_directory", "*")]
)
async def test_snapshot_when_it_fails_then_the_change_stands_and_a_later_one_is_tried(
    verb, path, caplog
):
    plan = FaultPlan()
    storage = SimulatedStorage(plan)
    store = await open_store(storage, entries_max=2)
    rule = plan.fail(verb, path=path, times=1)
    with caplog.at_level(logging.WARNING):
        await make(store, *COMMANDS[:3])

    assert rule.applied_count == 1
    assert "the log keeps growing" in caplog.text
    assert (await open_store(storage.crash())).current == store.current


@pytest.mark.trio
async def test_snapshot_when_it_failed_then_is_not_tried_with_every_change():
    plan = FaultPlan()
    store = await open_store(SimulatedStorage(plan), entries_max=2)
    rule = plan.fail("replace", path=SNAPSHOT_PATH)
    await make(store, *COMMANDS)

    assert rule.applied_count == 3


@pytest.mark.trio
async def test_log_when_its_clearing_was_not_synced_then_remains_do_no_harm():
    for seed in range(20):
        plan = FaultPlan(seed)
        storage = SimulatedStorage(plan)
        store = await open_store(storage)
        await make(store, *COMMANDS[:4])
        plan.fail("sync", path=LOG_PATH, times=1)
        await store.compact()
        await make(store, *COMMANDS[4:])

        assert (await open_store(storage.crash(Survival.SUBSET))).current == store.current


async def make_at_once(store: MetadataStore, *names: str) -> dict[str, int]:
    """Ask for streams at the same time; return the statuses of those that were refused."""
    refused: dict[str, int] = {}

    async def ask(name: str) -> None:
        try:
            await store.change(planned(CreateStream(name)))
        except ServerFault as fault:
            refused[name] = fault.status

    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(ask, name)
            # One after another, so that their order is known.
            await trio.testing.wait_all_tasks_blocked()
    return refused


@pytest.mark.trio
async def test_changes_when_they_come_while_the_disk_is_busy_then_share_the_next_sync(
    autojump_clock,
):
    plan = FaultPlan()
    storage = SimulatedStorage(plan)
    store = await open_store(storage)
    told: list[int] = []
    store.subscribe(lambda entry, metadata: told.append(metadata.version))
    slow = plan.delay("sync", seconds=1, path=LOG_PATH)
    names = [f"stream {number}" for number in range(20)]

    assert await make_at_once(store, *names) == {}

    assert slow.applied_count == 2, "the first one alone, all others together"
    assert told == list(range(1, 21))
    assert {stream.name for stream in store.current.streams} == set(names)
    assert (await open_store(storage.crash())).current == store.current


@pytest.mark.trio
@pytest.mark.parametrize("verb", ["write", "sync"])
async def test_changes_when_the_write_that_they_share_fails_then_none_of_them_has_happened(
    verb, autojump_clock
):
    plan = FaultPlan()
    storage = SimulatedStorage(plan)
    store = await open_store(storage)
    plan.delay("sync", seconds=1, path=LOG_PATH)
    plan.fail(verb, path=LOG_PATH, at=2)

    # The last one would be refused because of the second, which is not there in the end.
    refused = await make_at_once(store, "first", "second", "third", "second")

    assert set(refused) == {"second", "third"}
    assert len(set(refused.values())) == 1
    assert [stream.name for stream in store.current.streams] == ["first"]
    plan.heal()
    await make(store, CreateStream("second"))
    assert (await open_store(storage.crash())).current == store.current


@pytest.mark.trio
async def test_change_when_its_caller_is_cancelled_before_it_is_planned_then_is_abandoned(
    autojump_clock,
):
    plan = FaultPlan()
    store = await open_store(SimulatedStorage(plan))
    plan.delay("sync", seconds=10, path=LOG_PATH)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(make, store, CreateStream("first"))
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(1):
            await make(store, CreateStream("second"))

    assert [stream.name for stream in store.current.streams] == ["first"]


@pytest.mark.trio
async def test_change_when_its_caller_is_cancelled_while_others_save_it_then_is_made_all_the_same(
    autojump_clock,
):
    plan = FaultPlan()
    store = await open_store(SimulatedStorage(plan))
    plan.delay("sync", seconds=10, path=LOG_PATH)

    async with trio.open_nursery() as nursery:
        for name in ("first", "second"):
            nursery.start_soon(make, store, CreateStream(name))
            await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(15):
            await make(store, CreateStream("third"))

    assert [stream.name for stream in store.current.streams] == ["first", "second", "third"]

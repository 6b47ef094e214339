"""A replica of the metadata: what it does with changes that come early, twice, or by and by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from iggy_ref_server.groups.group import GroupRegistry
from iggy_ref_server.metadata.history import MetadataHistory
from iggy_ref_server.metadata.position import MetadataPosition
from iggy_ref_server.metadata.snapshot import decode_snapshot
from iggy_ref_server.metadata.state import Metadata, MetadataSettings
from iggy_ref_server.shard.metadata_service import MetadataService
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.metadata.store_calls import COMMANDS, make, open_store

if TYPE_CHECKING:
    from iggy_ref_server.metadata.store import MetadataStore

pytestmark = pytest.mark.trio


class Replica:
    """A metadata service that records which versions it has applied."""

    def __init__(self) -> None:
        self.applied: list[int] = []
        registry = GroupRegistry(rebalancing_timeout_us=1)
        self.position = MetadataPosition()
        history = MetadataHistory(self.position, MetadataSettings(), bytes)
        self.service = MetadataService(
            Metadata.EMPTY,
            {},
            self.apply_to_partitions,
            registry,
            self.position,
            history,
            lambda metadata, user_id: None,
        )

    async def apply_to_partitions(self, metadata: Metadata) -> None:
        """Note a version."""
        await trio.lowlevel.checkpoint()
        self.applied.append(metadata.version)


async def record() -> tuple[MetadataStore, list[bytes]]:
    """Open a store, and collect what it tells its listeners."""
    store = await open_store(SimulatedStorage())
    entries: list[bytes] = []
    store.subscribe(lambda entry, metadata: entries.append(entry))
    return store, entries


async def test_changes_when_they_come_before_the_state_then_wait_for_it():
    store, entries = await record()
    await make(store, *COMMANDS[:3])
    snapshot = store.snapshot_bytes()
    await make(store, *COMMANDS[3:])
    replica = Replica()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: replica.service.apply_entry(entries[3], is_published=True))
        await trio.testing.wait_all_tasks_blocked()
        assert replica.applied == []
        await replica.service.load_snapshot(decode_snapshot(snapshot))
    for entry in entries[1:]:
        await replica.service.apply_entry(entry, is_published=True)

    assert replica.service.current == store.current
    assert replica.applied == [3, 4, 4, 4, 4, 5, 6]


async def test_change_when_it_shall_not_be_shown_yet_then_is_made_ready_for():
    store, entries = await record()
    replica = Replica()
    await replica.service.load_snapshot(decode_snapshot(store.snapshot_bytes()))
    await make(store, *COMMANDS)
    for entry in entries[:3]:
        await replica.service.apply_entry(entry, is_published=True)

    await replica.service.apply_entry(entries[3], is_published=False)
    assert replica.applied[-1] == 4
    assert replica.service.current.version == 3

    replica.service.publish(4)
    assert replica.service.current.version == 4


async def test_reader_when_the_replica_is_behind_then_waits_until_it_is_not():
    store, entries = await record()
    replica = Replica()
    await replica.service.load_snapshot(decode_snapshot(store.snapshot_bytes()))
    await make(store, *COMMANDS[:2])
    seen: list[int] = []

    async def read() -> None:
        await replica.service.wait_for_version(2)
        seen.append(replica.service.current.version)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        await replica.service.apply_entry(entries[0], is_published=True)
        await trio.testing.wait_all_tasks_blocked()
        assert seen == []
        await replica.service.apply_entry(entries[1], is_published=True)
    assert seen == [2]

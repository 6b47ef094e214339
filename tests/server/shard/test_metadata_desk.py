"""A replica of the metadata: what it does with changes that come early, twice, or by and by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from iggy_ref_server.groups.registry import GroupRegistry
from iggy_ref_server.metadata.state import Metadata
from iggy_ref_server.shard.metadata_desk import MetadataDesk
from iggy_ref_server.storage.memory import MemoryStorage
from tests.server.metadata.store_talk import COMMANDS, make, open_store

if TYPE_CHECKING:
    from iggy_ref_server.metadata.store import MetadataStore

pytestmark = pytest.mark.trio


class Replica:
    """A desk that only notes which versions it was told to make ready for."""

    def __init__(self) -> None:
        self.settled: list[int] = []
        registry = GroupRegistry(rebalancing_timeout_us=1)
        self.desk = MetadataDesk(Metadata.EMPTY, {}, self.settle, registry)

    async def settle(self, metadata: Metadata) -> None:
        """Note a version."""
        await trio.lowlevel.checkpoint()
        self.settled.append(metadata.version)


async def record() -> tuple[MetadataStore, list[bytes]]:
    """Open a store, and collect what it tells its listeners."""
    store = await open_store(MemoryStorage())
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
        nursery.start_soon(lambda: replica.desk.follow(entries[3], is_shown=True))
        await trio.testing.wait_all_tasks_blocked()
        assert replica.settled == []
        await replica.desk.begin(snapshot)
    for entry in entries[1:]:
        await replica.desk.follow(entry, is_shown=True)

    assert replica.desk.current == store.current
    assert replica.settled == [3, 4, 4, 4, 4, 5, 6]


async def test_change_when_it_shall_not_be_shown_yet_then_is_made_ready_for():
    store, entries = await record()
    replica = Replica()
    await replica.desk.begin(store.snapshot_bytes())
    await make(store, *COMMANDS)
    for entry in entries[:3]:
        await replica.desk.follow(entry, is_shown=True)

    await replica.desk.follow(entries[3], is_shown=False)
    assert replica.settled[-1] == 4
    assert replica.desk.current.version == 3

    replica.desk.show(4)
    assert replica.desk.current.version == 4


async def test_reader_when_the_replica_is_behind_then_waits_until_it_is_not():
    store, entries = await record()
    replica = Replica()
    await replica.desk.begin(store.snapshot_bytes())
    await make(store, *COMMANDS[:2])
    seen: list[int] = []

    async def read() -> None:
        await replica.desk.reach(2)
        seen.append(replica.desk.current.version)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        await replica.desk.follow(entries[0], is_shown=True)
        await trio.testing.wait_all_tasks_blocked()
        assert seen == []
        await replica.desk.follow(entries[1], is_shown=True)
    assert seen == [2]

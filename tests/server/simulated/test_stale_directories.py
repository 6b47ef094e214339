"""What a start finds that the metadata do not know: removed where it is provably deleted."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from iggy_protocol import (
    CreateStream,
    CreateTopic,
    CreateUser,
    DeletePartitions,
    DeleteStream,
    DeleteTopic,
    GetStreams,
    GetUsers,
    Partitioning,
    SendMessages,
    StatusCode,
    UserStatus,
)
from iggy_ref_server.clock import SimulatedClock
from iggy_ref_server.metadata.recovery import count_files
from iggy_ref_server.metadata.snapshot import SNAPSHOT_PATH, decode_snapshot, encode_snapshot
from iggy_ref_server.metadata.store import MetadataStore
from iggy_ref_server.storage.simulated.fault_plan import FaultPlan
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.simulated.server import Client, Refused, open_simulated_server

pytestmark = pytest.mark.trio

DELETIONS = [DeleteStream("s"), DeleteTopic("s", "t"), DeletePartitions("s", "t", 2)]
LEFT = "streams/0/topics/0/partitions/1"


async def fill(client: Client) -> None:
    """Make a topic with messages in all its partitions."""
    await client.ask(CreateStream("s"))
    await client.ask(CreateTopic("s", "t", 2))
    for number in range(2):
        await client.ask(SendMessages("s", "t", Partitioning.partition(number), [b"message"]))


async def deleted_in_part(command) -> SimulatedStorage:
    """Delete something on a disk that does not let its files go."""
    plan = FaultPlan()
    storage = SimulatedStorage(plan)
    async with open_simulated_server(storage, shards_count=2) as world:
        client = await world.log_in()
        await fill(client)
        plan.fail("remove")
        plan.fail("remove_tree")
        await client.ask(command)
    plan.heal()
    assert await count_files(storage, LEFT)
    return storage


@pytest.mark.parametrize("command", DELETIONS, ids=repr)
async def test_files_when_their_deletion_was_interrupted_then_the_next_start_removes_them(
    command, autojump_clock
):
    storage = await deleted_in_part(command)

    async with open_simulated_server(storage, shards_count=2):
        assert await count_files(storage, LEFT) == 0


async def test_files_when_the_metadata_have_lost_changes_then_they_are_left_with_a_line(
    autojump_clock, caplog
):
    storage = await deleted_in_part(DeleteTopic("s", "t"))
    store = await MetadataStore.open(storage, SimulatedClock())
    await store.compact()
    known = decode_snapshot(await storage.read_file(SNAPSHOT_PATH) or b"")
    doubtful = replace(known, doubtful_generation=known.last_generation)
    await storage.replace(SNAPSHOT_PATH, encode_snapshot(doubtful, 1))
    before = await count_files(storage, LEFT)

    with caplog.at_level(logging.WARNING):
        async with open_simulated_server(storage):
            assert await count_files(storage, LEFT) == before
    assert "streams/0/topics/0 belongs to no topic in the metadata" in caplog.text


async def test_files_when_they_are_of_a_life_that_these_metadata_never_gave_then_they_are_left(
    autojump_clock,
):
    storage, clock = SimulatedStorage(), SimulatedClock()
    async with open_simulated_server(storage, clock=clock) as world:
        client = await world.log_in()
        await client.ask(CreateStream("before"))
        older = await storage.read_file("state/metadata.log") or b""
        await client.ask(CreateStream("s"))
        await client.ask(CreateTopic("s", "t", 1))
        await client.ask(SendMessages("s", "t", Partitioning.partition(0), [b"message"]))
    await storage.replace("state/metadata.log", older)

    async with open_simulated_server(storage, clock=clock) as world:
        client = await world.log_in()
        assert [stream.name for stream in await client.ask(GetStreams())] == ["before"]
        assert await count_files(storage, "streams/1")


async def test_start_when_no_root_user_is_left_then_it_is_made_anew(autojump_clock, caplog):
    storage = SimulatedStorage()
    async with open_simulated_server(storage) as world:
        client = await world.log_in()
        await client.ask(CreateUser("iggy2", "secret", UserStatus.ACTIVE))
    store = await MetadataStore.open(storage, SimulatedClock())
    await store.compact()
    known = decode_snapshot(await storage.read_file(SNAPSHOT_PATH) or b"")
    rootless = replace(known, users=known.users.remove(0))
    await storage.replace(SNAPSHOT_PATH, encode_snapshot(rootless, 1))

    with caplog.at_level(logging.WARNING):
        async with open_simulated_server(storage) as world:
            client = await world.log_in()
            names = {user.username for user in await client.ask(GetUsers())}
            assert names == {"iggy", "iggy2"}
            with pytest.raises(Refused) as refused:
                await client.ask(CreateUser("iggy", "other", UserStatus.ACTIVE))
            assert refused.value.status == StatusCode.USER_ALREADY_EXISTS
    assert "the root user is missing: 'iggy' is created" in caplog.text


@pytest.mark.parametrize(
    "path", ["streams/9/backup.tar", "streams/9/old/0/messages.log", "streams/0/topics/0/notes.txt"]
)
async def test_file_when_no_server_made_it_then_nothing_beside_it_is_removed(
    path, autojump_clock, caplog
):
    """Nobody can tell that it was deleted, since nobody ever created it here."""
    storage = await deleted_in_part(DeleteTopic("s", "t"))
    await storage.make_directories(path.rpartition("/")[0])
    await storage.replace(path, b"precious")

    with caplog.at_level(logging.WARNING):
        async with open_simulated_server(storage):
            assert await storage.read_file(path) == b"precious"
    assert "it is not changed" in caplog.text

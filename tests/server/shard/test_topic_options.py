"""What the options of a topic mean for its partitions: on every shard, and after a restart."""

from __future__ import annotations

import pytest

from iggy_protocol import (
    V0_12_2,
    ConsumerIdentity,
    CreatePartitions,
    CreateStream,
    CreateTopic,
    DeleteTopic,
    GetTopic,
    Options,
    Partitioning,
    PurgeTopic,
    SendMessages,
    StatusCode,
    StoreConsumerOffset,
    UpdateTopic,
)
from iggy_ref_server.partitions.settings import AckLevel, PartitionSettings
from iggy_ref_server.shard.settings import topic_partition_settings
from iggy_ref_server.storage.simulated.fault_plan import FaultPlan
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.dispatch.dialect_client import DialectClient
from tests.server.metadata.option_calls import STREAM, create, told, topic_of
from tests.server.simulated.server import (
    Client,
    Refused,
    SimulatedServer,
    open_simulated_server,
)

MIB = 1 << 20
SERVER = PartitionSettings(segment_size_bytes=8 * MIB, ack=AckLevel.WRITTEN)


def settings_of(settings: PartitionSettings = SERVER, **options: object) -> PartitionSettings:
    """Return the settings of the partitions of a topic with options."""
    return topic_partition_settings(settings, topic_of(told(STREAM, V0_12_2, create(**options))))


def test_settings_when_a_topic_has_no_options_then_are_those_of_the_server():
    assert settings_of() is SERVER
    assert settings_of(message_expiry="1 h") is SERVER


def test_settings_when_a_topic_has_options_then_each_counts():
    settings = settings_of(
        segment_size="2 MiB",
        messages_required_to_save=5,
        size_of_messages_required_to_save=0,
        durability="persisted",
        preallocate_segments=True,
    )

    assert settings.segment_size_bytes == settings.preallocated_bytes == 2 * MIB
    assert (settings.messages_required_to_save, settings.bytes_required_to_save) == (5, 0)
    assert settings.ack is AckLevel.FSYNC
    assert not settings.syncs_offsets


def test_settings_when_segments_of_the_usual_size_are_preallocated_then_it_is_that_size():
    assert settings_of(preallocate_segments=True).preallocated_bytes == 8 * MIB
    assert settings_of(preallocate_segments=False).preallocated_bytes == 0


@pytest.mark.parametrize("level", list(AckLevel))
def test_durability_when_replicated_then_is_the_level_of_the_server(level):
    server = PartitionSettings(ack=level)

    settings = settings_of(server, durability="replicated", consumer_offset_durability="replicated")

    assert settings.ack is level
    assert settings.syncs_offsets == (level is AckLevel.FSYNC)


@pytest.mark.parametrize("level", list(AckLevel))
def test_durability_of_offsets_when_persisted_then_they_alone_are_synced(level):
    settings = settings_of(PartitionSettings(ack=level), consumer_offset_durability="persisted")

    assert settings.syncs_offsets
    assert settings.ack is level


# In whole servers


async def make_topic(server: SimulatedServer, name: str = "t", **options: object) -> None:
    """Create a topic with options."""
    command = CreateTopic("s", name, 2, options=Options(options))  # type: ignore[arg-type]
    await (await DialectClient.log_in(server.shards[0], V0_12_2)).ask(command)


async def make_stream(server: SimulatedServer) -> Client:
    """Create a stream, and return a client of all transports that there are."""
    client = await server.log_in()
    await client.ask(CreateStream("s"))
    return client


async def send(client: Client, partition_id: int, topic: str = "t", size_bytes: int = 1) -> None:
    """Send one message."""
    where = Partitioning.partition(partition_id)
    await client.ask(SendMessages("s", topic, where, [b"x" * size_bytes]))


async def segments_of(client: Client) -> list[int]:
    """Return how many segments each partition of the topic has."""
    topic = await client.ask(GetTopic("s", "t"))
    assert topic is not None
    return [partition.segments_count for partition in topic.partitions]


async def logged_bytes(storage: SimulatedStorage, topic_id: int) -> int:
    """Return how much the logs of the first partition of a topic hold."""
    entries = await storage.entries(f"streams/0/topics/{topic_id}/partitions/0")
    return sum(entry.size_bytes for entry in entries if entry.name.endswith(".log"))


@pytest.mark.trio
@pytest.mark.parametrize("shards_count", [1, 2])
async def test_segments_when_their_size_is_an_option_then_roll_at_it_wherever_they_are(
    shards_count, autojump_clock
):
    storage = SimulatedStorage()
    async with open_simulated_server(storage, shards_count=shards_count) as server:
        client = await make_stream(server)
        await make_topic(server, segment_size="1 MiB")
        await client.ask(CreatePartitions("s", "t", 1))
        for partition_id in range(3):
            await send(client, partition_id, size_bytes=MIB)
            await send(client, partition_id, size_bytes=MIB)
        assert await segments_of(client) == [2, 2, 2]

    async with open_simulated_server(storage, shards_count=shards_count) as server:
        client = await server.log_in()
        for partition_id in range(3):
            await send(client, partition_id, size_bytes=MIB)
            await send(client, partition_id, size_bytes=MIB)
        assert await segments_of(client) == [3, 3, 3]

        await client.ask(PurgeTopic("s", "t"))
        await client.ask(UpdateTopic("s", "t", "t"))
        for partition_id in range(3):
            await send(client, partition_id, size_bytes=MIB)
            await send(client, partition_id, size_bytes=MIB)
        assert await segments_of(client) == [2, 2, 2]


@pytest.mark.trio
async def test_topic_when_made_again_without_options_then_has_the_settings_of_the_server(
    autojump_clock,
):
    async with open_simulated_server() as server:
        client = await make_stream(server)
        await make_topic(server, segment_size="1 MiB")
        await client.ask(DeleteTopic("s", "t"))
        await client.ask(CreateTopic("s", "t", 2))

        for _ in range(3):
            await send(client, 0, size_bytes=MIB)

        assert await segments_of(client) == [1, 1]


@pytest.mark.trio
async def test_send_when_the_topic_is_persisted_then_the_disk_has_it_before_the_reply(
    autojump_clock,
):
    plan = FaultPlan()
    async with open_simulated_server(SimulatedStorage(plan)) as server:
        client = await make_stream(server)
        await make_topic(server, durability="persisted")
        await make_topic(server, "usual")
        syncs = {
            topic: plan.delay("sync", path=f"streams/0/topics/{topic}/*.log", seconds=(0.0, 0.0))
            for topic in (0, 1)
        }

        await send(client, 0)
        await send(client, 0, "usual")

        assert syncs[0].matched_count >= 1
        assert syncs[1].matched_count == 0
        plan.fail("sync", path="*.log")
        await send(client, 1, "usual")
        with pytest.raises(Refused) as refused:
            await send(client, 1)
        assert refused.value.status == StatusCode.CANNOT_SYNC_FILE


@pytest.mark.trio
async def test_offset_when_its_durability_is_persisted_then_the_disk_has_it_before_the_reply(
    autojump_clock,
):
    plan, path = FaultPlan(), "streams/0/topics/%d/*/offsets/*"
    async with open_simulated_server(SimulatedStorage(plan)) as server:
        client = await make_stream(server)
        await make_topic(server, consumer_offset_durability="persisted")
        await make_topic(server, "usual")
        for topic in ("t", "usual"):
            await send(client, 0, topic)
            await client.ask(StoreConsumerOffset(ConsumerIdentity.single(1), "s", topic, 0, 0))
        syncs = {
            topic_id: plan.delay("sync", path=path % topic_id, seconds=(0.0, 0.0))
            for topic_id in (0, 1)
        }

        for topic in ("t", "usual"):
            await client.ask(StoreConsumerOffset(ConsumerIdentity.single(1), "s", topic, 0, 0))

        assert syncs[0].matched_count == 1
        assert syncs[1].matched_count == 0


@pytest.mark.trio
async def test_messages_when_few_may_wait_in_memory_then_are_written_at_that_number(
    autojump_clock,
):
    storage, settings = SimulatedStorage(), {"SYSTEM_PARTITION_ACK": "memory"}
    async with open_simulated_server(storage, settings=settings) as server:
        client = await make_stream(server)
        await make_topic(server, messages_required_to_save=2)
        await make_topic(server, "usual")

        for topic in ("t", "usual"):
            await send(client, 0, topic)
            await send(client, 0, topic)

        assert [await logged_bytes(storage, topic) > 0 for topic in (0, 1)] == [True, False]


@pytest.mark.trio
async def test_segments_when_preallocated_then_take_their_size_at_once(autojump_clock):
    plan = FaultPlan()
    plan.capacity_bytes = 64 * MIB
    storage = SimulatedStorage(plan)
    async with open_simulated_server(storage) as server:
        client = await make_stream(server)
        before, _ = await storage.free_bytes()

        await make_topic(server, segment_size="8 MiB", preallocate_segments=True)
        created, _ = await storage.free_bytes()
        for _ in range(9):
            await send(client, 0, size_bytes=MIB)
        rolled, _ = await storage.free_bytes()

        assert before - created >= 16 * MIB
        assert created - rolled >= 8 * MIB


@pytest.mark.trio
async def test_segments_when_there_is_no_room_for_their_size_then_messages_are_stored_anyway(
    autojump_clock, caplog
):
    plan = FaultPlan()
    plan.capacity_bytes = 4 * MIB
    async with open_simulated_server(SimulatedStorage(plan)) as server:
        client = await make_stream(server)
        await make_topic(server, segment_size="8 MiB", preallocate_segments=True)

        await send(client, 0)

    assert "the disk keeps no room of 8388608 bytes" in caplog.text

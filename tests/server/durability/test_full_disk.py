"""A full disk: producers are told, what was acknowledged is kept, and all works when there is room.

On a real disk where the system lets us make one, and in any case with a disk in memory that says
what a full one says.
"""

from __future__ import annotations

import re
import signal
from contextlib import closing, suppress

import pytest
import trio

from iggy_protocol import (
    ConsumerIdentity,
    CreatePartitions,
    CreateStream,
    CreateTopic,
    DeleteTopic,
    GetTopics,
    Partitioning,
    PollingStrategy,
    PollMessages,
    PurgeTopic,
    SendMessages,
    StatusCode,
)
from iggy_ref_server.storage.simulated.fault_plan import FaultPlan
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.durability.small_disk import ServerOnSmallDisk, SmallDisk
from tests.server.features.topic_calls import make_topic
from tests.server.simulated import server as worlds
from tests.server.wire_client import Refused

SIZE_BYTES = 6 << 20
BATCH_BYTES = 100_000
ENGINES = pytest.mark.parametrize("engine", ["auto", "threads"])
LEVELS = pytest.mark.parametrize("ack", ["written", "fsync"])


def payload(number):
    return f"{number:0>{BATCH_BYTES}}"


def fill(topic, first):
    """Send until the server refuses; return how many were acknowledged, and why no more were."""
    for number in range(first, first + 10 * SIZE_BYTES // BATCH_BYTES):
        try:
            topic.send(payload(number))
        except Refused as refused:
            return number, refused.status
    raise AssertionError("the disk is never full")


@pytest.mark.skipif(
    bool(SmallDisk.missing()),
    reason=f"no namespaces ({SmallDisk.missing()}); ENOSPC comes from the fault plan alone",
)
@pytest.mark.timeout(90)
@ENGINES
@LEVELS
def test_small_disk_when_full_then_nothing_acknowledged_is_harmed_and_it_recovers(
    tmp_path, engine, ack
):
    settings = {
        "IGGY_SYSTEM_PARTITION_ACK": ack,
        "IGGY_SYSTEM_STORAGE_ENGINE": engine,
        "IGGY_SYSTEM_SEGMENT_SIZE": "1 MiB",
    }
    with closing(SmallDisk(tmp_path / "data", SIZE_BYTES)) as disk:
        server = ServerOnSmallDisk(tmp_path, disk, settings)
        with closing(server):
            server.start()
            topic = make_topic(server.login())
            ballast = disk.seen_from_outside / "ballast"
            ballast.write_bytes(bytes(1 << 20))

            count, status = fill(topic, 0)
            assert status == StatusCode.CANNOT_WRITE_TO_FILE
            assert topic.offsets() == list(range(count))

            server.kill()
            server.start()
            topic = topic.seen_by(server.login())
            assert topic.offsets() == list(range(count))

            ballast.unlink()
            for number in range(count, count + 5):
                topic.send(payload(number))
            assert topic.read() == [payload(number) for number in range(count + 5)]
            server.restart()
            topic = topic.seen_by(server.login())
            assert topic.offsets() == list(range(count + 5))


@pytest.mark.trio
@LEVELS
@pytest.mark.parametrize("shards_count", [1, 2])
async def test_disk_in_memory_when_full_then_nothing_acknowledged_is_harmed_and_it_recovers(
    ack, shards_count, autojump_clock
):
    plan = FaultPlan(seed=3)
    storage = SimulatedStorage(plan)
    settings = {"SYSTEM_PARTITION_ACK": ack, "SYSTEM_SEGMENT_SIZE": "64 KiB"}
    first = PollingStrategy.first()
    poll = PollMessages(ConsumerIdentity.single(1), "s", "t", first, 10_000, 0)
    async with worlds.open_simulated_server(
        storage, shards_count=shards_count, settings=settings
    ) as world:
        client = await world.log_in()
        await client.ask(CreateStream("s"))
        await client.ask(CreateTopic("s", "t", 1))
        plan.capacity_bytes = 400_000
        kept, reasons = [], set()
        for number in range(1000):
            message = b"%0999d" % number
            try:
                await client.ask(SendMessages("s", "t", Partitioning.partition(0), [message]))
                kept.append(message)
            except worlds.Refused as refused:
                reasons.add(refused.status)
        assert reasons == {StatusCode.CANNOT_WRITE_TO_FILE}
        assert 100 < len(kept) < 500
        assert (await client.ask(poll)).messages.payloads() == kept

        plan.capacity_bytes = None
        await trio.sleep(2)
        await client.ask(SendMessages("s", "t", Partitioning.partition(0), [b"room again"]))
        kept.append(b"room again")
    async with worlds.open_simulated_server(storage.kill(), shards_count=shards_count) as world:
        client = await world.log_in()
        assert (await client.ask(poll)).messages.payloads() == kept


@pytest.mark.skipif(
    bool(SmallDisk.missing()),
    reason=f"no namespaces ({SmallDisk.missing()}); ENOSPC comes from the fault plan alone",
)
@pytest.mark.timeout(90)
@ENGINES
def test_stop_when_the_disk_is_full_then_names_what_is_lost_and_ends_with_3(tmp_path, engine):
    settings = {"IGGY_SYSTEM_PARTITION_ACK": "memory", "IGGY_SYSTEM_STORAGE_ENGINE": engine}
    with closing(SmallDisk(tmp_path / "data", SIZE_BYTES)) as disk:
        server = ServerOnSmallDisk(tmp_path, disk, settings)
        with closing(server):
            server.start()
            topic = make_topic(server.login())
            topic.send(*["saved"] * 10)
            topic.flush()
            ballast = disk.seen_from_outside / "ballast"
            fill_up(ballast)
            for number in range(300):
                topic.send(f"{number:0>1000}")

            server.signal(signal.SIGTERM)
            status = server.wait()

            output = server.output()
            assert status == 3, output
            named = re.search(r"messages (\d+) to 309 \((\d+) of them\) are LOST", output)
            assert named is not None, output
            first, count = map(int, named.groups())
            where = f"stream {topic.stream_id}, topic {topic.topic_id}, partition 0: messages"
            assert where in output
            assert count == 310 - first
            assert f"{count} acknowledged messages are LOST" in output

            ballast.unlink()
            server.start()
            assert topic.seen_by(server.login()).offsets() == list(range(first))
            server.stop()


def fill_up(path):
    """Leave no room on a disk."""
    with path.open("wb", buffering=0) as ballast, suppress(OSError):
        while True:
            ballast.write(bytes(4096))


@pytest.mark.trio
@pytest.mark.parametrize("shards_count", [1, 2])
async def test_shards_when_closed_on_a_full_disk_then_say_what_is_lost(
    shards_count, autojump_clock, caplog
):
    plan = FaultPlan()
    settings = {"SYSTEM_PARTITION_ACK": "memory"}
    storage = SimulatedStorage(plan)
    async with worlds.open_simulated_server(
        storage, shards_count=shards_count, settings=settings
    ) as world:
        client = await world.log_in()
        await client.ask(CreateStream("s"))
        await client.ask(CreateTopic("s", "t", 2))
        await client.ask(SendMessages("s", "t", Partitioning.partition(1), [b"x"] * 7))
        plan.capacity_bytes = 1
    unsaved = {key: lost for shard in world.shards for key, lost in shard.unsaved.items()}
    assert {tuple(key): missing.lost for key, missing in unsaved.items()} == {(0, 0, 1): range(7)}
    assert "stream 0, topic 0, partition 1: messages 0 to 6 (7 of them) are LOST" in caplog.text


@pytest.mark.skipif(
    bool(SmallDisk.missing()),
    reason=f"no namespaces ({SmallDisk.missing()}); ENOSPC comes from the fault plan alone",
)
@pytest.mark.timeout(90)
@ENGINES
@pytest.mark.parametrize("how", ["delete", "purge"])
def test_start_when_the_disk_is_full_then_is_read_only_until_space_is_made(tmp_path, engine, how):
    settings = {"IGGY_SYSTEM_STORAGE_ENGINE": engine, "IGGY_SYSTEM_LOGGING_FILE_ENABLED": "true"}
    with closing(SmallDisk(tmp_path / "data", SIZE_BYTES)) as disk:
        server = ServerOnSmallDisk(tmp_path, disk, settings)
        with closing(server):
            server.start()
            client = server.login()
            large, small = make_topic(client), make_topic(client)
            small.send("kept")
            count, _ = fill(large, 0)
            server.kill()
            fill_up(disk.seen_from_outside / "ballast")

            server.start()
            assert "the server is read-only" in server.output()
            assert "Traceback" not in server.output()
            client = server.login()
            large, small = large.seen_by(client), small.seen_by(client)
            assert small.read() == ["kept"]
            assert len(large.offsets()) == count
            with pytest.raises(Refused) as refused:
                large.send(payload(0))
            assert refused.value.status == StatusCode.CANNOT_WRITE_TO_FILE

            command = DeleteTopic if how == "delete" else PurgeTopic
            client.ask(command(large.stream, large.topic))
            small.send(payload(1))
            assert small.offsets() == [0, 1]
            server.restart()
            assert small.seen_by(server.login()).offsets() == [0, 1]


@pytest.mark.trio
@pytest.mark.parametrize("shards_count", [1, 2])
async def test_metadata_when_the_disk_is_full_then_deletes_are_still_noted(
    shards_count, autojump_clock
):
    plan = FaultPlan()
    storage = SimulatedStorage(plan)
    async with worlds.open_simulated_server(storage, shards_count=shards_count) as world:
        client = await world.log_in()
        await client.ask(CreateStream("s"))
        for name in ("a", "b"):
            await client.ask(CreateTopic("s", name, 1))
            await client.ask(SendMessages("s", name, Partitioning.partition(0), [b"x" * 500]))
        plan.capacity_bytes = 1
    async with worlds.open_simulated_server(storage.kill(), shards_count=shards_count) as world:
        client = await world.log_in()
        with pytest.raises(worlds.Refused) as refused:
            await client.ask(SendMessages("s", "a", Partitioning.partition(0), [b"x" * 500]))
        assert refused.value.status == StatusCode.CANNOT_WRITE_TO_FILE
        await client.ask(DeleteTopic("s", "a"))
        assert len(await client.ask(GetTopics("s"))) == 1


@pytest.mark.trio
@pytest.mark.parametrize("shards_count", [1, 2])
async def test_partitions_when_the_disk_cannot_hold_them_then_refused_before_they_are_made(
    shards_count, autojump_clock
):
    plan = FaultPlan(capacity_bytes=10 << 20)
    async with worlds.open_simulated_server(
        SimulatedStorage(plan), shards_count=shards_count
    ) as world:
        client = await world.log_in(shards_count - 1)
        await client.ask(CreateStream("s"))
        await client.ask(CreateTopic("s", "small", 1))
        for command in (CreateTopic("s", "large", 1000), CreatePartitions("s", "small", 1000)):
            with pytest.raises(worlds.Refused) as refused:
                await client.ask(command)
            assert refused.value.status == StatusCode.CANNOT_WRITE_TO_FILE
        (topic,) = await client.ask(GetTopics("s"))
        assert (topic.name, topic.partitions_count) == ("small", 1)

"""Groups on a real server: members come and go, partitions are added, the server is killed."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from contextlib import AsyncExitStack

import anyio
import anyio.to_thread
import pytest
from anyio.lowlevel import checkpoint

from iggy_protocol import (
    CreatePartitions,
    CreateStream,
    CreateTopic,
    GetConsumerGroup,
    Partitioning,
    SendMessages,
)
from iggy_sdk.client import IggyClient
from iggy_sdk.consumer import AutoCommit, ConsumerBuilder
from iggy_sdk.errors import IggyError
from iggy_sdk.testing.server import external_server_address, in_test_protocol
from tests.server.free_ports import free_ports

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(90)]

SERVER_SHARDS = 2
GATHERED = 20
"""Messages of a poll, and messages whose commits are gathered: small, so that windows are."""

AFTER_EACH = AutoCommit.after_each(coalesce_messages=GATHERED)


def url(server) -> str:
    """Name a running server as clients do."""
    host, port = server.address
    return in_test_protocol(f"iggy://iggy:iggy@{host}:{port}")


async def make_topic(client: IggyClient, stream: str, partitions_count: int) -> None:
    """Make a stream with a topic."""
    await client.request(CreateStream(stream))
    await client.request(CreateTopic(stream, "t", partitions_count))


async def send(client: IggyClient, stream: str, partition_id: int, *payloads: bytes) -> None:
    """Send messages to one partition."""
    where = Partitioning.partition(partition_id)
    await client.request(SendMessages(stream, "t", where, payloads))


class Tally:
    """What was produced and what was consumed, by partition and offset."""

    def __init__(self) -> None:
        self.acknowledged: set[bytes] = set()
        self.consumed: Counter[bytes] = Counter()
        self.deliveries: Counter[tuple[int, int]] = Counter()
        self.first_seen: dict[bytes, list[int]] = defaultdict(list)
        self.news = anyio.Event()

    def note(self, message) -> None:
        """Note a message that was handed out; its payload is a key and a number."""
        payload = message.payload
        if payload not in self.consumed:
            key, _, number = payload.partition(b":")
            self.first_seen[key].append(int(number))
        self.consumed[payload] += 1
        self.deliveries[message.partition_id, message.offset] += 1
        self.news.set()
        self.news = anyio.Event()

    async def wait_for(self, count: int) -> None:
        """Wait until so many different messages were consumed."""
        while len(self.consumed) < count:
            await self.news.wait()

    @property
    def repeated_count(self) -> int:
        """How many deliveries were not the first of their message."""
        return sum(self.deliveries.values()) - len(self.deliveries)

    def check(self) -> None:
        """Check that nothing is missing and that keys kept their order."""
        assert self.acknowledged <= set(self.consumed)
        for numbers in self.first_seen.values():
            assert numbers == sorted(numbers)


async def consume(builder: ConsumerBuilder, tally: Tally, *, stop: anyio.Event) -> None:
    """Consume until told to stop, as one member."""
    async with builder as consumer, anyio.create_task_group() as tasks:

        async def add_reader() -> None:
            await stop.wait()
            consumer.stop()

        tasks.start_soon(add_reader)
        async for message in consumer:
            tally.note(message)
            await checkpoint()
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("shared", [True, False])
async def test_reading_when_alone_or_in_a_group_sees_each_message_once(
    server, shared, anyio_backend
):
    stream = f"once-{shared}-{anyio_backend[0]}"
    async with IggyClient(url(server)) as client:
        await make_topic(client, stream, 3)
        for number in range(300):
            await send(client, stream, number % 3, b"%d" % number)
        for make in (ConsumerBuilder.group, ConsumerBuilder.standalone):
            builder = make(client, "g", stream, "t", until_end=True, batch_length=7)
            builder = builder.connection("shared" if shared else "own")
            if make == ConsumerBuilder.standalone:
                builder = builder.partition_id("all")
            async with builder as consumer:
                seen = [message.payload async for message in consumer]
                assert await consumer.lag() == {0: 0, 1: 0, 2: 0}
            assert sorted(map(int, seen)) == list(range(300))
            async with builder as consumer:
                assert [message async for message in consumer] == []


@pytest.mark.skipif(
    external_server_address() is not None,
    reason="the original gives a member who comes later one partition, however many there are",
)
async def test_members_when_they_come_and_go_share_everything_and_end_balanced(
    server, anyio_backend
):
    stream, tally, stops = f"members-{anyio_backend[0]}", Tally(), [anyio.Event() for _ in range(4)]
    async with IggyClient(url(server)) as client, anyio.create_task_group() as tasks:
        await make_topic(client, stream, 6)
        builder = ConsumerBuilder.group(client, "g", stream, "t", batch_length=GATHERED)

        async def produce(first: int, last: int) -> None:
            for number in range(first, last):
                key = number % 6
                payload = b"%d:%d" % (key, number)
                await send(client, stream, key, payload)
                tally.acknowledged.add(payload)

        async def member(number: int) -> None:
            await consume(builder.commit(AFTER_EACH), tally, stop=stops[number])

        tasks.start_soon(member, 0)
        await produce(0, 300)
        for number in (1, 2):
            tasks.start_soon(member, number)
        await produce(300, 600)
        stops[0].set()
        await produce(600, 900)
        tasks.start_soon(member, 3)
        await produce(900, 1200)
        await tally.wait_for(1200)
        while True:
            group = await client.request(GetConsumerGroup(stream, "t", "g"))
            assert group is not None
            if sorted(len(one.partitions) for one in group.members) == [2, 2, 2]:
                break
        for stop in stops:
            stop.set()
    tally.check()
    # A leave shares everything out anew; each member may have one window in hand then.
    assert tally.repeated_count <= 2 * 3 * (2 * GATHERED + 1)


async def test_partitions_when_added_while_a_group_reads_are_read(server, anyio_backend):
    stream = f"added-{anyio_backend[0]}"
    async with IggyClient(url(server)) as client:
        await make_topic(client, stream, 1)
        await send(client, stream, 0, b"0")
        async with (
            ConsumerBuilder.group(client, "g", stream, "t") as member,
            ConsumerBuilder.standalone(client, "c", stream, "t", partition_id="all") as single,
        ):
            for consumer in (member, single):
                assert (await anext(consumer)).payload == b"0"
            await client.request(CreatePartitions(stream, "t", 2))
            await send(client, stream, 2, b"2")
            for consumer in (member, single):
                assert (await anext(consumer)).payload == b"2"


async def test_consume_messages_when_a_threading_event_is_set_returns(server, anyio_backend):
    stream, event, seen = f"threads-{anyio_backend[0]}", threading.Event(), []
    async with IggyClient(url(server)) as client:
        await make_topic(client, stream, 1)
        await send(client, stream, 0, *(b"%d" % number for number in range(50)))

        async def callback(message) -> None:
            seen.append(message.offset)
            if message.offset == 20:
                event.set()

        async with ConsumerBuilder.group(client, "g", stream, "t") as consumer:
            await consumer.consume_messages(callback, event)
        assert seen == list(range(len(seen)))
        assert len(seen) > 20


@pytest.mark.parametrize("shards", [1, 2])
async def test_group_when_the_server_is_killed_twice_misses_nothing(start_server, shards):
    server = start_server(
        shards=shards, settings={"IGGY_TCP_ADDRESS": f"127.0.0.1:{free_ports(1)[0]}"}
    )
    keys, per_key, members = 6, 150, 3
    tally, stop = Tally(), anyio.Event()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(IggyClient(url(server)))
        tasks = await stack.enter_async_context(anyio.create_task_group())
        await make_topic(client, "s", 3)
        builder = ConsumerBuilder.group(client, "g", "s", "t", batch_length=GATHERED)
        for _ in range(members):
            tasks.start_soon(lambda: consume(builder.commit(AFTER_EACH), tally, stop=stop))

        async def produce(key: int) -> None:
            for number in range(per_key):
                payload = b"%d:%d" % (key, number)
                while payload not in tally.acknowledged:
                    try:
                        await send(client, "s", key % 3, payload)
                    except IggyError:
                        continue
                    tally.acknowledged.add(payload)

        for key in range(keys):
            tasks.start_soon(produce, key)
        for goal in (200, 500):
            await tally.wait_for(goal)
            await anyio.to_thread.run_sync(server.kill)
            await anyio.to_thread.run_sync(server.start)
        await tally.wait_for(keys * per_key)
        stop.set()
    tally.check()
    # A kill ends all memberships, and each member that comes back shares everything out anew.
    window = 2 * GATHERED + 1
    assert tally.repeated_count <= 2 * members * members * window

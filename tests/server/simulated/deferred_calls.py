"""Say things to clients that wait, in few words: a server with a topic, its polls and groups."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from iggy_protocol import (
    ConsumerIdentity,
    CreateStream,
    CreateTopic,
    Dialect,
    FetchMessages,
    FetchTarget,
    JoinConsumerGroup,
    Partitioning,
    PollDeferred,
    PollingStrategy,
    SendMessages,
    SyncConsumerGroup,
    WaitForMessages,
    WaitTarget,
)
from tests.server.simulated.server import open_simulated_server
from tests.server.simulated.vsr_calls import VsrPeer, vsr_session

V0_11, V0_12_0, V0_12_2 = Dialect.V0_11, Dialect.V0_12_0, Dialect.V0_12_2
DIALECTS = pytest.mark.parametrize("dialect", [V0_12_0, V0_12_2], ids=lambda dialect: dialect.name)
SHARDS = pytest.mark.parametrize("shards_count", [1, 2])
ONE, GROUP = ConsumerIdentity.single(1), ConsumerIdentity.group("g")
PARTITIONS = 4
SECOND_US = 1_000_000


class World:
    """A server with a topic, and clients of it."""

    def __init__(self, server, nursery, root):
        self.server = server
        self.nursery = nursery
        self.root = root

    async def client(self, dialect=V0_12_2, shard_id=0, session=None):
        """Connect; with a session, bind it, else log in."""
        peer = VsrPeer(self.server, self.nursery, shard_id, session or vsr_session(dialect))
        await (peer.login() if session is None else peer.bind())
        return peer

    async def send(self, partition_id, *payloads):
        """Send messages as a classic client does."""
        partitioning = Partitioning.partition(partition_id)
        await self.root.ask(SendMessages("s", "t", partitioning, list(payloads)))

    def waits_count(self):
        """Count the waits that any shard holds."""
        waiting = 0
        for shard in self.server.shards:
            waiting += len(shard.handler_context.deferred) + len(shard._call_handler._parked)
            waiting += sum(len(log._segment_list.waiters) for _, log in shard.directory)
        groups = self.server.shards[0].handler_context.registry._groups.values()
        return waiting + sum(len(group._assignment.watches) for group in groups)


@asynccontextmanager
async def running(shards_count=2):
    async with (
        open_simulated_server(shards_count=shards_count) as server,
        trio.open_nursery() as nursery,
    ):
        world = World(server, nursery, await server.log_in())
        await world.root.ask(CreateStream("s"))
        await world.root.ask(CreateTopic("s", "t", PARTITIONS))
        yield world
        await trio.testing.wait_all_tasks_blocked()
        assert world.waits_count() == 0, "a wait is left behind"
        nursery.cancel_scope.cancel()


def poll_of(partition_id, *, start=None, wait_s=10, consumer=ONE, **fields):
    strategy = PollingStrategy.next() if start is None else PollingStrategy.offset(start)
    wait_us = int(wait_s * SECOND_US)
    count = fields.pop("count", 10)
    return PollDeferred(
        consumer,
        "s",
        "t",
        strategy,
        count,
        wait_us,
        wait_us + SECOND_US,
        partition_id=partition_id,
        **fields,
    )


def payloads(polled):
    return polled.messages.payloads()


async def settle():
    await trio.testing.wait_all_tasks_blocked()


async def join(client, group="g"):
    await client.ask(JoinConsumerGroup("s", "t", group))


async def partitions_of(client):
    return (await client.ask(SyncConsumerGroup("s", "t", "g"))).partitions


def wait_of(*targets, wait_s=10, consumer=ONE):
    wait_us = int(wait_s * SECOND_US)
    made = tuple(WaitTarget(number, strategy) for number, strategy in targets)
    return WaitForMessages(consumer, "s", "t", wait_us, wait_us + SECOND_US, made)


NEXT = PollingStrategy.next()


async def fetch_of(client, *partition_ids, wait_s=10, consumer=ONE, start=None, **fields):
    wait_us = int(wait_s * SECOND_US)
    strategy = NEXT if start is None else PollingStrategy.offset(start)
    targets = []
    for partition_id in partition_ids:
        route = await client.route("s", "t", partition_id)
        targets.append(FetchTarget(partition_id, strategy, 1 << 20, route.incarnation))
    count = fields.pop("count", 100)
    return FetchMessages(
        consumer, "s", "t", wait_us, wait_us + 2 * SECOND_US, tuple(targets), count, **fields
    )


def sections_of(fetched):
    return {one.partition_id: (one.status, one.messages.payloads()) for one in fetched}

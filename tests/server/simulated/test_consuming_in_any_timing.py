"""Consumers of every dialect, a slow disk and lost connections, in an order that a seed decides.

Sends are repeated until they are answered, consumers wait on the server, and members of a group
come, go and reconnect. Every message is stored once, read by the single consumer once and in order,
and read by the group.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict

import pytest
import trio

from iggy_protocol import (
    ConsumerIdentity,
    CreateConsumerGroup,
    CreateStream,
    CreateTopic,
    Dialect,
    JoinConsumerGroup,
    Partitioning,
    PollDeferred,
    PollingStrategy,
    SendMessages,
    StatusCode,
    SyncConsumerGroup,
)
from iggy_ref_server.storage.simulated.fault_plan import FaultPlan
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.simulated.server import ConnectionLost, Refused, open_simulated_server
from tests.server.simulated.vsr_calls import VsrPeer, vsr_session

pytestmark = [pytest.mark.trio, pytest.mark.timeout(120)]

PARTITIONS = 3
SENDS = 25
SECOND_US = 1_000_000
RETRIED = {
    StatusCode.CONSUMER_GROUP_PARTITION_NOT_OWNED,
    StatusCode.TOO_MANY_DEFERRED_POLLS,
    StatusCode.TRANSIENT_NOT_COMMITTED,
}


def slow_disk(seed):
    plan = FaultPlan(seed=seed)
    plan.refuse(path="*.log")
    plan.delay("write", path="*.log", seconds=(0.001, 0.5), probability=0.5)
    return SimulatedStorage(plan)


class Actor:
    """A client of 0.12.2 that loses its connection now and then, and binds its session again."""

    def __init__(self, server, nursery, noise):
        self.server = server
        self.nursery = nursery
        self.noise = noise
        self.session = vsr_session(Dialect.V0_12_2)
        self.peer = None

    async def connected(self):
        """Return a connection of the session, the one in use if it is alive."""
        if self.peer is None:
            shard_id = self.noise.randrange(2)
            peer = VsrPeer(self.server, self.nursery, shard_id, self.session)
            await (peer.bind() if self.session.is_registered else peer.login())
            self.peer = peer
        return self.peer

    async def lose(self):
        """Hang up."""
        peer, self.peer = self.peer, None
        if peer is not None:
            await peer.aclose()

    async def ask(self, command, context):
        """Ask until there is an answer, over as many connections as it takes."""
        request = None
        while True:
            peer = await self.connected()
            if request is None:
                request = peer.connection.prepare(command, context=context)
            is_lost = self.noise.random() < 0.1
            with trio.move_on_after(self.noise.random() if is_lost else 60):
                await peer.resend(request)
                return await peer.answer(request)
            await self.lose()


async def produce(actor, partition_id):
    """Send numbered messages, each until it is confirmed; the offsets have to be the numbers."""
    for number in range(SENDS):
        peer = await actor.connected()
        context = await peer.route("s", "t", partition_id)
        where = Partitioning.partition(partition_id)
        sent = SendMessages("s", "t", where, [b"%d" % number], random=os.urandom(16))
        (confirmed,) = await actor.ask(sent, context)
        assert confirmed.base_offset == number, "a repeat was stored again"
        await trio.sleep(actor.noise.random() * 0.4)


def poll_of(actor, partition_id, strategy, consumer):
    wait_us = actor.noise.choice([0, SECOND_US // 10, 5 * SECOND_US])
    count = actor.noise.randrange(1, 6)
    messages_min = actor.noise.randrange(1, count + 1)
    return PollDeferred(
        consumer,
        "s",
        "t",
        strategy,
        count,
        wait_us,
        wait_us + SECOND_US,
        messages_min,
        partition_id=partition_id,
    )


async def read_alone(actor, partition_id):
    """Read a partition from its beginning, and miss nothing."""
    expected = 0
    while expected < SENDS:
        peer = await actor.connected()
        context = await peer.route("s", "t", partition_id)
        strategy = PollingStrategy.offset(expected)
        poll = poll_of(actor, partition_id, strategy, ConsumerIdentity.single(7))
        polled = await actor.ask(poll, context)
        for payload in polled.messages.payloads():
            assert payload == b"%d" % expected
            expected += 1


async def read_as_member(actor, read, done):
    """Read what the group assigns, and commit what is read."""
    group = ConsumerIdentity.group("g")
    peer = await actor.connected()
    await peer.ask(JoinConsumerGroup("s", "t", "g"))
    while not done.is_set():
        peer = await actor.connected()
        try:
            assignment = await peer.ask(SyncConsumerGroup("s", "t", "g"))
            assert assignment is not None, "a session keeps its memberships"
            for partition_id in assignment.partitions:
                context = await peer.route("s", "t", partition_id)
                poll = poll_of(actor, partition_id, PollingStrategy.next(), group)
                polled = await peer.ask(poll, context)
                read[partition_id] += polled.messages.payloads()
                await peer.commit(group, "s", "t", partition_id, polled)
        except Refused as refused:
            if refused.status not in RETRIED:
                raise
        except ConnectionLost:
            actor.peer = None
        if actor.noise.random() < 0.1:
            await actor.lose()
        await trio.sleep(actor.noise.random() * 0.2)
        if sum(map(len, read.values())) >= PARTITIONS * SENDS:
            done.set()


@pytest.mark.parametrize("seed", range(10))
async def test_consumers_when_anything_is_late_or_lost_then_miss_nothing(autojump_clock, seed):
    noise = random.Random(int(os.environ.get("IGGY_SIM_SEED", "0")) * 1000 + seed)
    async with (
        open_simulated_server(slow_disk(seed), shards_count=2) as server,
        trio.open_nursery() as readers,
    ):
        root = await server.log_in()
        await root.ask(CreateStream("s"))
        await root.ask(CreateTopic("s", "t", PARTITIONS))
        await root.ask(CreateConsumerGroup("s", "t", "g"))
        read: defaultdict[int, list[bytes]] = defaultdict(list)
        done = trio.Event()

        def actor():
            return Actor(server, readers, random.Random(noise.random()))

        with trio.fail_after(600):
            async with trio.open_nursery() as nursery:
                for partition_id in range(PARTITIONS):
                    nursery.start_soon(produce, actor(), partition_id)
                    nursery.start_soon(read_alone, actor(), partition_id)
                for _ in range(3):
                    nursery.start_soon(read_as_member, actor(), read, done)
        readers.cancel_scope.cancel()
    expected = [b"%d" % number for number in range(SENDS)]
    for partition_id in range(PARTITIONS):
        assert list(dict.fromkeys(read[partition_id])) == expected

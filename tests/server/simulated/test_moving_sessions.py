"""Sessions that end while one of their connections is on its way to another shard."""

from __future__ import annotations

import socket
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from iggy_protocol import (
    ConsumerIdentity,
    CreateStream,
    CreateTopic,
    Dialect,
    GetMe,
    Partitioning,
    PollingStrategy,
    PollMessages,
    SendMessages,
    StatusCode,
    pack_namespace,
    shard_for_namespace,
)
from iggy_ref_server.session import MIGRATION_REQUESTS_MIN
from tests.server.simulated.deferred_calls import V0_12_2, World, payloads, poll_of, settle
from tests.server.simulated.server import ConnectionLost, Refused, open_simulated_server

if TYPE_CHECKING:
    from tests.server.simulated.vsr_calls import VsrPeer

pytestmark = [pytest.mark.trio, pytest.mark.virtual_time]

SHARDS_COUNT = 3
PARTITIONS = 12
# Between any two of these another task may run; the calls of an arrival take fewer.
CHECKPOINTS = 40
PACKET_BYTES_MAX = 1 << 17


class Relays:
    """The sockets for migration; what is sent stays in them until the test passes it on."""

    def __init__(self, shards_count: int) -> None:
        self.sockets: list[dict[int, socket.socket]] = [{} for _ in range(shards_count)]
        self._relayed: dict[tuple[int, int], socket.socket] = {}
        for left in range(shards_count):
            for right in range(left + 1, shards_count):
                for here, there in ((left, right), (right, left)):
                    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                    self.sockets[here][there], self._relayed[here, there] = ours, theirs
                    theirs.setblocking(False)

    def pass_on(self) -> int:
        """Pass on the connections that are on their way, and return how many."""
        count = 0
        for (here, there), relayed in self._relayed.items():
            try:
                packet, descriptors, _, _ = socket.recv_fds(relayed, PACKET_BYTES_MAX, 1)
            except BlockingIOError:
                continue
            with socket.socket(fileno=descriptors[0]) as moving:
                socket.send_fds(self._relayed[there, here], [packet], [moving.fileno()])
            count += 1
        return count

    def close(self) -> None:
        for relayed in self._relayed.values():
            relayed.close()


def partition_of(shard_id):
    """Return a partition of the first topic that lives on a shard."""
    return next(
        number
        for number in range(PARTITIONS)
        if shard_for_namespace(
            pack_namespace(stream_id=0, topic_id=0, partition_id=number), shards_count=SHARDS_COUNT
        )
        == shard_id
    )


@asynccontextmanager
async def moving(source, target, dialect=V0_12_2):
    """Run a server on which a client is on its way from one shard to another one."""
    with closing(Relays(SHARDS_COUNT)) as relays:
        async with (
            open_simulated_server(
                shards_count=SHARDS_COUNT, migration_sockets=relays.sockets
            ) as server,
            trio.open_nursery() as nursery,
        ):
            world = World(server, nursery, await server.log_in())
            await world.root.ask(CreateStream("s"))
            await world.root.ask(CreateTopic("s", "t", PARTITIONS))
            client = await world.client(dialect, source)
            await make_it_move(client, target)
            await settle()
            yield world, relays, client
            await settle()
            nursery.cancel_scope.cancel()


async def make_it_move(client: VsrPeer, target):
    context = await client.route("s", "t", partition_of(target))
    for number in range(MIGRATION_REQUESTS_MIN):
        partitioning = Partitioning.partition(partition_of(target))
        random = number.to_bytes(16, "little")
        await client.ask(SendMessages("s", "t", partitioning, [b"m"], random=random), context)


def clients_of(world, session):
    """Return the shards that have a connection of a session, whose login they believe in."""
    return [
        shard_id
        for shard_id, shard in enumerate(world.server.shards)
        for one in shard.clients
        if one.session.binding is not None and one.session.binding.session == session
    ]


def sessions_of(world):
    """Return the sessions, which are on shard 0."""
    return world.server.shards[0].handler_context.sessions


async def refusal_of(client: VsrPeer):
    """Return how the server refuses a request; None if the connection is evicted."""
    try:
        reply = await client.ask(GetMe())
    except Refused as refused:
        return refused.status
    except ConnectionLost:
        return None
    raise AssertionError(f"the server still answers: {reply}")


MOVES = pytest.mark.parametrize(("source", "target"), [(0, 1), (1, 0), (1, 2)])


@MOVES
async def test_session_when_it_ends_before_its_connection_arrives_then_it_has_ended_there(
    autojump_clock, source, target
):
    async with moving(source, target) as (world, relays, client):
        number = client.session.session
        await world.client(V0_12_2, 0, client.session)
        assert clients_of(world, number) == [0]
        await sessions_of(world).log_out(number)
        await settle()

        assert relays.pass_on() == 1
        await settle()

        assert clients_of(world, number) == []
        assert await refusal_of(client) in (None, StatusCode.UNAUTHENTICATED)


@MOVES
async def test_session_when_it_ends_after_its_connection_arrives_then_it_has_ended_there(
    autojump_clock, source, target
):
    async with moving(source, target) as (world, relays, client):
        number = client.session.session
        await world.client(V0_12_2, 0, client.session)
        relays.pass_on()
        await settle()
        assert sorted(clients_of(world, number)) == sorted([0, target])

        await sessions_of(world).log_out(number)
        await settle()

        assert clients_of(world, number) == []
        assert await refusal_of(client) in (None, StatusCode.UNAUTHENTICATED)


@MOVES
@pytest.mark.parametrize("waited", range(0, CHECKPOINTS, 2))
async def test_session_when_it_ends_at_any_step_of_the_arrival_then_it_has_ended_there(
    autojump_clock, source, target, waited
):
    async with moving(source, target) as (world, relays, client):
        number = client.session.session
        relays.pass_on()
        for _ in range(waited):
            await trio.lowlevel.checkpoint()

        # As one whose user is deactivated.
        sessions = sessions_of(world)
        sessions.table.revoke(0, lambda new: False)
        await settle()

        assert clients_of(world, number) == []
        assert len(sessions.table) == 0


@MOVES
async def test_connection_when_it_has_moved_then_its_session_counts_it_once(
    autojump_clock, source, target
):
    async with moving(source, target) as (world, relays, client):
        sessions = sessions_of(world)
        assert sessions.table.find(client.session.session).connections_count == 1
        relays.pass_on()
        await settle()
        assert clients_of(world, client.session.session) == [target]

        await client.aclose()
        await settle()

        session = sessions.table.find(client.session.session)
        assert session.connections_count == 0


@MOVES
@pytest.mark.parametrize("dialect", [Dialect.V0_11, V0_12_2], ids=lambda dialect: dialect.name)
async def test_connection_when_its_client_hangs_up_on_the_way_then_nothing_is_left(
    autojump_clock, source, target, dialect
):
    async with moving(source, target, dialect) as (world, relays, client):
        sessions = sessions_of(world)
        await client.aclose()
        relays.pass_on()
        await settle()

        assert clients_of(world, client.session.session) == []
        session = sessions.table.find(client.session.session)
        assert session is None if dialect is Dialect.V0_11 else session.connections_count == 0


@MOVES
async def test_requests_when_sent_while_the_connection_moves_then_each_is_answered_once(
    autojump_clock, source, target
):
    async with moving(source, target) as (world, relays, client):
        partition_id = partition_of(target)
        requests = [await client.send(GetMe()), await client.send(GetMe())]
        relays.pass_on()
        assert [(await client.answer(one)).user_id for one in requests] == [0, 0]

        route = await client.route("s", "t", partition_id)
        waiting = await client.send(poll_of(partition_id, start=MIGRATION_REQUESTS_MIN), route)
        await make_it_move(client, source)
        await settle()
        assert relays.pass_on() == 0, "a connection with a request that waits stays"

        await world.send(partition_id, b"woken")
        assert payloads(await client.answer(waiting)) == [b"woken"]
        await settle()
        assert relays.pass_on() == 1
        await settle()
        assert clients_of(world, client.session.session) == [source]
        assert world.waits_count() == 0


@MOVES
async def test_send_when_repeated_after_the_connection_moved_then_its_receipt_answers(
    autojump_clock, source, target
):
    async with moving(source, target) as (_, relays, client):
        partition_id = partition_of(target)
        relays.pass_on()
        route = await client.route("s", "t", partition_id)
        partitioning = Partitioning.partition(partition_id)
        command = SendMessages("s", "t", partitioning, [b"once"], random=bytes(15) + b"x")
        sent = await client.send(command, route)
        first = await client.answer(sent)
        await make_it_move(client, source)
        await settle()
        assert relays.pass_on() == 1

        await client.resend(sent)
        assert await client.answer(sent) == first

        poll = PollMessages(
            ConsumerIdentity.single(3),
            "s",
            "t",
            PollingStrategy.first(),
            100,
            partition_id=partition_id,
        )
        polled = await client.ask(poll, await client.route("s", "t", partition_id))
        assert payloads(polled).count(b"once") == 1

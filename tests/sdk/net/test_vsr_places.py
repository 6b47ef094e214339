"""Requests to servers from 0.9 on: in which order, to which partition, to which node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from iggy_protocol import (
    NO_CONTEXT,
    V0_11,
    V0_12_0,
    V0_12_2,
    BindSession,
    Command,
    CreateStream,
    GetClusterMetadata,
    GetPartitionRoute,
    GetStream,
    Partitioning,
    Register,
    SendConfirmation,
    SendMessages,
    StatusCode,
    partition_for_key,
)
from iggy_sdk.errors import (
    RequestTimeoutError,
)
from tests.sdk.net.clients import ONE, TWO, cluster
from tests.sdk.net.vsr_sessions import (
    ALL,
    LATER,
    ROUTE,
    Planned,
    poll,
    send,
    store,
    stream_named,
    vsr_client,
)
from tests.sdk.vsr_peer import VsrPeer, vsr_peers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iggy_sdk.client import IggyClient

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

S = StatusCode


# Order.


async def test_writes_of_0_9_when_one_is_repeated_then_all_others_wait_for_it():
    script = Planned(CreateStream, S.TRANSIENT_NOT_COMMITTED, S.TRANSIENT_NOT_COMMITTED)
    async with (
        vsr_client(script, vsr_peers(V0_11)) as (_, client),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(client.request, CreateStream("first"))
        await anyio.sleep(0.01)
        tasks.start_soon(client.request, CreateStream("second"))
        assert await client.get_stream("read") == stream_named("read")

    created = [said.name for said in script.all_heard() if isinstance(said, CreateStream)]
    assert created == ["first", "first", "first", "second"]


@LATER
async def test_sends_when_they_go_to_one_partition_then_one_is_on_its_way_at_a_time(dialect):
    most: dict[int, int] = {}

    async def answer_at_leisure(peer: VsrPeer) -> None:
        await peer.welcome()
        waiting: list[tuple[Any, int]] = []

        async def answer() -> None:
            while True:
                await anyio.sleep(1)
                for request, _ in waiting:
                    await peer.reply_to(request, (SendConfirmation(1, 1, 0, 7),))
                waiting.clear()

        async with anyio.create_task_group() as answering:
            answering.start_soon(answer)
            while True:
                command = await peer.hear()
                if isinstance(command, GetPartitionRoute):
                    await peer.reply(ROUTE)
                    continue
                if not isinstance(command, SendMessages):
                    await peer.answer(command)
                    continue
                partition_id = command.partitioning.partition_id
                assert partition_id is not None
                waiting.append((peer.detach(), partition_id))
                here = [one for _, one in waiting].count(partition_id)
                most[partition_id] = max(most.get(partition_id, 0), here)
                most[-1] = max(most.get(-1, 0), len(waiting))

    async with (
        vsr_client(answer_at_leisure, vsr_peers(dialect)) as (_, client),
        anyio.create_task_group() as tasks,
    ):
        for number in range(12):
            tasks.start_soon(client.request, send(number % 3))

    assert most == {0: 1, 1: 1, 2: 1, -1: 3}


@LATER
async def test_write_when_the_one_before_is_never_answered_then_it_times_out(dialect):
    async def swallow(peer: VsrPeer) -> None:
        await peer.welcome()
        await peer.hear()
        await anyio.sleep_forever()

    async with (
        vsr_client(swallow, vsr_peers(dialect)) as (_, client),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(expect_timeout, lambda: client.request(CreateStream("a"), timeout=9))
        await anyio.sleep(1)
        with pytest.raises(RequestTimeoutError, match="earlier write"):
            await client.request(CreateStream("b"), timeout=3)


async def expect_timeout(call: Callable[[], Awaitable[Any]]) -> None:
    with pytest.raises(RequestTimeoutError):
        await call()


# Partitions and their states.


@LATER
async def test_request_when_it_refers_to_a_partition_then_it_names_its_state(dialect):
    script = Planned(SendMessages)
    async with vsr_client(script, vsr_peers(dialect)) as (_, client):
        for command in (send(), poll(), store(), send()):
            await client.request(command)
        await client.get_stream("shop")

    assert script.count(GetPartitionRoute) == 1
    named = [said.context.incarnation for said in script.requests]
    assert named == [0, *[ROUTE.incarnation] * 4, 0]
    assert all(said.context.metadata_position > 0 for said in script.requests)


@LATER
async def test_route_when_the_client_has_changed_metadata_then_it_is_asked_again(dialect):
    script = Planned(SendMessages)
    async with vsr_client(script, vsr_peers(dialect)) as (_, client):
        await client.request(send())
        await client.create_stream("other")
        await client.request(send())
        await client.request(send())
    assert script.count(GetPartitionRoute) == 2


@LATER
async def test_batch_when_no_partition_is_named_then_the_client_takes_them_in_turn(dialect):
    script = Planned(SendMessages)
    async with vsr_client(script, vsr_peers(dialect)) as (_, client):
        for _ in range(6):
            await client.request(send(None))

    chosen = script.partitions()
    assert sorted(chosen) == [0, 0, 1, 1, 2, 2]
    assert chosen[:3] == chosen[3:]


@LATER
async def test_batch_when_it_has_a_key_then_the_client_hashes_it(dialect):
    script = Planned(SendMessages)
    async with vsr_client(script, vsr_peers(dialect)) as (_, client):
        for key in (b"ada", b"ada", b"grace"):
            await client.request(SendMessages("shop", "orders", Partitioning.key(key), [b"x"]))

    chosen = script.partitions()
    assert chosen == [partition_for_key(key, 3) for key in (b"ada", b"ada", b"grace")]


async def test_request_of_0_9_when_it_refers_to_a_partition_then_it_names_no_state():
    script = Planned(SendMessages)
    async with vsr_client(script, vsr_peers(V0_11)) as (_, client):
        await client.request(send())
    assert script.count(GetPartitionRoute) == 0
    assert script.requests[-1].context == NO_CONTEXT


@ALL
async def test_messages_when_they_have_no_id_then_the_client_gives_them_one(dialect):
    script = Planned(SendMessages)
    async with vsr_client(script, vsr_peers(dialect)) as (_, client):
        await client.request(
            SendMessages("shop", "orders", Partitioning.partition(0), [b"a", b"b"])
        )

    sent = next(said for said in script.all_heard() if isinstance(said, SendMessages))
    ids = [message.id for message in sent.messages]  # type: ignore[union-attr]
    assert 0 not in ids
    assert len(set(ids)) == 2


# The roster.


@ALL
async def test_write_when_another_node_leads_then_the_client_moves_there(dialect):
    class Cluster(Planned):
        async def __call__(self, peer: VsrPeer) -> None:
            if peer.endpoint == TWO:
                peer.peers.roster = cluster(TWO, ONE)
            await super().__call__(peer)

        async def answer(self, peer: VsrPeer, command: Command[Any]) -> None:
            if isinstance(command, CreateStream) and peer.endpoint == ONE:
                peer.peers.roster = cluster(TWO, ONE)
                await peer.reply(S.TRANSIENT_NOT_ACCEPTED)
            else:
                await super().answer(peer, command)

    script = Cluster(CreateStream)
    peers = vsr_peers(dialect)
    peers.roster = cluster(ONE, TWO)
    async with vsr_client(script, peers) as (server, client):
        await client.create_stream("shop")
        assert client.endpoint == TWO

    assert list(dict.fromkeys(server.dialled)) == [ONE, TWO]
    later = BindSession if dialect in (V0_12_0, V0_12_2) else Register
    assert [type(login) for login in peers.logins] == [Register, later]
    assert script.count(GetClusterMetadata) == 1


@LATER
async def test_client_when_it_logs_out_then_the_next_session_has_another_id(dialect):
    script = Planned(GetStream)
    peers = vsr_peers(dialect)
    async with vsr_client(script, peers) as (_, client):
        await client.get_stream("one")
        await client.login_user("ada", "secret")
        await client.get_stream("two")
    heard = [said.client for said in script.requests if said.number]
    assert heard[0] != heard[-1]
    numbers = [said.number for said in script.requests]
    assert numbers == sorted(numbers)


async def heartbeat_of(client: IggyClient) -> None:
    await anyio.sleep(client.options.heartbeat_interval)


@LATER
async def test_connection_when_a_heartbeat_is_not_answered_then_it_is_replaced(dialect):
    class Deaf(Planned):
        async def answer(self, peer: VsrPeer, command: Command[Any]) -> None:
            if len(self.heard) == 1:
                peer.drop(peer.detach())
            else:
                await super().answer(peer, command)

    peers = vsr_peers(dialect)
    async with vsr_client(Deaf(GetStream), peers, heartbeat_interval=5.0, request_timeout=7.0) as (
        _,
        client,
    ):
        await anyio.sleep(13)
        assert await client.get_stream("shop") == stream_named("shop")
    assert [type(login) for login in peers.logins] == [Register, BindSession]

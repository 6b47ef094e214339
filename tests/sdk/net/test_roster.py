"""Clusters of several nodes: failover, and partitions whose primary is another node."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from iggy_protocol import (
    V0_12_2,
    BindSession,
    ClusterMetadata,
    Command,
    CreateStream,
    Dialect,
    GetPartitionRoute,
    LogoutUser,
    Register,
    SendConfirmation,
    SendMessages,
    StatusCode,
)
from iggy_sdk.connection_string import Endpoint
from iggy_sdk.errors import ConnectionFailedError
from iggy_sdk.options import Reconnect
from tests.sdk.net.clients import ONE, THREE, TWO, cluster
from tests.sdk.net.vsr_sessions import ALL, LATER, ROUTE, VsrRecorder, send, vsr_client
from tests.sdk.vsr_peer import VsrPeer, vsr_peers

if TYPE_CHECKING:
    from tests.sdk.scripted_peer import ScriptedServer
    from tests.sdk.vsr_peer import VsrPeers

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

REPLICAS = {ONE: 1, TWO: 2, THREE: 3}


def nodes(leader: Endpoint, *others: Endpoint) -> ClusterMetadata:
    """Return a roster whose nodes have ids."""
    told = cluster(leader, *others)
    numbered = [
        replace(node, replica_id=REPLICAS[Endpoint(node.ip, node.tcp_port)]) for node in told.nodes
    ]
    return replace(told, nodes=tuple(numbered))


class Nodes(VsrRecorder):
    """All nodes of a cluster.

    Attributes:
        places: what each node was asked, in order.
        primaries: the primary of the partition that is told, one after the other.
        refusals: what a node answers to its next sends.
        goodbyes: the nodes that were told of a logout.
        open: the node of each connection there is.
    """

    def __init__(self, *primaries: Endpoint) -> None:
        super().__init__()
        self.places: list[tuple[Endpoint, Command[Any]]] = []
        self.primaries = list(primaries)
        self.refusals: dict[Endpoint, list[StatusCode]] = {}
        self.goodbyes: list[Endpoint] = []
        self.open: list[Endpoint] = []

    async def __call__(self, peer: VsrPeer) -> None:
        self.open.append(peer.endpoint)
        try:
            while True:
                command = await peer.hear()
                if isinstance(command, LogoutUser):
                    self.goodbyes.append(peer.endpoint)
                await self.answer(peer, command)
        finally:
            self.open.remove(peer.endpoint)

    async def answer(self, peer: VsrPeer, command: Command[Any]) -> None:
        if isinstance(command, GetPartitionRoute):
            primary = self.primaries.pop(0) if len(self.primaries) > 1 else self.primaries[0]
            await peer.reply(replace(ROUTE, primary_replica_id=REPLICAS[primary]))
            return
        if isinstance(command, SendMessages | CreateStream):
            self.places.append((peer.endpoint, command))
        refusals = self.refusals.get(peer.endpoint, [])
        if isinstance(command, SendMessages) and refusals:
            await peer.reply(refusals.pop(0))
        elif isinstance(command, SendMessages):
            await peer.reply((SendConfirmation(1, 1, 0, 7),))
        else:
            await super().answer(peer, command)

    def sends(self) -> list[Endpoint]:
        return [place for place, command in self.places if isinstance(command, SendMessages)]


def clustered(dialect: Dialect, leader: Endpoint, *others: Endpoint) -> VsrPeers:
    peers = vsr_peers(dialect)
    peers.roster = nodes(leader, *others)
    return peers


def lose(server: ScriptedServer, endpoint: Endpoint) -> None:
    """End a node with all its connections."""
    server.dead.add(endpoint)
    for peer in server.peers:
        if peer.endpoint == endpoint:
            peer.wire.abort()


# Failover.


@ALL
async def test_node_when_it_is_lost_then_the_client_goes_on_at_another_one(dialect):
    peers = clustered(dialect, ONE, TWO, THREE)
    async with vsr_client(Nodes(ONE), peers) as (server, client):
        lose(server, ONE)
        lose(server, TWO)
        peers.roster = nodes(THREE, ONE, TWO)
        await client.ping()
        assert client.endpoint == THREE

    later = BindSession if dialect.binds_sessions else Register
    assert [type(login) for login in peers.logins] == [Register, later]


async def test_node_when_it_does_not_accept_then_the_next_is_tried_after_two_seconds():
    peers = clustered(V0_12_2, ONE, TWO)
    async with vsr_client(Nodes(ONE), peers) as (server, client):
        lose(server, ONE)
        server.dead.discard(ONE)
        server.silent.add(ONE)
        peers.roster = nodes(TWO, ONE)
        begun_at = anyio.current_time()
        await client.ping()
        assert client.endpoint == TWO
        assert anyio.current_time() - begun_at == pytest.approx(2.0, abs=0.5)


async def test_roster_when_it_has_one_node_then_its_address_is_not_used():
    peers = clustered(V0_12_2, TWO)
    async with vsr_client(Nodes(ONE), peers, reconnect=Reconnect(retries=0)) as (server, client):
        lose(server, ONE)
        with pytest.raises(ConnectionFailedError):
            await client.ping()
    assert set(server.dialled) == {ONE}


# Partitions.


@LATER
async def test_send_when_the_primary_is_another_node_then_it_goes_there_in_the_same_session(
    dialect,
):
    script = Nodes(TWO)
    peers = clustered(dialect, ONE, TWO)
    async with vsr_client(script, peers) as (server, client):
        await client.request(send())
        await client.request(CreateStream("shop"))
        await client.request(send())
        assert client.endpoint == ONE
        assert server.dialled.count(TWO) == 1

    register, bind = peers.logins
    assert isinstance(bind, BindSession)
    assert isinstance(register, Register)
    assert [place for place, _ in script.places] == [TWO, ONE, TWO]
    assert script.goodbyes == [ONE]


@LATER
@pytest.mark.parametrize("status", [StatusCode.NOT_PRIMARY, StatusCode.TRANSIENT_NOT_ACCEPTED])
async def test_send_when_the_primary_has_moved_then_it_follows(dialect, status):
    script = Nodes(ONE, TWO)
    script.refusals[ONE] = [status]
    async with vsr_client(script, clustered(dialect, ONE, TWO)) as (_, client):
        await client.request(send())

    assert script.sends() == [ONE, TWO]


async def test_send_when_the_node_cannot_be_reached_then_the_leader_says_what_to_do():
    script = Nodes(TWO, TWO, ONE)
    script.refusals[ONE] = [StatusCode.NOT_PRIMARY]
    async with vsr_client(script, clustered(V0_12_2, ONE, TWO)) as (server, client):
        server.dead.add(TWO)
        await client.request(send())

    assert set(script.sends()) == {ONE}


async def test_send_when_the_node_is_lost_then_the_same_bytes_go_over_another_connection():
    script = Nodes(TWO)
    async with vsr_client(script, clustered(V0_12_2, ONE, TWO)) as (server, client):
        await client.request(send())
        lose(server, TWO)
        server.dead.clear()
        await client.request(send())

    assert script.sends() == [TWO, TWO]


async def test_session_when_the_servers_have_forgotten_it_then_the_next_is_bound_to_the_node():
    script = Nodes(TWO)
    peers = clustered(V0_12_2, ONE, TWO)
    async with vsr_client(script, peers) as (server, client):
        await client.request(send())
        peers.forget_sessions()
        server.peers[0].wire.abort()
        await client.ping()
        await client.request(send())
        assert server.dialled.count(TWO) == 2

    assert script.sends() == [TWO, TWO]
    assert script.goodbyes == [ONE]


async def test_login_when_it_changes_then_no_connection_to_a_node_is_left():
    script = Nodes(TWO)
    peers = clustered(V0_12_2, ONE, TWO)
    async with vsr_client(script, peers) as (server, client):
        await client.request(send())
        assert sorted(script.open, key=str) == [ONE, TWO]
        await client.logout_user()
        await anyio.sleep(0.01)
        assert script.open == [ONE]
        await client.login_user("alice", "password")
        await client.request(send())
        assert server.dialled.count(TWO) == 2

    assert [type(login) for login in peers.logins] == [
        *(Register, BindSession),
        *(Register, BindSession),
    ]

"""A client goes to the leader of its cluster, and stays where it can work."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from iggy_protocol import (
    Command,
    GetClusterMetadata,
    Identity,
    LoginUser,
)
from iggy_sdk.connection_string import Endpoint
from tests.sdk.net.clients import ONE, THREE, TWO, Recorder, client_of, cluster
from tests.sdk.scripted_peer import (
    MANNERS,
    Peer,
    scripted_server,
)

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


class Cluster(Recorder):
    """Every node knows the same leader, who may change."""

    def __init__(self, leader: Endpoint, *others: Endpoint) -> None:
        super().__init__()
        self.metadata: object = cluster(leader, *others)

    async def answer(self, peer: Peer, command: Command[Any], connection: int) -> None:
        is_question = isinstance(command, GetClusterMetadata)
        await peer.reply(self.metadata if is_question else MANNERS[type(command)])


async def test_leader_when_it_is_another_node_then_the_client_goes_there():
    script = Cluster(TWO, ONE)
    async with scripted_server(script) as server, client_of(server) as client:
        await client.ping()
        assert client.endpoint == TWO
        assert client.epoch == 1
        assert client.statistics().redirects == 1

    assert server.dialled == [ONE, TWO]
    assert script.kinds()[1] == ["LoginUser", "GetClusterMetadata", "Ping"]


async def test_leader_when_it_is_this_node_by_another_name_then_the_client_stays():
    here = Endpoint("localhost", 8090)
    script = Cluster(Endpoint("127.0.0.1", 8090), ONE)
    async with scripted_server(script) as server, client_of(server, endpoints=(here,)):
        pass

    assert server.dialled == [here]


async def test_leader_when_it_cannot_be_reached_then_the_client_stays():
    script = Cluster(TWO, ONE)
    async with scripted_server(script) as server:
        server.dead.add(TWO)
        async with client_of(server) as client:
            await client.ping()
            assert client.endpoint == ONE


async def test_leader_when_nodes_disagree_for_ever_then_the_client_stays_after_three():
    class Quarrel(Recorder):
        async def answer(self, peer: Peer, command: Command[Any], connection: int) -> None:
            if isinstance(command, GetClusterMetadata):
                other = TWO if peer.endpoint == ONE else ONE
                await peer.reply(cluster(other, peer.endpoint))
            else:
                await peer.answer(command)

    async with scripted_server(Quarrel()) as server, client_of(server) as client:
        await client.ping()

    assert server.dialled == [ONE, TWO, ONE, TWO]


async def test_leader_when_it_dies_then_the_client_asks_the_configured_node_for_the_next():
    script = Cluster(TWO, ONE, THREE)
    async with scripted_server(script) as server, client_of(server) as client:
        await anyio.sleep(10)
        server.dead.add(TWO)
        script.metadata = cluster(THREE, ONE, TWO)
        server.peers[1].wire.abort()
        await client.ping()
        assert client.endpoint == THREE

    assert server.dialled == [ONE, TWO, TWO, ONE, THREE]


async def test_leader_when_the_login_was_done_by_hand_then_the_client_goes_there_too():
    script = Cluster(TWO, ONE)
    async with scripted_server(script) as server, client_of(server, credentials=None) as client:
        assert await client.login_user("alice", "secret") == Identity(user_id=1)
        await client.ping()
        assert client.endpoint == TWO

    assert script.heard[1][0] == LoginUser("alice", "secret")

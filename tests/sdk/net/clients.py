"""Clients on a wire in memory, and servers that remember what they were asked."""

from __future__ import annotations

from typing import Any

from iggy_protocol import (
    ClusterMetadata,
    ClusterNode,
    Command,
    NodeRole,
    NodeStatus,
    Partitioning,
    SendMessages,
)
from iggy_sdk.client import IggyClient
from iggy_sdk.connection_string import Endpoint
from tests.sdk.scripted_peer import (
    Peer,
    ScriptedServer,
    options,
)

ONE, TWO, THREE = (Endpoint(f"{name}.example", 8090) for name in ("one", "two", "three"))


def client_of(server: ScriptedServer, **changes: Any) -> IggyClient:
    return IggyClient.from_options(options(**changes), dial=server.dial)


def send() -> SendMessages:
    return SendMessages("shop", "orders", Partitioning.partition(0), [b"payload"])


def cluster(leader: Endpoint, *others: Endpoint) -> ClusterMetadata:
    def node(endpoint: Endpoint, role: NodeRole) -> ClusterNode:
        return ClusterNode(
            endpoint.host, endpoint.host, endpoint.port, 1, 2, 3, role, NodeStatus.HEALTHY
        )

    followers = (node(other, NodeRole.FOLLOWER) for other in others)
    return ClusterMetadata("cluster", (*followers, node(leader, NodeRole.LEADER)))


class Recorder:
    """A script that remembers what was asked, on which connection, and answers politely."""

    def __init__(self) -> None:
        self.heard: list[list[Any]] = []

    async def __call__(self, peer: Peer) -> None:
        heard: list[Any] = []
        self.heard.append(heard)
        while True:
            command = await peer.hear()
            heard.append(command)
            await self.answer(peer, command, len(self.heard))

    async def answer(self, peer: Peer, command: Command[Any], connection: int) -> None:
        await peer.answer(command)

    def kinds(self) -> list[list[str]]:
        return [[type(command).__name__ for command in heard] for heard in self.heard]


class HangsUpOn(Recorder):
    """Hears a certain command on the first connections and closes instead of answering."""

    def __init__(self, kind: type[Command[Any]], *, times: int = 1) -> None:
        super().__init__()
        self.kind, self.times = kind, times

    async def answer(self, peer: Peer, command: Command[Any], connection: int) -> None:
        if isinstance(command, self.kind) and connection <= self.times:
            peer.wire.abort()
        else:
            await peer.answer(command)

"""One session with a scripted server from 0.9 on, and clients of such servers."""

from __future__ import annotations

from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from iggy_protocol import (
    V0_11,
    V0_12_0,
    V0_12_2,
    Command,
    ConsumerIdentity,
    CreateStream,
    Dialect,
    EvictionReason,
    GetPartitionRoute,
    GetStream,
    GetTopic,
    LoginUser,
    LogoutUser,
    MessageBatch,
    Partitioning,
    PartitionRoute,
    PolledMessages,
    PollingStrategy,
    PollMessages,
    SendConfirmation,
    SendMessages,
    StatusCode,
    StoreConsumerOffset,
    Stream,
    StreamDetails,
    VsrClientSession,
)
from iggy_sdk.connection_string import ServerProtocol
from iggy_sdk.session.opening import SDK_NAME, SDK_VERSION, begin_session
from iggy_sdk.session.vsr_stream import VsrStreamSession
from tests.sdk.memory_transport import CAPACITY_BYTES
from tests.sdk.net.clients import client_of
from tests.sdk.net.sessions import ENDPOINT, TIMEOUT
from tests.sdk.scripted_peer import Script, options, polite, scripted_server
from tests.sdk.vsr_peer import VsrPeer, VsrPeers, vsr_peers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from iggy_sdk.client import IggyClient
    from tests.sdk.scripted_peer import ScriptedServer

ALL = pytest.mark.parametrize("dialect", [V0_11, V0_12_0, V0_12_2], ids=str)
LATER = pytest.mark.parametrize("dialect", [V0_12_0, V0_12_2], ids=str)
LOGIN = LoginUser("iggy", "secret")


def random_bytes(count: int) -> bytes:
    """Return bytes that are the same in every run."""
    return bytes(range(1, count + 1))


@asynccontextmanager
async def open_vsr_session(
    script: Script = polite,
    dialect: Dialect = V0_12_2,
    *,
    watched: bool = True,
    capacity_bytes: int = CAPACITY_BYTES,
    **changes: Any,
) -> AsyncIterator[VsrStreamSession]:
    """Connect a session to a script and log in; the script sees what comes after that."""

    async def after_login(peer: VsrPeer) -> None:
        await peer.answer(await peer.hear())
        await script(peer)

    async with scripted_server(
        after_login, capacity_bytes=capacity_bytes, peers=vsr_peers(dialect)
    ) as server:
        changed = options(**changes)
        transport = await server.dial(ENDPOINT, changed)
        identity = VsrClientSession(
            dialect, random_bytes, sdk_name=SDK_NAME, sdk_version=SDK_VERSION
        )
        session = VsrStreamSession(transport, changed, identity)
        deadline = anyio.current_time() + TIMEOUT
        await begin_session(session, LOGIN, deadline=deadline)
        async with anyio.create_task_group() as tasks:
            if watched:
                tasks.start_soon(session.run)
            yield session
            await session.aclose()
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def vsr_client(
    script: Script, peers: VsrPeers, **changes: Any
) -> AsyncIterator[tuple[ScriptedServer, IggyClient]]:
    """Run a server of these dialects, and a client of it that has logged in."""
    async with (
        scripted_server(script, peers=peers) as server,
        client_of(server, protocol=ServerProtocol.AUTO, **changes) as client,
    ):
        yield server, client


ROUTE = PartitionRoute(
    incarnation=1_001, metadata_position=0, view=0, partitions_count=3, primary_replica_id=0
)


def stream_named(name: str) -> StreamDetails:
    """Return an empty stream."""
    return StreamDetails(1, 0, 0, 0, 0, name)


class VsrRecorder:
    """A script that remembers what was asked, and answers politely.

    Attributes:
        heard: the commands of each connection between its login and its logout.
        requests: their numbers, contexts and identifiers, in the same order.
    """

    def __init__(self) -> None:
        self.heard: list[list[Command[Any]]] = []
        self.requests: list[Any] = []

    async def __call__(self, peer: VsrPeer) -> None:
        await peer.welcome()
        heard: list[Command[Any]] = []
        self.heard.append(heard)
        while True:
            command = await peer.hear()
            if isinstance(command, LogoutUser):
                await peer.answer(command)
                continue
            heard.append(command)
            self.requests.append(peer.request_id)
            await self.answer(peer, command)

    async def answer(self, peer: VsrPeer, command: Command[Any]) -> None:
        """Answer one request; the name of a stream is the answer to a question for it."""
        if isinstance(command, GetStream):
            await peer.reply(stream_named(str(command.stream)))
        elif isinstance(command, CreateStream):
            await peer.reply(Stream(1, 0, 0, 0, 0, command.name))
        elif isinstance(command, GetPartitionRoute):
            await peer.reply(ROUTE)
        elif isinstance(command, GetTopic):
            await peer.reply(None)
        else:
            await peer.answer(command)

    def all_heard(self) -> list[Command[Any]]:
        """List the commands of all connections."""
        return [command for heard in self.heard for command in heard]

    def count(self, kind: type[Command[Any]]) -> int:
        """Count the commands of a kind."""
        return sum(isinstance(command, kind) for command in self.all_heard())


CONSUMER = ConsumerIdentity.single(7)


def send(partition_id: int | None = 0) -> SendMessages:
    where = (
        Partitioning.balanced() if partition_id is None else Partitioning.partition(partition_id)
    )
    return SendMessages("shop", "orders", where, [b"payload"])


def store() -> StoreConsumerOffset:
    return StoreConsumerOffset(CONSUMER, "shop", "orders", 5, 0)


def poll(*, auto_commit: bool = False) -> PollMessages:
    return PollMessages(
        CONSUMER, "shop", "orders", PollingStrategy.next(), 10, 0, auto_commit=auto_commit
    )


class Planned(VsrRecorder):
    """Answers commands of one kind as planned, and all others politely.

    A step is a status, ``"hang up"``, ``"lose"`` (carry out and hang up), ``"forget"`` (also forget
    the session), a reason of an eviction, ``"unmarked"`` (succeed without saying that it is final),
    or None for politeness.
    """

    def __init__(self, kind: type[Command[Any]], *steps: Any) -> None:
        super().__init__()
        self.kind = kind
        self.steps = deque(steps)

    async def answer(self, peer: VsrPeer, command: Command[Any]) -> None:
        step = self.steps.popleft() if self.steps and isinstance(command, self.kind) else None
        if isinstance(step, EvictionReason):
            await peer.evict(step)
            await anyio.sleep_forever()
        if isinstance(step, StatusCode):
            await peer.reply(step)
        elif step in ("hang up", "forget"):
            if step == "forget":
                peer.peers.forget_sessions()
            peer.wire.abort()
        elif step == "unmarked":
            await peer.reply((SendConfirmation(1, 1, 0, 7),), position=0)
        elif isinstance(command, PollMessages):
            await peer.reply(PolledMessages(0, 0, 0, MessageBatch(b"")))
        elif isinstance(command, StoreConsumerOffset):
            await peer.reply(None)
        else:
            await super().answer(peer, command)

    def partitions(self) -> list[int]:
        """List the partition of each batch."""
        batches = [said for said in self.all_heard() if isinstance(said, SendMessages)]
        chosen = [batch.partitioning.partition_id for batch in batches]
        return [partition_id for partition_id in chosen if partition_id is not None]

    def identities(self, kind: type[Command[Any]] | None = None) -> list[tuple[int, bytes]]:
        """List number and identifier of each request of a kind."""
        wanted = self.kind if kind is None else kind
        pairs = zip(self.all_heard(), self.requests, strict=True)
        return [
            (said.number, said.identifier) for heard, said in pairs if isinstance(heard, wanted)
        ]

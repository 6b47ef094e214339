"""Servers that do as they are told, at the other end of a wire in memory.

    async with scripted_server(polite) as server:
        client = IggyClient.from_options(OPTIONS, dial=server.dial)

A script is a coroutine function that is given one ``Peer`` for each connection; the connection
ends with it. ``polite`` answers whatever a client asks around its own requests.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
from anyio.lowlevel import checkpoint

from iggy_protocol import (
    NEED_DATA,
    Command,
    ConnectionClosed,
    ForeignRequestReceived,
    GetClusterMetadata,
    GetStream,
    Identity,
    LoginUser,
    LoginWithPersonalAccessToken,
    LogoutUser,
    Ping,
    RequestReceived,
    SendMessages,
    ServerConnection,
    StatusCode,
    decode_request,
)
from iggy_sdk.connection_string import Endpoint, PasswordLogin, ServerProtocol
from iggy_sdk.errors import ConnectionFailedError
from iggy_sdk.options import ClientOptions, Reconnect
from tests.sdk.memory_transport import CAPACITY_BYTES, MemoryTransport, memory_pair

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from iggy_sdk.transport import StreamTransport

OPTIONS = ClientOptions(
    endpoints=(Endpoint("one.example", 8090),),
    protocol=ServerProtocol.V0_8,
    credentials=PasswordLogin("iggy", "secret"),
    heartbeat_interval=0.0,
    reconnect=Reconnect(jitter=0.0),
)

# What a server says to the commands that are part of most conversations.
MANNERS: Mapping[type[Command[Any]], object] = {
    LoginUser: Identity(user_id=1),
    LoginWithPersonalAccessToken: Identity(user_id=1),
    LogoutUser: None,
    Ping: None,
    SendMessages: None,
    GetStream: None,
    GetClusterMetadata: StatusCode.FEATURE_UNAVAILABLE,
}


class PeerGone(Exception):
    """The client has closed the connection; the script is over."""


class Peer:
    """The server's end of one connection."""

    def __init__(
        self,
        wire: StreamTransport,
        endpoint: Endpoint,
        connection: ServerConnection | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.wire = wire
        self._connection = ServerConnection() if connection is None else connection

    async def hear(self) -> Any:
        """Return the next command; raises PeerGone when there are no more."""
        while True:
            event = self._connection.next_event()
            if isinstance(event, RequestReceived):
                return decode_request(event.code, event.payload)
            if isinstance(event, ConnectionClosed):
                raise PeerGone
            if isinstance(event, ForeignRequestReceived):
                # The client asks which protocol is spoken here; every other one is refused.
                await self.write(event.refusal)
                continue
            assert event is NEED_DATA
            try:
                count = await self.wire.receive_into(self._connection.get_buffer())
            except OSError as error:
                raise PeerGone from error
            self._connection.buffer_updated(count)

    async def reply(self, value: object) -> None:
        """Answer the oldest request: a status refuses it, anything else is its reply."""
        if isinstance(value, StatusCode):
            await self.write(*self._connection.send_error(value))
        else:
            await self.write(*self._connection.send(value))

    async def push(self, status: int) -> None:
        """Say something that nobody asked for."""
        await self.write(*self._connection.push_error(status))

    async def write(self, *data: Any) -> None:
        """Write bytes, whatever they mean."""
        try:
            await self.wire.send(list(data))
        except OSError as error:
            raise PeerGone from error

    async def answer(self, command: Command[Any]) -> None:
        """Answer one request with good manners."""
        await self.reply(MANNERS[type(command)])

    async def serve(self) -> None:
        """Answer everything with good manners until the client goes."""
        while True:
            await self.answer(await self.hear())

    async def welcome(self) -> None:
        """Answer what a client asks before it is ready: login and leader."""
        await self.answer(await self.hear())
        await self.answer(await self.hear())


Script = Callable[[Any], Awaitable[None]]
PeerFactory = Callable[["StreamTransport", Endpoint], Any]


async def polite(peer: Any) -> None:
    """Serve as a good server does."""
    await peer.serve()


class ScriptedServer:
    """All servers of one test.

    Attributes:
        dialled: where was dialled to, in order.
        dead: endpoints that refuse connections.
        silent: endpoints that do not answer at all.
    """

    def __init__(
        self, script: Script, tasks: TaskGroup, capacity_bytes: int, peers: PeerFactory
    ) -> None:
        self.script = script
        self._new_peer = peers
        self.dialled: list[Endpoint] = []
        self.dead: set[Endpoint] = set()
        self.silent: set[Endpoint] = set()
        self.peers: list[Any] = []
        self._tasks = tasks
        self._capacity_bytes = capacity_bytes

    async def dial(self, endpoint: Endpoint, options: ClientOptions) -> MemoryTransport:
        """Connect a client, as ``open_transport`` does."""
        self.dialled.append(endpoint)
        await checkpoint()
        if endpoint in self.silent:
            await anyio.sleep_forever()
        if endpoint in self.dead:
            raise ConnectionFailedError(f"cannot connect to {endpoint.host}: refused")
        near, far = memory_pair(peer=endpoint.host, capacity_bytes=self._capacity_bytes)
        peer = self._new_peer(far, endpoint)
        self.peers.append(peer)
        self._tasks.start_soon(self._attend, peer)
        return near

    def replace(self, script: Script, peers: PeerFactory) -> None:
        """Take the place of the server with another one; its connections end."""
        self.script, self._new_peer = script, peers
        for peer in self.peers:
            peer.wire.abort()

    async def _attend(self, peer: Any) -> None:
        try:
            await self.script(peer)
        except* PeerGone:
            pass
        finally:
            peer.wire.abort()


@asynccontextmanager
async def scripted_server(
    script: Script = polite,
    *,
    capacity_bytes: int = CAPACITY_BYTES,
    peers: PeerFactory = Peer,
) -> AsyncIterator[ScriptedServer]:
    """Run servers as long as the block lasts; ``peers`` makes their ends of connections."""
    async with anyio.create_task_group() as tasks:
        yield ScriptedServer(script, tasks, capacity_bytes, peers)
        tasks.cancel_scope.cancel()


def options(**changes: Any) -> ClientOptions:
    """Return the options of a test, with changes."""
    return replace(OPTIONS, **changes)

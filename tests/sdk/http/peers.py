"""HTTP servers that do as they are told, at the other end of a wire in memory.

    async with http_server(script) as server:
        conversation = await server.open()

A script is a coroutine function that is given one ``HttpPeer`` for each connection; the connection
ends with it. ``polite`` answers as an Iggy server does, as far as that goes without one.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

import anyio
import h11
from anyio.lowlevel import checkpoint

from iggy_sdk.client import IggyClient
from iggy_sdk.connection_string import Endpoint
from iggy_sdk.errors import ConnectionFailedError
from iggy_sdk.session.http import HttpSession
from tests.sdk.memory_transport import MemoryTransport, memory_pair
from tests.sdk.scripted_peer import options

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from iggy_sdk.options import ClientOptions

ENDPOINT = Endpoint("one.example", 3000)
NOW_S = 1_700_000_000
NO_STREAM = {"id": 404, "code": "not_found", "reason": "Resource not found", "field": None}


class PeerGone(Exception):
    """The client has closed the connection; the script is over."""


@dataclass(frozen=True)
class Heard:
    """A request as a server gets it."""

    line: str
    headers: dict[bytes, bytes]
    body: bytes

    @property
    def token(self) -> str:
        """The access token, or nothing."""
        return self.headers.get(b"authorization", b"").decode().removeprefix("Bearer ")

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.body)


class HttpPeer:
    """The server's end of one connection."""

    def __init__(self, wire: MemoryTransport, server: HttpServer) -> None:
        self.wire = wire
        self.server = server
        self._http = h11.Connection(h11.SERVER)
        self._space = memoryview(bytearray(65_536))

    async def hear(self) -> Heard:
        """Return the next request; raises PeerGone when there are no more."""
        if self._http.our_state is h11.DONE:
            self._http.start_next_cycle()
        line, headers, body = "", {}, b""
        while True:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as error:
                raise PeerGone from error  # A request was given up on the way.
            if event is h11.NEED_DATA:
                try:
                    count = await self.wire.receive_into(self._space)
                except OSError as error:
                    raise PeerGone from error
                self._http.receive_data(bytes(self._space[:count]))
            elif isinstance(event, h11.Request):
                line = f"{event.method.decode()} {event.target.decode()}"
                headers = dict(event.headers)
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                heard = Heard(line, headers, body)
                self.server.heard.append(heard)
                return heard
            else:
                raise PeerGone

    async def reply(
        self, status: int, body: object = b"", *, headers: dict[str, str] | None = None
    ) -> None:
        """Answer the request; what is not bytes is written as JSON."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        fields = {"content-length": str(len(content)), **(headers or {})}
        data = self._http.send(h11.Response(status_code=status, headers=list(fields.items())))
        data += self._http.send(h11.Data(data=content))
        data += self._http.send(h11.EndOfMessage()) or b""
        await self.write(data)

    async def write(self, data: bytes) -> None:
        """Write bytes, whatever they mean."""
        try:
            await self.wire.send([data])
        except OSError as error:
            raise PeerGone from error

    async def answer(self, heard: Heard) -> None:
        """Answer one request as a good server does."""
        if heard.line == "GET /ping":
            await self.reply(200, b"pong")
        elif heard.line in ("POST /users/login", "POST /personal-access-tokens/login"):
            await self.give_token()
        elif heard.line == "DELETE /users/logout":
            await self.reply(204)
        elif heard.line.endswith("/messages") and heard.line.startswith("POST"):
            await self.reply(201)
        elif heard.line == "GET /streams":
            await self.reply(200, [])
        else:
            await self.reply(404, NO_STREAM)

    async def give_token(self, *, life_s: int = 3600, date: bool = True) -> None:
        """Answer a login or a refresh with a token that nobody had before."""
        self.server.tokens_count += 1
        now_s = NOW_S + int(anyio.current_time())
        token = {"token": f"token-{self.server.tokens_count}", "expiry": now_s + life_s}
        headers = {"date": formatdate(now_s, usegmt=True)} if date else {}
        await self.reply(200, {"user_id": 1, "access_token": token}, headers=headers)


Script = Callable[[HttpPeer], Awaitable[None]]


async def polite(peer: HttpPeer) -> None:
    """Serve as a good server does."""
    while True:
        await peer.answer(await peer.hear())


class HttpServer:
    """All servers of one test.

    Attributes:
        heard: all requests, in order.
        tokens_count: how many tokens were given out.
        dials_count: how many connections were opened.
        is_dead: whether connections are refused.
    """

    def __init__(self, script: Script, tasks: TaskGroup, capacity_bytes: int) -> None:
        self.script = script
        self.heard: list[Heard] = []
        self.tokens_count = 0
        self.dials_count = 0
        self.is_dead = False
        self.peers: list[HttpPeer] = []
        self._tasks = tasks
        self._capacity_bytes = capacity_bytes

    @property
    def lines(self) -> list[str]:
        """What was asked, pings left out."""
        return [heard.line for heard in self.heard if heard.line != "GET /ping"]

    async def dial(self, endpoint: Endpoint, options: ClientOptions) -> MemoryTransport:
        """Connect a client, as ``open_transport`` does."""
        assert options.transport == "tcp"
        self.dials_count += 1
        await checkpoint()
        if self.is_dead:
            raise ConnectionFailedError(f"cannot connect to {endpoint}: refused")
        near, far = memory_pair(peer=str(endpoint), capacity_bytes=self._capacity_bytes)
        peer = HttpPeer(far, self)
        self.peers.append(peer)
        self._tasks.start_soon(self._attend, peer)
        return near

    async def _attend(self, peer: HttpPeer) -> None:
        try:
            await self.script(peer)
        except PeerGone:
            return
        finally:
            peer.wire.abort()

    async def open(self, **changes: Any) -> HttpSession:
        """Open a conversation without a client around it."""
        return await HttpSession.open(ENDPOINT, http_options(**changes), dial=self.dial)

    def client(self, **changes: Any) -> IggyClient:
        """Make a client of this server."""
        return IggyClient.from_options(http_options(**changes), dial=self.dial)


def http_options(**changes: Any) -> ClientOptions:
    """Return the options of a test, with changes."""
    return options(**{"endpoints": (ENDPOINT,), "transport": "http", **changes})


@asynccontextmanager
async def http_server(
    script: Script = polite, *, capacity_bytes: int = 65_536
) -> AsyncIterator[HttpServer]:
    """Run servers as long as the block lasts."""
    async with anyio.create_task_group() as tasks:
        yield HttpServer(script, tasks, capacity_bytes)
        tasks.cancel_scope.cancel()

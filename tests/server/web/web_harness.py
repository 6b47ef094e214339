"""The REST face on a shard in memory: called in process, or through real sockets."""

from __future__ import annotations

import contextlib
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx
import trio

from iggy_ref_server.web.app import make_app
from iggy_ref_server.web.context import WebContext, open_context
from iggy_ref_server.web.http_listener import HttpListenerSpec, serve_http
from tests.server.simulated.server import SimulatedServer, open_simulated_server

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Mapping

    from iggy_ref_server.client_limits import BufferBudget
    from iggy_ref_server.clock import Clock
    from iggy_ref_server.storage.simulated.storage import SimulatedStorage

ROOT = {"username": "iggy", "password": "iggy"}
SECRET = "a secret that is long enough for everybody"


class Web:
    """A client of the REST face.

    Attributes:
        world: the server.
        context: what requests are served with; None where a real listener is asked.
        token: sent with every request unless it is empty.
    """

    def __init__(
        self, world: SimulatedServer, client: httpx.AsyncClient, context: WebContext | None
    ) -> None:
        self.world = world
        self.client = client
        self._context = context
        self.token = ""

    @property
    def context(self) -> WebContext:
        assert self._context is not None
        return self._context

    async def ask(
        self, method: str, path: str, body: Any = None, *, token: str | None = None
    ) -> httpx.Response:
        """Ask with the token of this client, another one, or none if it is empty."""
        token = self.token if token is None else token
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return await self.client.request(method, path, json=body, headers=headers)

    async def log_in(self, username: str = "iggy", password: str = "iggy") -> str:
        """Log in, and use the token from here on."""
        body = {"username": username, "password": password}
        answer = await self.ask("POST", "/users/login", body, token="")
        assert answer.status_code == 200, answer.text
        self.token = answer.json()["access_token"]["token"]
        return self.token

    async def make_topic(self, partitions_count: int = 1) -> None:
        """Make a stream s with a topic t."""
        await self.ask("POST", "/streams", {"name": "s"})
        settings = {"compression_algorithm": "none", "message_expiry": 0, "max_topic_size": 0}
        body = {"name": "t", "partitions_count": partitions_count, **settings}
        answer = await self.ask("POST", "/streams/s/topics", body)
        assert answer.status_code == 200, answer.text


def make_listener_spec(
    world: SimulatedServer, tls: ssl.SSLContext | None = None, budget: BufferBudget | None = None
) -> HttpListenerSpec:
    """Make the listener spec of the shard that writes the metadata."""
    shard = world.shards[0]
    handler_context = shard.handler_context
    return HttpListenerSpec(
        config=handler_context.config.http,
        limits=handler_context.config.limits,
        handler_context=handler_context,
        storage=shard._spec.storage,
        tls=tls,
        budget=budget,
    )


@asynccontextmanager
async def open_web(
    storage: SimulatedStorage | None = None,
    *,
    shards_count: int = 1,
    settings: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    seed: int = 0,
) -> AsyncIterator[Web]:
    """Run a server whose REST face is called in process."""
    async with open_simulated_server(
        storage, shards_count=shards_count, settings=settings, clock=clock, seed=seed
    ) as world:
        spec = make_listener_spec(world)
        context = await open_context(
            spec.config,
            handler_context=spec.handler_context,
            storage=spec.storage,
        )
        transport = httpx.ASGITransport(app=make_app(context), client=("127.0.0.1", 40_000))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            yield Web(world, client, context)


class Site:
    """A real listener.

    Attributes:
        world: the server behind it.
        port: where it is.
        nursery: cancelled when the listener is closed.
    """

    def __init__(self, world: SimulatedServer, port: int, nursery: trio.Nursery) -> None:
        self.world = world
        self.port = port
        self.nursery = nursery

    async def connect(self) -> trio.SocketStream:
        """Open a connection."""
        return await trio.open_tcp_stream("127.0.0.1", self.port)

    async def say(self, data: bytes) -> bytes:
        """Send something, hang up half, and read everything that is answered."""
        async with await self.connect() as stream:
            with contextlib.suppress(trio.BrokenResourceError):
                await stream.send_all(data)
                await stream.send_eof()
            return await read_all(stream)


async def read_all(stream: trio.abc.ReceiveStream) -> bytes:
    """Read to the end, however the connection ends."""
    received = b""
    try:
        async for piece in stream:
            received += piece
    except trio.BrokenResourceError:
        pass
    return received


async def read_answer(stream: trio.abc.ReceiveStream) -> bytes:
    """Read one answer whose length is stated."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += (piece := await stream.receive_some(65_536))
        if not piece:
            return received
    head, _, body = received.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    length = next((int(line[16:]) for line in lines if line.startswith(b"content-length: ")), 0)
    while len(body) < length:
        body += (piece := await stream.receive_some(65_536))
        if not piece:
            break
    return head + b"\r\n\r\n" + body


@asynccontextmanager
async def open_site(
    *,
    shards_count: int = 1,
    settings: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
    budget: BufferBudget | None = None,
) -> AsyncIterator[Site]:
    """Run a server with a real HTTP listener on a port of its own."""
    async with (
        open_simulated_server(shards_count=shards_count, settings=settings) as world,
        trio.open_nursery() as nursery,
    ):
        listener = trio.socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        await listener.bind(("127.0.0.1", 0))
        listener.listen(100)
        with listener:
            await nursery.start(_serve, make_listener_spec(world, tls, budget), listener)
            yield Site(world, listener.getsockname()[1], nursery)
            nursery.cancel_scope.cancel()


async def _serve(
    spec: HttpListenerSpec,
    listener: trio.socket.SocketType,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    await serve_http(spec, [listener], task_status=task_status)

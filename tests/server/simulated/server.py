"""Many shards in one process: on one clock, with storage in memory, reached by pairs of sockets.

The same rooms as in a real server, assembled by the same code; only the processes, the listeners
and the disk are missing.
"""

from __future__ import annotations

import random
import socket
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from iggy_protocol import (
    NEED_DATA,
    ClientConnection,
    ConnectionClosed,
    ErrorReceived,
    LoginUser,
    ResponseReceived,
    client_id,
)
from iggy_ref_server.cli import StartFlags
from iggy_ref_server.clock import SimulatedClock
from iggy_ref_server.config.load import RootCredentials, load_config
from iggy_ref_server.identity.credentials import HashCost, Passwords
from iggy_ref_server.metadata.position import make_position_memory
from iggy_ref_server.session import ClientSession
from iggy_ref_server.shard.assembly import open_shard
from iggy_ref_server.shard.router import make_round_robin_memory
from iggy_ref_server.shard.spec import ShardSpec
from iggy_ref_server.storage.simulated.storage import SimulatedStorage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from iggy_protocol import Command
    from iggy_ref_server.clock import Clock
    from iggy_ref_server.config.schema import ServerConfig
    from iggy_ref_server.shard.assembly import Shard
    from iggy_ref_server.storage.interface import Storage

R = TypeVar("R")

CHEAP = HashCost(time_cost=1, memory_cost_kib=8, parallelism=1)


class Refused(Exception):
    """The server answered with an error."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


class ConnectionLost(Exception):
    """The server closed the connection."""


class Client:
    """A client of one shard; asks one thing at a time."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.connection = ClientConnection()

    async def ask(self, command: Command[R]) -> R:
        """Ask and wait for the answer."""
        await self.send(command)
        return await self.answer()

    async def send(self, *commands: Command[Any]) -> None:
        """Ask without waiting."""
        parts = [bytes(part) for command in commands for part in self.connection.send(command)]
        try:
            await self.stream.send_all(b"".join(parts))
        except trio.BrokenResourceError:
            raise ConnectionLost from None

    async def answer(self) -> Any:
        """Wait for the answer to the oldest question."""
        while True:
            event = self.connection.next_event()
            if event is NEED_DATA:
                self.connection.receive_data(await self.stream.receive_some(65_536))
            elif isinstance(event, ResponseReceived):
                return event.decode()
            elif isinstance(event, ErrorReceived):
                raise Refused(event.status)
            elif isinstance(event, ConnectionClosed):
                raise ConnectionLost

    async def aclose(self) -> None:
        """Hang up."""
        await self.stream.aclose()


class SimulatedServer:
    """A running server."""

    def __init__(self, shards: list[Shard]) -> None:
        self.shards = shards
        self._sockets: list[trio.socket.SocketType] = []
        self._ports = iter(range(50_000, 60_000))

    def connect(self, shard_id: int = 0) -> Client:
        """Connect to a shard without logging in."""
        ours, theirs = socket.socketpair()
        address = f"127.0.0.1:{next(self._ports)}"
        session = ClientSession(client_id(address), address)
        self.shards[shard_id].serve_socket(theirs, session)
        self._sockets.append(trio.socket.from_stdlib_socket(ours))
        return Client(trio.SocketStream(self._sockets[-1]))

    def hang_up(self) -> None:
        """Close the sockets of all clients, for which the server would linger otherwise."""
        for connected in self._sockets:
            connected.close()

    async def log_in(self, shard_id: int = 0) -> Client:
        """Connect to a shard as root."""
        client = self.connect(shard_id)
        await client.ask(LoginUser("iggy", "iggy"))
        return client


def make_config(settings: Mapping[str, str]) -> ServerConfig:
    """Make a configuration from IGGY_ variables, written without the prefix."""
    environment = {f"IGGY_{name}": value for name, value in settings.items()}
    return load_config(StartFlags(), environment, Path("/")).config


def make_specs(
    storage: Storage | None = None,
    *,
    shards_count: int = 1,
    settings: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    seed: int = 0,
    writes_survived: bool = False,
    migration_sockets: Sequence[Mapping[int, socket.socket]] = (),
) -> list[ShardSpec]:
    """Write down what each shard of a server is given."""
    config = make_config(settings or {})
    storage = storage or SimulatedStorage()
    clock = clock or SimulatedClock()
    noise = random.Random(seed)
    round_robin_memory = make_round_robin_memory(shards_count)
    position_memory = make_position_memory()
    channel_sockets: list[dict[int, trio.socket.SocketType]] = [{} for _ in range(shards_count)]
    for left in range(shards_count):
        for right in range(left + 1, shards_count):
            pair = socket.socketpair()
            channel_sockets[left][right], channel_sockets[right][left] = map(
                trio.socket.from_stdlib_socket, pair
            )
    return [
        ShardSpec(
            shard_id=shard_id,
            config=config,
            storage=_Shared(storage),
            clock=clock,
            root=lambda: RootCredentials("iggy", "iggy"),
            peer_sockets=channel_sockets[shard_id],
            passwords=Passwords(CHEAP, workers=0, random_bytes=noise.randbytes),
            random_bytes=noise.randbytes,
            round_robin_memory=round_robin_memory,
            position_memory=position_memory,
            writes_survived=writes_survived,
            migration_sockets=migration_sockets[shard_id] if migration_sockets else {},
        )
        for shard_id in range(shards_count)
    ]


@asynccontextmanager
async def open_simulated_server(
    storage: Storage | None = None,
    *,
    shards_count: int = 1,
    settings: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    seed: int = 0,
    writes_survived: bool = False,
    migration_sockets: Sequence[Mapping[int, socket.socket]] = (),
) -> AsyncIterator[SimulatedServer]:
    """Run a server for the time of the block; its clients migrate where there are sockets."""
    plans = make_specs(
        storage,
        shards_count=shards_count,
        settings=settings,
        clock=clock,
        seed=seed,
        writes_survived=writes_survived,
        migration_sockets=migration_sockets,
    )
    async with AsyncExitStack() as stack:
        shards = [await stack.enter_async_context(open_shard(plan)) for plan in plans]
        server = SimulatedServer(shards)
        try:
            yield server
        finally:
            server.hang_up()


class _Shared:
    """The storage of all shards, which none of them closes."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    async def aclose(self) -> None:
        """Leave it open for the others."""
        await trio.lowlevel.checkpoint()

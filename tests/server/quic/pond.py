"""A shard with a QUIC door on a network in memory, all of it on one virtual clock."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio
import trustme

from iggy_ref_server.certificates import CertificateFiles
from iggy_ref_server.clients import Client
from iggy_ref_server.listeners.quic_opening import open_quic_door
from iggy_ref_server.shard.settings import quic_limits
from tests.server.quic.network import Network
from tests.server.quic.peer import open_peer
from tests.server.world.world import make_config, open_world

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from iggy_ref_server.data_plane.budget import BufferBudget
    from iggy_ref_server.listeners.quic import QuicDoor
    from iggy_ref_server.shard.loop import Shard
    from tests.server.quic.peer import QuicPeer

SERVER = ("127.0.0.1", 8080)


class Pond:
    """A door, and what its clients can be told to do."""

    def __init__(self, door: QuicDoor, shard: Shard, network: Network) -> None:
        self.door = door
        self.shard = shard
        self.network = network

    def peer(self, port: int = 50_000, **settings: Any) -> AbstractAsyncContextManager[QuicPeer]:
        """Connect from a port of this machine."""
        plug = self.network.plug(("127.0.0.1", port))
        return open_peer(plug, SERVER, **settings)


def make_certificate(folder: Path) -> CertificateFiles:
    """Write a certificate for localhost."""
    issued = trustme.CA().issue_cert("localhost")
    files = CertificateFiles(folder / "cert.pem", folder / "key.pem", is_development=False)
    issued.cert_chain_pems[0].write_to_path(str(files.certificate))
    issued.private_key_pem.write_to_path(str(files.key))
    return files


@asynccontextmanager
async def open_pond(
    folder: Path,
    *,
    settings: Mapping[str, str] | None = None,
    budget: BufferBudget | None = None,
    **weather: Any,
) -> AsyncIterator[Pond]:
    """Open a door for the time of the block; ``weather`` is the network's."""
    config = make_config(settings or {})
    async with open_world(settings=settings) as world, trio.open_nursery() as nursery:
        shard = world.shards[0]
        network = Network(nursery, **weather)
        door = open_quic_door(
            network.plug(SERVER),
            make_certificate(folder),
            config=config,
            bounds=quic_limits(config),
            plane=shard.plane,
            clients=shard.clients,
            connected=lambda session, close: shard.clients.add(Client(session, close, 0)),
            gone=shard._gone,
            reset_key=bytes(32),
            budget=budget,
        )
        nursery.start_soon(door.serve)
        yield Pond(door, shard, network)
        nursery.cancel_scope.cancel()

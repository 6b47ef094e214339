"""A shard with a QUIC listener on a network in memory, all of it on one virtual clock."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio
import trustme

from iggy_ref_server.certificates import CertificateFiles
from iggy_ref_server.clients import ClientEntry
from iggy_ref_server.net.quic.listener import make_quic_listener
from iggy_ref_server.shard.settings import quic_limits
from tests.server.quic.network import Network
from tests.server.quic.peer import open_peer
from tests.server.simulated.server import make_config, open_simulated_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from iggy_ref_server.client_limits import BufferBudget
    from iggy_ref_server.net.quic.listener import QuicListener
    from iggy_ref_server.shard.assembly import Shard
    from tests.server.quic.peer import QuicPeer

SERVER = ("127.0.0.1", 8080)


class QuicHarness:
    """A listener, and what its clients can be told to do."""

    def __init__(self, listener: QuicListener, shard: Shard, network: Network) -> None:
        self.listener = listener
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
async def open_harness(
    folder: Path,
    *,
    settings: Mapping[str, str] | None = None,
    budget: BufferBudget | None = None,
    **weather: Any,
) -> AsyncIterator[QuicHarness]:
    """Open a listener for the time of the block; ``weather`` is the network's."""
    config = make_config(settings or {})
    async with open_simulated_server(settings=settings) as world, trio.open_nursery() as nursery:
        shard = world.shards[0]
        network = Network(nursery, **weather)
        listener = make_quic_listener(
            network.plug(SERVER),
            make_certificate(folder),
            config=config,
            bounds=quic_limits(config),
            scheduler=shard.scheduler,
            clients=shard.clients,
            on_connect=lambda session, close: shard.clients.add(ClientEntry(session, close, 0)),
            on_disconnect=shard._on_client_gone,
            reset_key=bytes(32),
            budget=budget,
        )
        nursery.start_soon(listener.serve)
        yield QuicHarness(listener, shard, network)
        nursery.cancel_scope.cancel()

"""A client of another protocol, with TLS."""

from __future__ import annotations

import pytest

from iggy_protocol import VSR_HEAD_BYTES, is_vsr_refusal, vsr_probe
from iggy_ref_server.session import ClientSession
from tests.server.net.tls_peer import connect_tls
from tests.server.simulated.server import open_simulated_server

pytestmark = pytest.mark.trio


async def test_client_of_another_protocol_when_behind_tls_then_is_refused_in_its_own_way(
    autojump_clock,
):
    probe = vsr_probe(bytes(range(1, 17)))
    async with open_simulated_server() as world:
        peer, theirs, tls = connect_tls()
        world.shards[0].socket_server.admit(theirs, ClientSession(1, "127.0.0.1:1"), tls=tls)
        for cut in (8, 100, 256):
            await peer.send(probe[:cut])
            if probe[cut:]:
                await peer.send(probe[cut:])
            assert is_vsr_refusal(await peer.read_exactly(VSR_HEAD_BYTES))
        peer.close()

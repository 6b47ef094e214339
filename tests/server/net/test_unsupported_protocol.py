"""A client of another protocol on a stream, as those below TLS are."""

from __future__ import annotations

import pytest

from iggy_protocol import VSR_HEAD_BYTES, is_vsr_refusal, vsr_probe
from tests.server.simulated.server import open_simulated_server

pytestmark = pytest.mark.trio


async def test_client_of_another_protocol_when_on_a_stream_then_is_refused_in_its_own_way(
    autojump_clock,
):
    probe = vsr_probe(bytes(range(1, 17)))
    async with open_simulated_server() as world:
        client = world.connect()
        for cut in (8, 100, 256):
            await client.stream.send_all(probe[:cut])
            if probe[cut:]:
                await client.stream.send_all(probe[cut:])
            refusal = b""
            while len(refusal) < VSR_HEAD_BYTES:
                refusal += await client.stream.receive_some(VSR_HEAD_BYTES)
            assert is_vsr_refusal(refusal)
        await client.aclose()

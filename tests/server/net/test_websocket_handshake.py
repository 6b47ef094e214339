"""The handshake of a WebSocket connection, on wires in memory."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from iggy_ref_server.config.load import default_config
from iggy_ref_server.net.handshakes import HandshakeRefused
from iggy_ref_server.net.websocket_codec import accept_handshake
from tests.protocol.websocket.frames import ws_frame
from tests.server.net.ws_peer import REQUEST

pytestmark = pytest.mark.trio


@pytest.mark.parametrize("step", [1, 7, len(REQUEST)])
async def test_handshake_when_it_comes_in_pieces_then_is_answered(step):
    client, server = trio.testing.memory_stream_pair()
    opened: list[bytes] = []

    async def serve() -> None:
        reader, rest = await accept_handshake(server, default_config().websocket)
        opened.extend(reader.feed(rest))
        while b"".join(opened) != b"data":
            opened.extend(reader.feed(bytes(await server.receive_some(1000))))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        data = REQUEST + ws_frame(b"data")
        for start in range(0, len(data), step):
            await client.send_all(data[start : start + step])
            await trio.testing.wait_all_tasks_blocked()

    assert (await client.receive_some()).startswith(b"HTTP/1.1 101 ")
    assert b"".join(opened) == b"data"


async def test_handshake_when_refused_then_says_why():
    client, server = trio.testing.memory_stream_pair()
    await client.send_all(REQUEST.replace(b"Upgrade: websocket\r\n", b""))

    with pytest.raises(HandshakeRefused, match="Upgrade"):
        await accept_handshake(server, default_config().websocket)

    assert (await client.receive_some()).startswith(b"HTTP/1.1 426 ")


async def test_handshake_when_the_client_leaves_then_is_broken_off():
    client, server = trio.testing.memory_stream_pair()
    await client.send_all(REQUEST[:30])
    await client.aclose()

    with pytest.raises(trio.BrokenResourceError):
        await accept_handshake(server, default_config().websocket)

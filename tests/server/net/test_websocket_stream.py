"""The stream of a WebSocket connection, on wires in memory and a virtual clock."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from websockets.frames import Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol

from iggy_protocol.websocket import FrameReader
from iggy_ref_server.config import default_config
from iggy_ref_server.net.websocket_codec import (
    PONG_TIMEOUT_S,
    HandshakeRefused,
    WebSocketStream,
    accept_handshake,
)
from tests.protocol.websocket.frames import ws_frame
from tests.server.net.ws_peer import REQUEST

pytestmark = pytest.mark.trio

LONG = bytes(4) + (1000).to_bytes(4, "little") + bytes(1000)
LONG_FRAME = b"\x82\x7e\x03\xf0" + LONG


def open_stream(transport: trio.abc.Stream, rest: bytes = b"") -> WebSocketStream:
    """Make a stream whose handshake is done."""
    protocol = ServerProtocol(state=State.OPEN, max_size=None)
    reader = FrameReader(protocol, frame_bytes_max=1 << 20, message_bytes_max=1 << 20)
    return WebSocketStream(transport, reader, rest)


async def receive_exactly(stream: trio.abc.ReceiveStream, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = await stream.receive_some(size - len(data))
        assert piece, data
        data += piece
    return data


async def test_ping_when_it_comes_within_a_reply_then_is_answered_behind_it():
    client, server = trio.testing.memory_stream_pair()
    stream = open_stream(server)
    await stream.send_all(LONG[:300])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.send_all, ws_frame(b"?", Opcode.PING) + ws_frame(b"data"))
        assert await stream.receive_some() == b"data"
    await stream.send_all(LONG[300:])

    assert await receive_exactly(client, len(LONG_FRAME) + 3) == LONG_FRAME + b"\x8a\x01?"


async def test_ping_when_it_comes_while_a_reply_is_written_then_is_answered_without_another(
    autojump_clock,
):
    client, server = trio.testing.lockstep_stream_pair()
    stream = open_stream(server)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.receive_some)
        nursery.start_soon(stream.send_all, LONG)
        await trio.testing.wait_all_tasks_blocked()
        await client.send_all(ws_frame(b"?", Opcode.PING))
        await trio.testing.wait_all_tasks_blocked()
        read = await receive_exactly(client, len(LONG_FRAME))
        with trio.fail_after(5):
            pong = await receive_exactly(client, 3)
        nursery.cancel_scope.cancel()

    assert (read, pong) == (LONG_FRAME, b"\x8a\x01?")


async def test_ping_when_its_answer_is_not_read_then_the_connection_breaks_in_time(autojump_clock):
    client, server = trio.testing.lockstep_stream_pair()
    stream = open_stream(server, rest=ws_frame(b"", Opcode.PING))
    began = trio.current_time()

    with pytest.raises(trio.BrokenResourceError):
        await stream.receive_some()

    assert trio.current_time() - began == pytest.approx(PONG_TIMEOUT_S)
    await stream.aclose()
    await client.aclose()


async def test_bytes_when_fewer_are_wanted_then_the_rest_waits():
    client, server = trio.testing.memory_stream_pair()
    stream = open_stream(server, rest=ws_frame(b"abcdefgh"))

    assert [await stream.receive_some(3) for _ in range(3)] == [b"abc", b"def", b"gh"]
    await client.aclose()
    assert await stream.receive_some(3) == b""


async def test_close_when_a_reply_was_torn_then_nothing_is_sent_into_it(autojump_clock):
    client, server = trio.testing.memory_stream_pair()
    stream = open_stream(server)
    await stream.send_all(LONG[:300])

    await stream.aclose()

    assert await receive_exactly(client, 304) == LONG_FRAME[:304]
    assert await client.receive_some() == b""
    with pytest.raises(trio.ClosedResourceError):
        await stream.send_all(LONG)
    with pytest.raises(trio.ClosedResourceError):
        await stream.receive_some()


async def test_close_when_the_client_closed_first_then_is_the_echo(autojump_clock):
    client, server = trio.testing.memory_stream_pair()
    stream = open_stream(server, rest=ws_frame(b"\x03\xe9", Opcode.CLOSE) + ws_frame(b"late"))

    assert await stream.receive_some() == b""
    await stream.send_all(bytes(8))
    await stream.aclose()
    await stream.aclose()

    assert await receive_exactly(client, 14) == b"\x82\x08" + bytes(8) + b"\x88\x02\x03\xe9"


@pytest.mark.parametrize("step", [1, 7, len(REQUEST)])
async def test_handshake_when_it_comes_in_pieces_then_is_answered(step):
    client, server = trio.testing.memory_stream_pair()
    opened = []

    async def serve() -> None:
        reader, rest = await accept_handshake(server, default_config().websocket)
        opened.append(WebSocketStream(server, reader, rest))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        data = REQUEST + ws_frame(b"data")
        for start in range(0, len(data), step):
            await client.send_all(data[start : start + step])
            await trio.testing.wait_all_tasks_blocked()

    assert (await client.receive_some()).startswith(b"HTTP/1.1 101 ")
    assert await opened[0].receive_some() == b"data"


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

"""WebSocket servers for tests of the client, on real sockets and with manners of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

from iggy_sdk.transport import open_transport
from tests.sdk.scripted_peer import options

if TYPE_CHECKING:
    from anyio.abc import ByteStream

    from iggy_sdk.connection_string import Endpoint


async def accept(stream: ByteStream) -> None:
    """Grant a WebSocket, and read until the client goes."""
    await granted(stream)
    await accept_nothing(stream)


async def granted(stream: ByteStream, *, behind: bytes = b"") -> ServerProtocol:
    """Shake hands as a server, with more bytes in the same packet."""
    protocol = ServerProtocol(max_size=None)
    while protocol.state is State.CONNECTING:
        protocol.receive_data(await stream.receive())
        for event in protocol.events_received():
            assert isinstance(event, Request)
            protocol.send_response(protocol.accept(event))
    await stream.send(b"".join(protocol.data_to_send()) + behind)
    return protocol


def frame(data: bytes, opcode: Opcode = Opcode.BINARY, *, fin: bool = True) -> bytes:
    """Write a frame as a server does."""
    return Frame(opcode, data, fin).serialize(mask=False)


async def accept_nothing(stream: ByteStream) -> None:
    """Read until the client goes."""
    try:
        while True:
            await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return


async def echo(stream: ByteStream) -> None:
    """Send every message back."""
    protocol = await granted(stream)
    try:
        while True:
            protocol.receive_data(await stream.receive())
            for one in protocol.events_received():
                assert isinstance(one, Frame)
                await stream.send(frame(bytes(one.data)))
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return


async def dial(endpoint: Endpoint, **settings: Any) -> Any:
    """Dial as a client does, in good time."""
    with anyio.fail_after(5):
        return await open_transport(
            endpoint, options(endpoints=(endpoint,), transport="ws", **settings)
        )

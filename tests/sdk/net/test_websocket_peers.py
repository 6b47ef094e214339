"""The WebSocket transport and servers that refuse, err, ping or leave."""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from websockets.frames import Frame, Opcode

from iggy_sdk.client import IggyClient
from iggy_sdk.connection_string import Endpoint
from iggy_sdk.errors import ConfigurationError, ConnectionFailedError, IggyError
from iggy_sdk.options import Reconnect
from tests.sdk.net.socket_servers import Serve, socket_server
from tests.sdk.net.websocket_servers import accept_nothing, dial, echo, frame, granted
from tests.sdk.scripted_peer import options

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from anyio.abc import ByteStream

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

# Handshakes that fail


def answering(answer: bytes) -> Serve:
    async def serve(stream: ByteStream) -> None:
        await stream.receive()
        if answer:
            await stream.send(answer)

    return serve


ACCEPTED = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"


@pytest.mark.parametrize(
    ("answer", "words", "retriable"),
    [
        (b"", "ended the WebSocket handshake.*8092", True),
        (b"\x03\x00\x00\x00\x00\x00\x00\x00", "does not speak WebSocket.*8092", False),
        (b"\x15\x03\x03\x00\x02\x02\x46", "requires TLS", False),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnope", "404 Not Found", False),
        (b"HTTP/1.1 503 Away\r\n\r\n", "503 Away.*proxy", True),
        (b"HTTP/1.1 200", "refused the WebSocket", False),
        (ACCEPTED + b"\r\n", "answered the WebSocket handshake wrongly", False),
        (ACCEPTED + b"Sec-WebSocket-Accept: bad\r\n\r\n", "handshake wrongly.*Accept", False),
        (ACCEPTED + b"X: " + b"x" * 20_000, "the head is too long", False),
    ],
    ids=["end", "binary", "tls", "404", "503", "cut", "no key", "bad key", "long"],
)
async def test_handshake_when_it_fails_then_the_error_says_how(answer, words, retriable):
    async with socket_server(answering(answer)) as endpoint:
        with pytest.raises(ConnectionFailedError, match=f"(?s){words}") as caught:
            await dial(endpoint)

    assert caught.value.retriable == retriable
    assert str(endpoint.port) in str(caught.value)


async def test_handshake_when_the_server_is_silent_then_ends_in_time():
    async def deaf(stream: ByteStream) -> None:
        await anyio.sleep_forever()

    async with socket_server(deaf) as endpoint:
        once = options(
            endpoints=(endpoint,),
            transport="ws",
            connect_timeout=0.2,
            reconnect=Reconnect(enabled=False),
        )
        with pytest.raises(ConnectionFailedError, match=r"within 0\.2 s"):
            await IggyClient.from_options(once).connect()


async def test_dial_when_the_port_is_that_of_the_tcp_listener_then_says_so(server):
    with pytest.raises(ConnectionFailedError, match="8092"):
        await dial(Endpoint(*server.address))


async def test_dial_when_the_library_is_missing_then_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "websockets", None)
    monkeypatch.delitem(sys.modules, "iggy_protocol.websocket", raising=False)
    monkeypatch.delattr("iggy_protocol.websocket", raising=False)

    with pytest.raises(ConfigurationError, match=r"iggy-python\[websocket\]"):
        await dial(Endpoint("127.0.0.1", 1))


# Servers with manners of their own


@asynccontextmanager
async def talking_to(serve: Serve, **settings: Any) -> AsyncIterator[Any]:
    async with socket_server(serve) as endpoint:
        transport = await dial(endpoint, **settings)
        try:
            yield transport
        finally:
            await transport.aclose()


async def read(transport: Any, size: int) -> bytes:
    data = b""
    with anyio.fail_after(5):
        while len(data) < size:
            space = memoryview(bytearray(50))
            count = await transport.receive_into(space)
            assert count, "the other end closed"
            data += space[:count]
    return data


async def test_transport_when_bytes_come_with_the_handshake_then_they_are_read():
    async def eager(stream: ByteStream) -> None:
        await granted(stream, behind=frame(b"early") + frame(b"bird"))
        await accept_nothing(stream)

    async with talking_to(eager) as transport:
        assert not transport.add_reader(lambda: None)
        assert await read(transport, 9) == b"earlybird"


async def test_transport_when_pinged_then_answers_between_its_frames():
    heard: list[Frame] = []

    async def pinging(stream: ByteStream) -> None:
        protocol = await granted(stream)
        await stream.send(frame(b"", Opcode.PING) + frame(b"x", Opcode.PING) + frame(b"data"))
        while len(heard) < 2:
            protocol.receive_data(await stream.receive())
            heard.extend(protocol.events_received())  # type: ignore[arg-type]
        await stream.send(frame(b"done"))
        await accept_nothing(stream)

    async with talking_to(pinging) as transport:
        assert await read(transport, 4) == b"data"
        assert transport.send_nowait([b"one ", b"request"]) == []
        assert await read(transport, 4) == b"done"

    assert [(one.opcode, bytes(one.data)) for one in heard] == [
        (Opcode.PONG, b"x"),
        (Opcode.BINARY, b"one request"),
    ]


@pytest.mark.parametrize(
    ("data", "is_clean"),
    [
        (frame(b"\x03\xe8", Opcode.CLOSE), True),
        (frame(b"", Opcode.CLOSE), True),
        (b"", True),
        (frame(b"abc", Opcode.CONT), False),
        (b"\x82\x83abcdxyz", False),
        (b"\x89\x7e\x00\xff", False),
        (b"\xc2\x01x", False),
        (frame(bytes(101)), False),
    ],
    ids=["close", "empty close", "end", "stray", "masked", "long ping", "reserved", "too long"],
)
async def test_transport_when_the_server_ends_or_errs_then_the_reader_is_told(data, is_clean):
    async def ending(stream: ByteStream) -> None:
        await granted(stream)
        await stream.send(frame(b"last") + data)

    settings = {"transport_settings": {"max_frame_size": 100}}
    async with talking_to(ending, **settings) as transport:
        assert await read(transport, 4) == b"last"
        space = memoryview(bytearray(50))
        if is_clean:
            assert await transport.receive_into(space) == 0
        else:
            with pytest.raises(OSError, match="broke the WebSocket protocol"):
                await transport.receive_into(space)


async def test_transport_when_closed_then_says_so_and_wakes_the_waiting_task():
    said: list[Frame] = []
    over = anyio.Event()

    async def listening(stream: ByteStream) -> None:
        protocol = await granted(stream)
        while not said:
            protocol.receive_data(await stream.receive())
            said.extend(protocol.events_received())  # type: ignore[arg-type]
        over.set()

    async with socket_server(listening) as endpoint:
        transport = await dial(endpoint)

        async def wait() -> None:
            with pytest.raises(OSError):
                await transport.receive_into(memoryview(bytearray(10)))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            await transport.aclose()
        await transport.aclose()
        with pytest.raises(OSError):
            transport.send_nowait([b"x"])
        with anyio.fail_after(5):
            await over.wait()

    assert said[0].opcode is Opcode.CLOSE


async def test_transport_when_it_is_full_then_the_rest_goes_as_it_was_masked():
    payload = bytes(range(256)) * 40_000
    received = bytearray()
    begin, over = anyio.Event(), anyio.Event()

    async def slow(stream: ByteStream) -> None:
        protocol = await granted(stream)
        await begin.wait()
        while len(received) < len(payload) + 4:
            protocol.receive_data(await stream.receive())
            for one in protocol.events_received():
                assert isinstance(one, Frame)
                received.extend(one.data)
        over.set()

    async with talking_to(slow) as transport:
        left = transport.send_nowait([payload[:70_000], payload[70_000:]])
        assert left
        with anyio.move_on_after(0.01):
            await transport.send(left)
        begin.set()
        await transport.send(left)
        raw: list[Any] = [b"more"]
        await transport.send(raw)
        assert raw == []
        with anyio.fail_after(5):
            await over.wait()

    assert bytes(received) == payload + b"more"


async def test_transport_when_interrupted_then_the_reader_wakes_and_nothing_is_lost():
    async with talking_to(echo) as transport:

        async def wait() -> None:
            with pytest.raises(InterruptedError):
                await transport.receive_into(memoryview(bytearray(10)))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            transport.interrupt()
        transport.send_nowait([b"data"])
        assert await read(transport, 4) == b"data"


async def test_client_when_the_server_errs_then_is_told_what_is_wrong():
    async def masked(stream: ByteStream) -> None:
        await granted(stream)
        await stream.receive()
        await stream.send(b"\x82\x88abcd" + bytes(8))

    async with socket_server(masked) as endpoint:
        client = IggyClient.from_options(
            options(
                endpoints=(endpoint,),
                transport="ws",
                credentials=None,
                reconnect=Reconnect(enabled=False),
            )
        )
        async with client:
            with pytest.raises(IggyError, match="masked"):
                await client.ping()

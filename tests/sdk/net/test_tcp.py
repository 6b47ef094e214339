"""The TCP transport on real sockets: partial writes, interrupts, ends and dead ports."""

from __future__ import annotations

import errno
import socket

import anyio
import pytest

from iggy_sdk.client import IggyClient
from iggy_sdk.connection_string import Endpoint
from iggy_sdk.errors import ConnectionFailedError, DisconnectedError
from iggy_sdk.options import Reconnect
from iggy_sdk.transport import open_transport
from iggy_sdk.transport.tcp import TcpTransport, unwritten_buffers
from tests.sdk.memory_transport import memory_pair
from tests.sdk.net.socket_servers import socket_server
from tests.sdk.scripted_peer import options

pytestmark = pytest.mark.anyio


def tcp_pair() -> tuple[TcpTransport, TcpTransport]:
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    return TcpTransport(near, peer="far"), TcpTransport(far, peer="near")


PAIRS = pytest.mark.parametrize("make_pair", [tcp_pair, memory_pair], ids=["tcp", "memory"])


async def receive_exactly(transport, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        space = bytearray(65_536)
        count = await transport.receive_into(memoryview(space))
        assert count, "the other end closed"
        data += space[:count]
    return bytes(data)


@PAIRS
async def test_transport_when_written_to_then_the_other_end_reads_the_same(make_pair):
    near, far = make_pair()

    assert near.send_nowait([b"one", b"", bytearray(b"two"), memoryview(b"three")]) == []
    assert await receive_exactly(far, 11) == b"onetwothree"
    near.abort()
    far.abort()


@PAIRS
async def test_transport_when_it_is_full_then_keeps_the_rest_for_the_sender(make_pair):
    near, far = make_pair()
    data = bytes(range(256)) * 40_000

    left = near.send_nowait([data[:100], data[100:]])
    assert left
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(near.send, left)
        received = await receive_exactly(far, len(data))

    assert received == data
    assert left == []
    near.abort()
    far.abort()


@PAIRS
async def test_transport_when_a_send_is_cancelled_then_what_is_left_is_known(make_pair):
    near, far = make_pair()
    data = bytes(range(256)) * 40_000
    left = near.send_nowait([data])
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(near.send, left)
            head = await receive_exactly(far, 1_000_000)
            scope.cancel()
    assert left

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(near.send, left)
        rest = await receive_exactly(far, len(data) - len(head))

    assert head + rest == data
    near.abort()
    far.abort()


@PAIRS
async def test_transport_when_a_receive_is_cancelled_then_nothing_is_lost(make_pair):
    near, far = make_pair()
    with anyio.move_on_after(0.01):
        await far.receive_into(memoryview(bytearray(10)))

    near.send_nowait([b"data"])

    assert await receive_exactly(far, 4) == b"data"
    near.abort()
    far.abort()


@PAIRS
async def test_transport_when_interrupted_then_the_reader_wakes_and_can_go_on(make_pair):
    near, far = make_pair()

    async def read() -> None:
        with pytest.raises(InterruptedError):
            await far.receive_into(memoryview(bytearray(10)))
        near.send_nowait([b"data"])
        assert await receive_exactly(far, 4) == b"data"

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        far.interrupt()
    near.abort()
    far.abort()


@PAIRS
async def test_transport_when_interrupted_while_it_writes_then_the_writer_goes_on(make_pair):
    near, far = make_pair()
    data = bytes(10_000_000)
    left = near.send_nowait([data])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(near.send, left)
        await anyio.wait_all_tasks_blocked()
        near.interrupt()
        assert len(await receive_exactly(far, len(data))) == len(data)
    near.abort()
    far.abort()


@PAIRS
async def test_transport_when_aborted_then_the_waiting_task_is_told(make_pair):
    near, far = make_pair()
    left = near.send_nowait([bytes(10_000_000)])

    async def read() -> None:
        with pytest.raises(OSError) as caught:
            await near.receive_into(memoryview(bytearray(10)))
        assert caught.value.errno == errno.EBADF

    async def write() -> None:
        with pytest.raises(OSError):
            await near.send(left)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        tasks.start_soon(write)
        await anyio.wait_all_tasks_blocked()
        near.abort()
    near.abort()
    with pytest.raises(OSError):
        near.send_nowait([b"x"])
    with pytest.raises(OSError):
        await near.receive_into(memoryview(bytearray(10)))
    far.abort()


@PAIRS
async def test_transport_when_the_other_end_closes_then_reads_the_rest_and_the_end(make_pair):
    near, far = make_pair()
    far.send_nowait([b"last words"])
    await far.aclose()

    assert await receive_exactly(near, 10) == b"last words"
    assert await near.receive_into(memoryview(bytearray(10))) == 0
    with pytest.raises(OSError):
        near.send_nowait([b"x"])
    near.abort()


@pytest.mark.parametrize("written", range(8))
def test_skip_written_when_bytes_are_gone_then_returns_the_others(written):
    left = unwritten_buffers([b"abc", b"", b"de", b"fg"], written)

    assert b"".join(left) == b"abcdefg"[written:]


async def test_open_when_a_server_listens_then_connects_without_delay():
    async with socket_server() as endpoint:
        transport = await open_transport(endpoint, options())
        assert isinstance(transport, TcpTransport)
        assert transport.peer == f"127.0.0.1:{endpoint.port}"
        flag = transport._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        await transport.aclose()

    assert flag


async def test_open_when_the_port_is_closed_then_says_where():
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port = bound.getsockname()[1]

    with pytest.raises(ConnectionFailedError, match=rf"127\.0\.0\.1:{port}.*refused"):
        await open_transport(Endpoint("127.0.0.1", port), options())


async def test_open_when_a_name_has_two_addresses_then_the_one_that_answers_is_taken():
    async with socket_server() as endpoint:
        client = IggyClient.from_options(options(endpoints=(Endpoint("localhost", endpoint.port),)))
        async with client:
            await client.ping()


async def test_open_when_the_name_is_unknown_then_says_so():
    with pytest.raises(ConnectionFailedError, match="no address"):
        await open_transport(Endpoint("no-such-host.invalid", 8090), options())


async def test_open_when_the_dial_is_cancelled_then_leaves_no_socket_behind():
    """A full queue of connections that nobody accepts does not answer."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as deaf:
        endpoint = Endpoint("127.0.0.1", deaf.getsockname()[1])
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(deaf.getsockname())
        once = options(
            endpoints=(endpoint,), connect_timeout=0.2, reconnect=Reconnect(enabled=False)
        )
        with pytest.raises(ConnectionFailedError, match=r"did not answer within 0\.2 s"):
            await IggyClient.from_options(once).connect()
        for filler in fillers:
            filler.close()


async def test_client_when_the_server_resets_the_connection_then_is_told():
    async def reset(stream) -> None:
        raw = stream.extra(anyio.abc.SocketAttribute.raw_socket)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        await stream.receive()

    off = Reconnect(enabled=False)
    async with socket_server(reset) as endpoint:
        client = IggyClient.from_options(
            options(endpoints=(endpoint,), credentials=None, reconnect=off)
        )
        async with client:
            with pytest.raises(DisconnectedError):
                await client.ping()

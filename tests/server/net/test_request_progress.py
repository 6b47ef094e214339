"""How fast requests have to come: as sums, and on sockets with TLS and without, on a mock clock."""

from __future__ import annotations

import socket
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from iggy_protocol import LoginUser, Ping, StatusCode
from iggy_ref_server.client_limits import PROGRESS_BYTES_MIN, RequestProgress
from iggy_ref_server.session import ClientSession
from tests.server.features.topic_calls import frame_of
from tests.server.net.tls_peer import TlsPeer, connect_tls
from tests.server.simulated.server import open_simulated_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from iggy_ref_server.net.socket_server import SocketServer

STALL_S = 30.0
SEND_MESSAGES, CREATE_STREAM = 101, 202
LOGIN = frame_of(LoginUser("iggy", "iggy"))


def head(code: int, payload_bytes: int) -> bytes:
    """Announce a request."""
    return (payload_bytes + 4).to_bytes(4, "little") + code.to_bytes(4, "little")


# As sums


def test_pace_when_nothing_has_begun_then_is_never_due():
    progress = RequestProgress(STALL_S)
    assert progress.due_at == float("inf")

    progress.note(5, 0, 100)
    assert progress.due_at == 5 + STALL_S
    progress.reset()
    assert progress.due_at == float("inf")


def test_pace_when_a_request_grows_by_less_than_the_least_then_its_time_goes_on():
    progress = RequestProgress(STALL_S)
    progress.note(0, 0, 10)
    for second in range(1, 40):
        progress.note(second, 0, 10 + second)
    assert progress.due_at == STALL_S

    progress.note(29, 0, 10 + PROGRESS_BYTES_MIN)
    assert progress.due_at == 29 + STALL_S


def test_pace_when_another_request_begins_then_its_time_begins():
    progress = RequestProgress(STALL_S)
    progress.note(0, 7, 10)
    progress.note(20, 8, 20)
    assert progress.due_at == 20 + STALL_S


# On sockets


class Peer:
    """The client's end of a socket in the room."""

    def __init__(self, socket_server: SocketServer, number: int, *, is_secured: bool) -> None:
        self.socket: trio.socket.SocketType | TlsPeer
        tls = None
        if is_secured:
            self.socket, theirs, tls = connect_tls()
        else:
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            self.socket = trio.socket.from_stdlib_socket(ours)
        session = ClientSession(number, f"127.0.0.1:{number}")
        self.pipeline = socket_server.admit(theirs, session, tls=tls)

    async def send(self, data: bytes) -> None:
        """Send all, and let the room take it."""
        while data:
            data = data[await self.socket.send(data) :]
        await trio.testing.wait_all_tasks_blocked()

    async def read(self, size: int = 65_536) -> bytes:
        """Read what is there, or wait for it."""
        with trio.fail_after(100):
            return await self.socket.recv(size)

    async def read_exactly(self, size: int) -> bytes:
        """Read so much, in however many records it comes."""
        data = b""
        while len(data) < size:
            data += await self.read(size - len(data))
        return data


class Stage:
    """A room of sockets, and its clients."""

    def __init__(self, socket_server: SocketServer, *, is_secured: bool) -> None:
        self.socket_server = socket_server
        self.is_secured = is_secured
        self.peers: list[Peer] = []

    def connect(self) -> Peer:
        """Have a client in the room."""
        peer = Peer(self.socket_server, len(self.peers) + 1, is_secured=self.is_secured)
        self.peers.append(peer)
        return self.peers[-1]


@pytest.fixture(params=[False, True], ids=["plain", "TLS"])
def open_stage(request):
    """Run a shard whose clients come in one of both ways."""
    return partial(open_room, is_secured=request.param)


@asynccontextmanager
async def open_room(*, is_secured: bool) -> AsyncIterator[Stage]:
    """Run a shard for its room of sockets."""
    async with open_simulated_server() as world:
        stage = Stage(world.shards[0].socket_server, is_secured=is_secured)
        try:
            yield stage
        finally:
            for peer in stage.peers:
                peer.socket.close()


@pytest.mark.trio
@pytest.mark.parametrize("code", [SEND_MESSAGES, CREATE_STREAM])
async def test_request_when_it_stands_still_on_a_socket_then_ends_the_connection(
    code, open_stage, autojump_clock
):
    async with open_stage() as stage:
        peer = stage.connect()
        await peer.send(LOGIN)
        await peer.read()
        await peer.send(head(code, 100_000) + b"x")
        await trio.sleep(STALL_S - 2)
        assert stage.socket_server.plain_count == 1

        await trio.sleep(4)

        assert stage.socket_server.plain_count == 0
        assert await peer.read() == b""


@pytest.mark.trio
async def test_request_when_it_trickles_on_a_socket_then_ends_the_connection(
    open_stage, autojump_clock
):
    async with open_stage() as stage:
        peer = stage.connect()
        await peer.send(LOGIN)
        await peer.read()
        await peer.send(head(SEND_MESSAGES, 10_000_000))
        for _ in range(40):
            if stage.socket_server.plain_count:
                await peer.send(b"x")
            await trio.sleep(1)

        assert stage.socket_server.plain_count == 0


@pytest.mark.trio
async def test_request_when_slow_but_steady_on_a_socket_then_is_waited_for(
    open_stage, autojump_clock
):
    """What waits in the socket for more of a large frame counts as come."""
    async with open_stage() as stage:
        peer = stage.connect()
        await peer.send(LOGIN)
        await peer.read()
        await peer.send(head(SEND_MESSAGES, 700_000))
        for _ in range(100):
            await peer.send(bytes(7_000))
            await trio.sleep(2.5)

        status = int.from_bytes((await peer.read())[:4], "little")
        assert status not in (0, StatusCode.UNAUTHENTICATED)
        assert stage.socket_server.plain_count == 1


@pytest.mark.trio
async def test_connection_when_at_rest_behind_a_login_then_stays(open_stage, autojump_clock):
    async with open_stage() as stage:
        peer = stage.connect()
        await peer.send(LOGIN)
        await peer.read()

        await trio.sleep(10 * STALL_S)
        await peer.send(frame_of(Ping()))

        assert await peer.read() == bytes(8)


# Before a login


@pytest.mark.trio
async def test_send_when_long_and_before_a_login_then_costs_no_memory_and_is_refused(
    open_stage,
    autojump_clock,
):
    async with open_stage() as stage:
        peer = stage.connect()
        await peer.send(head(SEND_MESSAGES, 1 << 20))
        for _ in range(16):
            await peer.send(bytes(1 << 16))
        statistics = peer.pipeline.connection.statistics()
        await peer.send(frame_of(Ping()))

        refusal = int(StatusCode.UNAUTHENTICATED).to_bytes(4, "little") + bytes(4)
        assert await peer.read_exactly(16) == refusal + bytes(8)
        assert statistics.buffered_bytes == 0
        assert statistics.reserved_bytes <= 1 << 17


@pytest.mark.trio
async def test_limit_when_the_client_has_logged_out_then_is_small_again(open_stage, autojump_clock):
    async with open_stage() as stage:
        peer = stage.connect()
        await peer.send(LOGIN)
        assert (await peer.read())[:4] == bytes(4)
        logout = head(39, 0)
        await peer.send(head(CREATE_STREAM, 100_000) + bytes(100_000) + logout)
        await peer.read_exactly(16)

        await peer.send(head(CREATE_STREAM, 100_000))

        assert (await peer.read())[:4] == int(StatusCode.UNAUTHENTICATED).to_bytes(4, "little")
        assert await peer.read() == b""

"""Handshakes of clients that stop, lie or hurry, on pairs of sockets and a frozen clock."""

from __future__ import annotations

import contextlib
import logging
import socket
from functools import partial

import pytest
import trio
import trio.testing

from iggy_ref_server.config.load import default_config
from iggy_ref_server.net.handshakes import Handshakes, HandshakeSocket
from iggy_ref_server.net.websocket_codec import accept_handshake
from tests.server.net.tls_peer import TlsPeer, contexts
from tests.server.net.ws_peer import REQUEST

pytestmark = pytest.mark.trio

HELLO_BYTES = 100


class Entry:
    """A client and its handshake, with TLS alone or with WebSocket above it."""

    def __init__(self, handshakes: Handshakes, *, is_websocket: bool) -> None:
        ours, theirs = socket.socketpair()
        self.peer = TlsPeer(ours, contexts()[1])
        self.accepted = HandshakeSocket(theirs)
        self.handshakes = handshakes
        self.is_websocket = is_websocket
        self.outcome: object = "unfinished"

    async def steps(self) -> str:
        """Do what the listeners do."""
        await self.accepted.start_tls(contexts()[0])
        if self.is_websocket:
            await accept_handshake(self.accepted, default_config().websocket)
        return "done"

    async def run(self) -> None:
        """Do the handshake, and keep what became of it."""
        try:
            self.outcome = await self.handshakes.run("127.0.0.1:1", self.steps)
        finally:
            self.accepted.close()

    def step(self) -> bool:
        """Let the client go on with TLS; return whether it is done."""
        with contextlib.suppress(BlockingIOError):
            self.peer.feed(self.peer.raw.recv(1 << 16))
        self.peer.raw.send(self.peer.do_handshake())
        return self.peer.tls.version() is not None

    async def finish(self) -> None:
        """Let the client do all that it has to."""
        while self.outcome == "unfinished":
            if self.step() and self.is_websocket:
                await self.peer.send(REQUEST)
                self.is_websocket = False
            await trio.testing.wait_all_tasks_blocked()


@pytest.fixture(params=[False, True], ids=["TCP", "WebSocket"])
def enter(request):
    """Make the entry of a client at one of both listeners."""
    handshakes = Handshakes(name="TLS", count_max=3, timeout_s=10.0)
    return partial(Entry, handshakes, is_websocket=request.param)


async def test_handshake_when_it_comes_in_steps_then_is_done(autojump_clock, enter):
    entry = enter()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(entry.run)
        await entry.finish()
    assert entry.outcome == "done"
    entry.peer.close()


@pytest.mark.parametrize("size", [0, 1, HELLO_BYTES])
async def test_handshake_when_the_client_stops_then_ends_in_time_with_a_line(
    autojump_clock, caplog, enter, size
):
    caplog.set_level(logging.INFO)
    entry, began = enter(), trio.current_time()
    entry.peer.raw.send(entry.peer.do_handshake()[:size])

    await entry.run()

    assert entry.outcome is None
    assert trio.current_time() - began == 10.0
    (line,) = caplog.messages
    assert "the TLS handshake with 127.0.0.1:1 failed: timed out" in line
    entry.peer.close()


@pytest.mark.parametrize("ending", ["garbage", "HTTP", "hang up", "reset hello"])
async def test_handshake_when_the_client_speaks_no_tls_then_ends_at_once_with_a_line(
    autojump_clock, caplog, enter, ending
):
    caplog.set_level(logging.INFO)
    entry, began = enter(), trio.current_time()
    hello = bytearray(entry.peer.do_handshake())
    hello[9:30] = bytes(21)
    data = {"garbage": bytes(3000), "HTTP": REQUEST, "hang up": hello[:50], "reset hello": hello}
    entry.peer.raw.send(data[ending])
    if ending == "hang up":
        entry.peer.raw.shutdown(socket.SHUT_WR)

    await entry.run()

    assert entry.outcome is None
    assert trio.current_time() == began
    (line,) = caplog.records
    assert line.levelno == logging.INFO
    assert line.exc_info is None
    assert "the TLS handshake with 127.0.0.1:1 failed: " in line.getMessage()
    entry.peer.close()


async def test_handshakes_when_there_are_too_many_then_the_oldest_goes(autojump_clock, enter):
    entries = [enter() for _ in range(5)]
    async with trio.open_nursery() as nursery:
        for entry in entries:
            nursery.start_soon(entry.run)
            await trio.testing.wait_all_tasks_blocked()
        assert [entry.outcome for entry in entries] == [None] * 2 + ["unfinished"] * 3
        for entry in entries[2:]:
            await entry.finish()
    assert [entry.outcome for entry in entries] == [None] * 2 + ["done"] * 3
    for entry in entries:
        entry.peer.close()


async def test_handshake_when_the_client_reads_nothing_then_ends_in_time(autojump_clock, enter):
    entry, began = enter(), trio.current_time()
    entry.accepted._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    entry.accepted._socket.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            entry.accepted._socket.send(bytes(100))
    entry.peer.raw.send(entry.peer.do_handshake())

    await entry.run()

    assert entry.outcome is None
    assert trio.current_time() - began == 10.0
    entry.peer.close()

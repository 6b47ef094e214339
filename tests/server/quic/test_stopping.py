"""A server that stops or dies under silent clients: over QUIC they learn of it at once."""

from __future__ import annotations

import contextlib
import hmac
import socket
import stat
import time
from typing import Any

import pytest
import trio
import trio.testing
from aioquic.quic.connection import QuicConnection

from iggy_protocol import (
    ConsumerIdentity,
    LoginUser,
    PollingStrategy,
    PollMessages,
)
from tests.server.features.topic_calls import frame_of, make_topic
from tests.server.net.ws_peer import WsPeer, listening_address
from tests.server.quic.test_packets import PING, PONG
from tests.server.quic.test_real_socket import connect_peer

pytestmark = [pytest.mark.trio, pytest.mark.timeout(90)]

# What upstream's harness grants is 5 s; everything is closed within this.
STOP_SECONDS_MAX = 4.0
# Clients that behave use up no timeout.
BRISK_SECONDS_MAX = 2.0
RESET_BYTES_MIN, TOKEN_BYTES = 21, 16


class Deaf(QuicConnection):
    """A client that, from some time on, neither hears nor acknowledges anything."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.unheard: Any = None

    def receive_datagram(self, data, addr, now):
        if self.unheard is None:
            super().receive_datagram(data, addr, now)
        else:
            self.unheard.append((data, addr))

    def hear_at_last(self):
        for data, addr in self.unheard:
            super().receive_datagram(data, addr, trio.current_time())


def timed_stop(server) -> float:
    began = time.monotonic()
    server.stop()
    return time.monotonic() - began


def poll_of(topic):
    return PollMessages(
        ConsumerIdentity.single(1), topic.stream, topic.topic, PollingStrategy.first(), 99, 0
    )


@pytest.mark.parametrize("asked", [PING, PING[:5]], ids=["reply-unacknowledged", "half-a-request"])
async def test_stop_when_a_quic_client_is_silent_then_it_is_told_and_the_server_ends_in_time(
    start_server, asked
):
    server = start_server()
    async with connect_peer(server, core=Deaf) as peer:
        await peer.log_in()
        peer.core.unheard = []
        peer.send(asked, finish=asked == PING)
        await peer.until(lambda: peer.core.unheard)

        assert await trio.to_thread.run_sync(timed_stop, server) < STOP_SECONDS_MAX
        await trio.testing.wait_all_tasks_blocked(0.05)

        peer.core.hear_at_last()
        assert "closed" in peer.core._close_event.reason_phrase


@pytest.mark.parametrize("shards", [1, 2])
async def test_stop_when_clients_of_all_transports_do_nothing_then_ends_in_time(
    start_server, shards
):
    server = start_server(shards=shards)
    loud = server.login()
    topic = make_topic(loud)
    for _ in range(16):
        topic.send(*["x" * 1_000_000] * 2)
    polls = frame_of(poll_of(topic)) * 4
    login = frame_of(LoginUser("iggy", "iggy"))
    with contextlib.ExitStack() as stack:
        for name, data in (
            ("tcp", b""),
            ("tcp", login[:7]),
            ("tcp", login + polls),
            ("websocket", b""),
            ("websocket", b"GET / HT"),
            ("http", b""),
            ("http", b"GET / HT"),
            ("http", b"POST /users/login HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"),
        ):
            connected = socket.create_connection(listening_address(server, name))
            stack.enter_context(connected).sendall(data)
        stack.enter_context(WsPeer(listening_address(server))).send(login)
        stuck = stack.enter_context(WsPeer(listening_address(server)))
        stuck.send(login)
        stuck.send(polls)
        async with connect_peer(server, core=Deaf) as peer:
            await peer.log_in()
            peer.core.unheard = []
            peer.send(frame_of(poll_of(topic)))
            await peer.until(lambda: peer.core.unheard)

            assert await trio.to_thread.run_sync(timed_stop, server) < STOP_SECONDS_MAX


async def test_stop_when_clients_behave_then_is_brisk(start_server):
    server = start_server()
    idle = server.login()
    async with connect_peer(server) as peer:
        await peer.log_in()

        async def hang_up_when_told():
            await peer.ended()
            idle.close()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(hang_up_when_told)
            assert await trio.to_thread.run_sync(timed_stop, server) < BRISK_SECONDS_MAX


# A server that died, and its heir


async def test_packets_when_of_a_connection_before_a_crash_then_are_answered_with_its_reset(
    start_server,
):
    server = start_server()
    host, port = listening_address(server, "quic")
    server.settings["IGGY_QUIC_ADDRESS"] = f"{host}:{port}"
    async with connect_peer(server, core=Deaf) as peer:
        assert await peer.ask(PING) == PONG
        peer.core.unheard = []
        token = peer.core._peer_cid.stateless_reset_token
        await trio.to_thread.run_sync(server.kill)
        await trio.to_thread.run_sync(server.start)
        peer.send(PING)
        await peer.until(lambda: peer.core.unheard)

        ((build_reset, _), *_) = peer.core.unheard
        assert len(build_reset) >= RESET_BYTES_MIN
        assert build_reset[0] & 0xC0 == 0x40
        assert hmac.compare_digest(build_reset[-TOKEN_BYTES:], token)


async def test_reset_key_when_made_then_only_its_owner_can_read_it(start_server):
    server = start_server()
    async with connect_peer(server) as peer:
        assert await peer.ask(PING) == PONG
    key = server.data / "certificates" / "quic_reset_key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert len(bytes.fromhex(key.read_text())) == 32

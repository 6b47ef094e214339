"""The QUIC listener of a real server over real UDP: shards, stop, refusals, hostile load."""

from __future__ import annotations

import socket
import time
from contextlib import asynccontextmanager

import pytest
import trio

from iggy_protocol import (
    GetClients,
    GetMe,
    Partitioning,
    Ping,
    SendMessages,
    Transport,
    decode_reply,
)
from iggy_ref_server.net.quic.udp_socket import UdpSocket
from tests.server.features.topic_calls import eventually, frame_of, make_topic
from tests.server.net.ws_peer import listening_address
from tests.server.quic.peer import open_peer
from tests.server.quic.test_packets import PING, PONG
from tests.server.running import RunningServer

pytestmark = [pytest.mark.trio, pytest.mark.timeout(90)]


@asynccontextmanager
async def connect_peer(server, **settings):
    """Connect to the QUIC listener of a server."""
    address = listening_address(server, "quic")
    bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    bound.bind(("127.0.0.1", 0))
    udp = UdpSocket(bound)
    try:
        with trio.fail_after(30):
            async with open_peer(udp, address, **settings) as peer:
                yield peer
    finally:
        udp.close()


def decoded(command, reply):
    assert reply[:4] == bytes(4), reply
    return decode_reply(command.CODE, memoryview(reply)[8:])


async def test_client_when_it_comes_by_quic_then_others_see_how(server):
    async with connect_peer(server) as peer:
        await peer.log_in()
        me = decoded(GetMe, await peer.ask(frame_of(GetMe())))

        assert me.transport is Transport.QUIC
        assert me.address.startswith("127.0.0.1:")
        watcher = server.login()
        seen = [one for one in watcher.ask(GetClients()) if one.client_id == me.client_id]
        assert [one.transport for one in seen] == [Transport.QUIC]
    assert eventually(
        lambda: all(one.client_id != me.client_id for one in watcher.ask(GetClients()))
    )


@pytest.mark.parametrize("shards", [1, 2])
async def test_messages_when_sent_by_quic_then_are_read_by_tcp_on_any_shard(start_server, shards):
    server = start_server(shards=shards)
    topic = make_topic(server.login(), partitions=4)
    async with connect_peer(server) as peer:
        await peer.log_in()
        for partition in range(4):
            for size in (1, 10_000, 1_000_000):
                batch = SendMessages(
                    topic.stream,
                    topic.topic,
                    Partitioning.partition(partition),
                    [bytes([65 + partition]) * size],
                )
                assert await peer.ask(frame_of(batch)) == PONG

    for partition in range(4):
        letter = "ABCD"[partition]
        read = topic.read(partition=partition)
        assert read == [letter, letter * 10_000, letter * 1_000_000]


async def test_server_when_it_stops_then_closes_connections_and_exits_in_good_order(start_server):
    server = start_server()
    async with connect_peer(server) as peer:
        await peer.log_in()
        await trio.to_thread.run_sync(server.stop)

        assert "closed" in (await peer.ended()).reason_phrase


async def test_server_when_started_then_says_where_quic_is_served(server):
    host, port = listening_address(server, "quic")

    assert f"  quic      {host}:{port} with TLS\n" in server.output()


@pytest.mark.parametrize("name", ["QUIC_INITIAL_MTU=1 KB", "QUIC_RECEIVE_WINDOW=1 KB"])
async def test_setting_when_it_cannot_work_then_the_server_says_so(tmp_path, name):
    key, _, value = name.partition("=")
    server = RunningServer(tmp_path, settings={f"IGGY_{key}": value})
    try:
        server.launch()
        assert await trio.to_thread.run_sync(server.wait) == 2
        assert key.lower().replace("quic_", "quic.") in server.output()
    finally:
        server.close()


SLOWEST_S = 5.0


async def test_tcp_when_quic_is_flooded_with_garbage_then_keeps_its_latency(server):
    address = listening_address(server, "quic")
    client = server.login()
    flood = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    flood.connect(address)
    began, slowest_s, pings = time.monotonic(), 0.0, 0
    datagrams = [bytes([first]) + b"\0\0\0\1\x08" + bytes(1300) for first in (0xC0, 0x40, 0xE0)]
    while time.monotonic() - began < 1.0:
        for _ in range(20):
            for data in datagrams:
                flood.send(data)
        asked = time.monotonic()
        client.ask(Ping())
        pings += 1
        slowest_s = max(slowest_s, time.monotonic() - asked)
    flood.close()

    # A busy machine may take its time; a listener that waits for the flood to end would not answer.
    assert pings > 10
    assert slowest_s < SLOWEST_S
    async with connect_peer(server) as peer:
        assert await peer.ask(PING) == PONG

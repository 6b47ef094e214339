"""Sends far ahead of their answers, on a disk that takes its time: the other clients are served."""

from __future__ import annotations

import socket

import pytest
import trio

from iggy_protocol import (
    CreateStream,
    CreateTopic,
    GetTopic,
    LoginUser,
    Partitioning,
    Ping,
    SendMessages,
    client_id,
)
from iggy_ref_server.net.handshakes import HandshakeSocket
from iggy_ref_server.session import ClientSession
from iggy_ref_server.storage.simulated.fault_plan import FaultPlan
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.features.topic_calls import frame_of
from tests.server.net.tls_peer import contexts
from tests.server.simulated.server import Client, open_simulated_server

pytestmark = [pytest.mark.trio, pytest.mark.timeout(60)]

OK = bytes(8)
SEND = frame_of(SendMessages("s", "t", Partitioning.partition(0), [b"m"]))
DEPTH = 3000


def slow_disk(ack):
    """Take a second for each write of messages, or for each sync of them."""
    plan = FaultPlan()
    if ack == "written":
        plan.refuse(path="*.log")
        plan.delay("write", path="*.log", seconds=1)
    else:
        plan.delay("sync", path="*.log", seconds=1)
    return SimulatedStorage(plan)


async def connect_secured(world):
    """Have a client of the first shard with TLS."""
    ours, theirs = socket.socketpair()
    server, trusting = contexts()
    stream = trio.SSLStream(
        trio.SocketStream(trio.socket.from_stdlib_socket(ours)),
        trusting,
        server_hostname="localhost",
        https_compatible=True,
    )
    accepted = HandshakeSocket(theirs)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.do_handshake)
        tls = await accepted.start_tls(server)
    address = "127.0.0.1:49999"
    session = ClientSession(client_id(address), address)
    world.shards[0].socket_server.admit(accepted.detach(), session, tls=tls)
    client = Client(stream)
    await client.ask(LoginUser("iggy", "iggy"))
    return client


async def read_exactly(stream, size):
    received = b""
    while len(received) < size:
        data = await stream.receive_some(size - len(received))
        assert data, "the server has hung up"
        received += data
    return received


@pytest.mark.parametrize("kind", ["plain", "TLS"])
@pytest.mark.parametrize("ack", ["written", "fsync"])
async def test_sends_when_pipelined_onto_a_slow_disk_then_pings_of_others_are_answered_meanwhile(
    ack, kind, autojump_clock
):
    settings = {"SYSTEM_PARTITION_ACK": ack}
    async with open_simulated_server(slow_disk(ack), settings=settings) as world:
        other = await world.log_in()
        await other.ask(CreateStream("s"))
        await other.ask(CreateTopic("s", "t", 1))
        sender = await (connect_secured(world) if kind == "TLS" else world.log_in())
        pings_count, is_over = 0, False

        async def ping():
            nonlocal pings_count
            while not is_over:
                await other.ask(Ping())
                pings_count += 1
                await trio.sleep(0.25)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ping)
            async with trio.open_nursery() as sending:
                sending.start_soon(sender.stream.send_all, SEND * DEPTH)
                replies = await read_exactly(sender.stream, DEPTH * len(OK))
            is_over = True
        assert replies == OK * DEPTH
        assert pings_count >= 4
        topic = await other.ask(GetTopic("s", "t"))
        assert topic is not None
        assert topic.messages_count == DEPTH
        await sender.aclose()

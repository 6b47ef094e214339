"""TCP connections with TLS in the socket room: real sockets, a shard in memory, a frozen clock."""

from __future__ import annotations

import logging
import random
import socket
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from iggy_protocol import (
    ConsumerIdentity,
    CreateStream,
    CreateTopic,
    GetTopic,
    LoginUser,
    NewMessage,
    Partitioning,
    Ping,
    PollingStrategy,
    PollMessages,
    SendMessages,
    StatusCode,
)
from iggy_ref_server.net import socket_io, tls_codec
from iggy_ref_server.net.tls_codec import PLAINTEXT_BYTES_MAX, RECORD_BYTES_MAX
from iggy_ref_server.session import ClientSession
from iggy_ref_server.storage.simulated.fault_plan import FaultPlan
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.features.topic_calls import frame_of
from tests.server.net.tls_peer import connect_tls
from tests.server.simulated.server import open_simulated_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from iggy_ref_server.net.pipeline import RequestPipeline
    from tests.server.net.tls_peer import TlsPeer
    from tests.server.simulated.server import Client, SimulatedServer

pytestmark = pytest.mark.trio

OK = bytes(8)
PING = frame_of(Ping())
LOGIN = frame_of(LoginUser("iggy", "iggy"))
POLL = frame_of(PollMessages(ConsumerIdentity.single(1), "s", "t", PollingStrategy.first(), 1, 0))
PAYLOAD = bytes(range(256)) * 1200
GONE = int(StatusCode.DISCONNECTED).to_bytes(4, "little") + bytes(4)
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


class Stage:
    """A shard with a topic that has one large message, and its clients with TLS."""

    def __init__(self, world: SimulatedServer, plan: FaultPlan, other: Client) -> None:
        self.socket_server = world.shards[0].socket_server
        self.budget = world.shards[0].budget
        self.plan = plan
        self.other = other
        self.peers: list[TlsPeer] = []

    def connect(
        self,
        first: bytes = b"",
        version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
        *,
        send_buffer_bytes: int = 1 << 12,
    ) -> tuple[TlsPeer, RequestPipeline]:
        """Have a client, which may send something with the end of its handshake."""
        peer, theirs, tls = connect_tls(version)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        if first:
            peer.raw.send(peer.encrypt(first))
            # As if it had come with the last message of the handshake.
            tls.receive()
        self.peers.append(peer)
        address = f"127.0.0.1:{len(self.peers)}"
        session = ClientSession(len(self.peers), address)
        return peer, self.socket_server.admit(theirs, session, tls=tls)

    async def log_in(self, **options: int) -> tuple[TlsPeer, RequestPipeline]:
        """Have a client that is logged in."""
        peer, pipeline = self.connect(LOGIN, **options)  # type: ignore[arg-type]
        assert (await read_reply(peer))[:4] == bytes(4)
        return peer, pipeline

    async def is_serving(self) -> None:
        """Check that another client gets its replies."""
        with trio.fail_after(5):
            await self.other.ask(Ping())


async def read_reply(peer: TlsPeer) -> bytes:
    """Return the next reply with its head."""
    with trio.fail_after(5):
        head = await peer.read_exactly(8)
        return head + await peer.read_exactly(int.from_bytes(head[4:], "little"))


async def is_left(peer: TlsPeer) -> bool:
    """Tell whether the server says nothing more, and has ended TLS in order."""
    with trio.fail_after(5):
        return await peer.recv(1) == b"" and not peer.is_cut


@asynccontextmanager
async def open_stage(**settings: str) -> AsyncIterator[Stage]:
    """Run a shard for the time of the block."""
    plan = FaultPlan()
    async with open_simulated_server(SimulatedStorage(plan), settings=settings) as world:
        client = await world.log_in()
        await client.ask(CreateStream("s"))
        await client.ask(CreateTopic("s", "t", 1))
        batch = [NewMessage(PAYLOAD)]
        await client.ask(SendMessages("s", "t", Partitioning.partition(0), batch))
        stage = Stage(world, plan, client)
        try:
            yield stage
        finally:
            for peer in stage.peers:
                peer.close()


def send_of(*sizes: int) -> bytes:
    """Make a send with messages of some sizes."""
    batch = [NewMessage(PAYLOAD[:size]) for size in sizes]
    return frame_of(SendMessages("s", "t", Partitioning.partition(0), batch))


# Reading


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", range(12))
async def test_requests_when_their_ciphertext_is_cut_anywhere_then_are_those_that_were_sent(
    autojump_clock, version, seed
):
    noise = random.Random(seed)
    requests = [
        noise.choice([PING, send_of(10), send_of(noise.randrange(1, 90_000)), send_of(5, 5)])
        for _ in range(noise.randrange(1, 12))
    ]
    async with open_stage() as stage:
        peer, _ = stage.connect(LOGIN, version)
        await read_reply(peer)
        data = b"".join(requests)
        while data:
            size = noise.choice([1, 3, 300, 16_384, 40_000, 200_000])
            ciphertext, data = peer.encrypt(data[:size]), data[size:]
            while ciphertext:
                cut = noise.choice([1, 5, 6, 4000, len(ciphertext)])
                await peer.send_raw(ciphertext[:cut])
                ciphertext = ciphertext[cut:]
                if noise.random() < 0.3:
                    await trio.testing.wait_all_tasks_blocked()

        assert [await read_reply(peer) for _ in requests] == [OK] * len(requests)
        topic = await stage.other.ask(GetTopic("s", "t"))
        assert topic is not None
        expected = 1 + sum(
            2 if request == send_of(5, 5) else request != PING for request in requests
        )
        assert topic.messages_count == expected


async def test_request_when_it_comes_byte_by_byte_then_is_answered(autojump_clock):
    async with open_stage() as stage:
        peer, _ = stage.connect()
        for byte in peer.encrypt(PING):
            await peer.send_raw(bytes([byte]))
            await trio.testing.wait_all_tasks_blocked()

        assert await read_reply(peer) == OK


async def test_requests_when_they_come_with_the_handshake_then_are_answered(autojump_clock):
    async with open_stage() as stage:
        peer, _ = stage.connect(PING * 3)

        assert [await read_reply(peer) for _ in range(3)] == [OK] * 3


async def test_requests_when_received_while_none_may_be_read_then_are_not_forgotten(autojump_clock):
    """All have left the kernel before the first is answered, so no epoll tells of them again."""
    async with open_stage(LIMITS_MAX_REPLY_BACKLOG_BYTES="100 KB") as stage:
        peer, pipeline = await stage.log_in()
        # Small records: the buffer of the protocol takes one at a time.
        await peer.send_raw(b"".join(peer.encrypt(POLL) for _ in range(40)))
        await trio.testing.wait_all_tasks_blocked()
        assert not pipeline.can_read

        replies = [await read_reply(peer) for _ in range(40)]

        assert all(PAYLOAD in reply for reply in replies)
        await peer.send(PING)
        assert await read_reply(peer) == OK


@pytest.mark.parametrize("tail_bytes", [0, 1, 70_000])
async def test_batch_when_large_then_is_taken_whatever_tls_holds_of_it(autojump_clock, tail_bytes):
    """The low mark of the socket must not wait for bytes that are in a record already."""
    async with open_stage() as stage:
        peer, _ = await stage.log_in()
        send = send_of(*[100_000] * 12)
        first, last = send[: len(send) - tail_bytes], send[len(send) - tail_bytes :]
        ciphertext = peer.encrypt(first)
        for start in range(0, len(ciphertext), 90_001):
            await peer.send_raw(ciphertext[start : start + 90_001])
            await trio.testing.wait_all_tasks_blocked()
        await peer.send(last)

        assert await read_reply(peer) == OK


# Writing


async def test_polls_when_pipelined_then_arrive_whole_and_in_order(autojump_clock):
    async with open_stage() as stage:
        peer, _ = await stage.log_in(send_buffer_bytes=1 << 20)
        await peer.send((POLL + PING) * 10)

        for _ in range(10):
            assert (await read_reply(peer)).endswith(PAYLOAD)
            assert await read_reply(peer) == OK


async def test_replies_when_small_then_share_a_record(autojump_clock):
    async with open_stage() as stage:
        peer, _ = stage.connect()
        await peer.send(PING * 100)
        await trio.testing.wait_all_tasks_blocked()

        # One record for as many buffers as one call sends.
        assert len(peer.raw.recv(1 << 16)) <= 100 * len(OK) + 2 * 22


async def test_poll_when_its_pages_are_not_in_memory_then_is_read_in_a_task(autojump_clock):
    async with open_stage() as stage:
        peer, _ = await stage.log_in()
        stage.plan.uncache()
        stage.plan.delay("read", seconds=1)
        began = trio.current_time()
        await peer.send(POLL + PING)
        await stage.is_serving()
        assert trio.current_time() == began

        assert (await read_reply(peer)).endswith(PAYLOAD)
        assert await read_reply(peer) == OK
        assert trio.current_time() > began


async def test_client_when_it_never_reads_then_holds_little_and_is_dropped_in_time(autojump_clock):
    async with open_stage(LIMITS_MAX_REPLY_BACKLOG_BYTES="500 KB") as stage:
        peer, pipeline = await stage.log_in()
        await peer.send(POLL * 20)
        await trio.testing.wait_all_tasks_blocked()
        # Pieces of files cost no memory; what is encrypted does, and is counted.
        assert 0 < len(pipeline.output_buffer.encoded) <= PLAINTEXT_BYTES_MAX + RECORD_BYTES_MAX
        assert pipeline.output_buffer.size_bytes < 2 * 500_000
        assert pipeline.held_bytes >= len(pipeline.output_buffer.encoded)
        assert pipeline.account is not None
        assert pipeline.account.size_bytes == pipeline.held_bytes
        await stage.is_serving()

        await trio.sleep(29)
        await stage.is_serving()
        assert stage.socket_server.plain_count == 2
        await trio.sleep(3)
        await stage.is_serving()

        assert stage.socket_server.plain_count == 1
        assert not pipeline.output_buffer


# The end


@pytest.mark.parametrize("version", VERSIONS)
async def test_client_when_it_ends_tls_in_order_then_is_answered_in_order(autojump_clock, version):
    async with open_stage() as stage:
        peer, _ = stage.connect(PING, version)
        await peer.send_raw(peer.encrypt(PING * 5) + peer.close_notify())

        # The client has closed its TLS object for writing, and still reads.
        data = b""
        with trio.fail_after(5):
            while piece := await peer.socket.recv(1 << 16):
                data += piece
        assert len(data) >= 6 * len(OK)
        await trio.testing.wait_all_tasks_blocked()
        assert stage.socket_server.plain_count == 1


@pytest.mark.parametrize("cut", [1, 4, 5, 6, 20, 29])
async def test_client_when_it_closes_within_a_record_then_is_answered_and_forgotten(
    autojump_clock, caplog, cut
):
    caplog.set_level(logging.WARNING)
    async with open_stage() as stage:
        peer, _ = stage.connect()
        ciphertext = peer.encrypt(PING * 2)
        await peer.send_raw(ciphertext + peer.encrypt(PING)[:cut])
        peer.shutdown(socket.SHUT_WR)

        assert [await read_reply(peer) for _ in range(2)] == [OK] * 2
        assert await is_left(peer)
        await stage.is_serving()
        assert stage.socket_server.plain_count == 1
        assert not caplog.records


async def test_server_when_it_drains_then_replies_the_last_words_and_close_notify_come(
    autojump_clock,
):
    async with open_stage() as stage:
        peer, _ = await stage.log_in()
        await peer.send(POLL * 4)
        await trio.testing.wait_all_tasks_blocked()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stage.socket_server.drain, int(StatusCode.DISCONNECTED))
            replies = [await read_reply(peer) for _ in range(5)]
            assert await is_left(peer)
            peer.close()
            await stage.other.aclose()

        assert [PAYLOAD in reply for reply in replies] == [True] * 4 + [False]
        assert replies[4] == GONE
        assert len(stage.socket_server) == 0


async def test_client_when_it_says_nothing_for_long_then_tls_is_ended_in_order(autojump_clock):
    async with open_stage(LIMITS_IDLE_TIMEOUT="10 s") as stage:
        peer, _ = await stage.log_in()
        await trio.sleep(9)
        assert stage.socket_server.plain_count == 2

        await trio.sleep(3)

        assert await is_left(peer)


# Bytes that are no TLS


@pytest.mark.parametrize("position", ["first", "between", "within a request"])
async def test_bytes_when_they_are_no_tls_then_one_line_says_so_and_others_are_served(
    autojump_clock, caplog, position
):
    caplog.set_level(logging.INFO)
    async with open_stage() as stage:
        peer, _ = stage.connect()
        if position == "between":
            await peer.send(PING * 3)
            assert [await read_reply(peer) for _ in range(3)] == [OK] * 3
        elif position == "within a request":
            await peer.send(PING[:5])
        caplog.clear()

        await peer.send_raw(b"\x17\x03\x03\x00\x20" + bytes(40))
        with pytest.raises(ssl.SSLError, match="ALERT"), trio.fail_after(5):
            await peer.recv(1)

        await stage.is_serving()
        assert stage.socket_server.plain_count == 1
        (line,) = [record for record in caplog.records if record.levelno >= logging.INFO]
        assert line.levelno == logging.INFO
        assert line.exc_info is None
        assert "lost the connection of 127.0.0.1:1" in line.getMessage()


async def test_client_when_it_hoards_and_memory_is_short_then_is_closed(autojump_clock):
    async with open_stage(LIMITS_MEMORY_BUDGET="1 MiB") as stage:
        peer, pipeline = await stage.log_in()
        assert pipeline.account is not None
        pipeline.output_buffer.put(bytes(2 << 20))
        pipeline.update_account()
        stage.socket_server.wake(pipeline)

        await stage.is_serving()

        assert stage.socket_server.plain_count == 1
        assert stage.budget.total_bytes == 0
        await trio.testing.wait_all_tasks_blocked()
        assert not pipeline.output_buffer
        assert peer.raw.fileno() >= 0


async def test_requests_when_a_turn_ends_within_a_record_then_the_next_turn_goes_on(
    autojump_clock, monkeypatch
):
    """The kernel has nothing left, and no reply is there to send: nothing else wakes the server."""
    monkeypatch.setattr(socket_io, "READS_MAX", 1)
    monkeypatch.setattr(tls_codec, "DECRYPTED_BYTES_MAX", 1000)
    async with open_stage() as stage:
        peer, _ = await stage.log_in()
        await peer.send(send_of(9000) + PING)

        assert [await read_reply(peer) for _ in range(2)] == [OK] * 2

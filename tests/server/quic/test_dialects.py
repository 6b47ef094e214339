"""Clients of 0.9 and 0.10 over QUIC: one request on each stream, one login for all of them."""

from __future__ import annotations

import os
from typing import Any

import pytest

from iggy_protocol import (
    VSR_HEAD_BYTES,
    ConsumerIdentity,
    CreateStream,
    CreateTopic,
    Dialect,
    EvictionReason,
    EvictionReceived,
    GetMe,
    GetPartitionRoute,
    GetStream,
    GetStreams,
    LogoutUser,
    PartitionContext,
    Partitioning,
    PasswordCredentials,
    Ping,
    PollingStrategy,
    PollMessages,
    SendMessages,
    StatusCode,
    VsrClientConnection,
    is_vsr_answer,
    vsr_probe,
)
from iggy_protocol.vsr.heads import RequestHead, read_reply_head
from tests.server.quic.quic_harness import open_harness
from tests.server.quic.test_packets import PING, PONG
from tests.server.vsr_client import VSR_DIALECTS, dialect_name, new_session

pytestmark = [pytest.mark.trio, pytest.mark.timeout(60)]

CLIENT = bytes(range(1, 17))
PROBE = vsr_probe(CLIENT)


class VsrQuicClient:
    """A client that sends each request on a stream of its own."""

    def __init__(self, peer, dialect) -> None:
        self.peer = peer
        self.connection: Any = VsrClientConnection(new_session(dialect))

    def encode(self, command, context=None):
        options = {} if context is None else {"context": context}
        parts = self.connection.send(command, **options)
        return b"".join(bytes(part) for part in parts)

    def send(self, command, context=None):
        """Send a request, and return its stream."""
        return self.peer.send(self.encode(command, context))

    async def answer(self, stream_id):
        """Return the event that came on a stream, which ends with it."""
        self.connection.receive_data(await self.peer.reply(stream_id))
        return self.connection.next_event()

    async def ask(self, command, context=None):
        """Send a request and return the reply."""
        return (await self.answer(self.send(command, context))).decode()

    async def log_in(self, password="iggy"):
        """Log in as root, and return what came."""
        register = self.connection.session.register(PasswordCredentials("iggy", password))
        return await self.answer(self.send(register))


@pytest.mark.parametrize("dialect", VSR_DIALECTS, ids=dialect_name)
async def test_client_when_it_logs_in_on_one_stream_then_works_on_all_others(
    tmp_path, autojump_clock, dialect
):
    async with open_harness(tmp_path) as harness, harness.peer() as peer:
        client = VsrQuicClient(peer, dialect)
        assert await client.ask(Ping()) is None
        await client.log_in()
        await client.ask(CreateStream("s"))
        await client.ask(CreateTopic("s", "t", 1))
        context = None
        if dialect.binds_sessions:
            route = await client.ask(GetPartitionRoute("s", "t", 0))
            context = PartitionContext(route.incarnation)
        payloads = [os.urandom(1000) for _ in range(700)]
        sending = SendMessages(
            "s", "t", Partitioning.partition(0), payloads, random=os.urandom(16 * 700)
        )

        assert (await client.ask(sending, context))[0].base_offset == 0
        poll = PollMessages(ConsumerIdentity.single(1), "s", "t", PollingStrategy.first(), 700, 0)
        assert (await client.ask(poll, context)).messages.payloads() == payloads
        assert (await client.ask(GetMe())).user_id == 0


async def test_streams_when_open_before_the_login_then_are_bound_by_it(tmp_path, autojump_clock):
    async with open_harness(tmp_path) as harness, harness.peer() as peer:
        client = VsrQuicClient(peer, Dialect.V0_12_2)
        begun = peer.send(b"\0\0", finish=False)
        await client.log_in()
        peer.send(client.encode(GetStreams())[2:], stream=begun)

        assert (await client.answer(begun)).decode() == ()


async def test_requests_when_side_by_side_then_each_is_answered_on_its_stream(
    tmp_path, autojump_clock
):
    async with open_harness(tmp_path) as harness, harness.peer() as peer:
        client = VsrQuicClient(peer, Dialect.V0_12_0)
        await client.log_in()
        for number in range(20):  # a client has one write of metadata under way
            await client.ask(CreateStream(f"s{number}"))
        streams = [client.send(GetStream(f"s{number}")) for number in range(20)]

        names = [(await client.answer(stream)).decode().name for stream in streams]
        assert names == [f"s{number}" for number in range(20)]


async def test_client_when_it_logs_out_on_a_stream_then_all_others_are_unbound(
    tmp_path, autojump_clock
):
    async with open_harness(tmp_path) as harness, harness.peer() as peer:
        client = VsrQuicClient(peer, Dialect.V0_12_2)
        await client.log_in()
        late = client.encode(GetStreams())
        assert await client.ask(LogoutUser()) is None

        reply = read_reply_head(await peer.ask(late))
        assert reply.status == StatusCode.UNAUTHENTICATED
        await client.log_in()
        assert await client.ask(GetStreams()) == ()


async def test_login_when_refused_then_the_connection_goes_on(tmp_path, autojump_clock):
    async with open_harness(tmp_path) as harness, harness.peer() as peer:
        client = VsrQuicClient(peer, Dialect.V0_11)
        event = await client.log_in("wrong")

        assert isinstance(event, EvictionReceived)
        assert event.reason == EvictionReason.INVALID_CREDENTIALS
        await client.log_in()
        assert await client.ask(GetStreams()) == ()


async def test_request_when_cut_or_wrong_then_its_stream_ends_and_no_other(
    tmp_path, autojump_clock
):
    async with open_harness(tmp_path) as harness, harness.peer() as peer:
        for size in (1, 8, 51, 52, 100, VSR_HEAD_BYTES - 1):
            assert await peer.ask(PROBE[:size]) == b""
        short = RequestHead(size=10, client=CLIENT, operation=2, code=1).encode()
        assert await peer.ask(short) == b""
        unknown = RequestHead(command=6, client=CLIENT).encode()
        assert read_reply_head(await peer.ask(unknown)).status == StatusCode.INVALID_COMMAND
        large = RequestHead(size=1 << 20, client=CLIENT, operation=2, code=201).encode()
        stream_id = peer.send(large, finish=False)
        refused = read_reply_head(await peer.reply(stream_id))
        assert refused.status == StatusCode.UNAUTHENTICATED
        assert is_vsr_answer(await peer.ask(PROBE))
        assert await peer.ask(PING) == PONG


async def test_request_when_it_comes_in_pieces_then_is_answered(tmp_path, autojump_clock):
    async with open_harness(tmp_path) as harness, harness.peer() as peer:
        for cut in (1, 7, 8, 9, 51, 52, 53, 255):
            stream_id = peer.send(PROBE[:cut], finish=False)
            peer.send(PROBE[cut:], stream=stream_id, finish=False)
            assert is_vsr_answer(await peer.reply(stream_id))

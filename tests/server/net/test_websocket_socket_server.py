"""WebSocket connections in the socket room, with TLS and without: real sockets, a shard in memory.

The handshake is left out; what a real server does behind it is in ``test_websocket``.
"""

from __future__ import annotations

import logging
import socket
import ssl
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing
from websockets.client import ClientProtocol
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from iggy_protocol import (
    CommandCode,
    ConsumerIdentity,
    CreateStream,
    CreateTopic,
    LoginUser,
    NewMessage,
    Partitioning,
    Ping,
    PollingStrategy,
    PollMessages,
    SendMessages,
    StatusCode,
    Transport,
    is_vsr_answer,
    vsr_probe,
)
from iggy_protocol.websocket import FrameReader
from iggy_ref_server.net.websocket_codec import WebSocketCodec
from iggy_ref_server.session import ClientSession
from iggy_ref_server.shard import settings
from tests.protocol.websocket.frames import ws_frame
from tests.server.features.topic_calls import frame_of
from tests.server.net.tls_peer import TlsPeer, connect_tls
from tests.server.simulated.server import make_config, open_simulated_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from iggy_ref_server.net.pipeline import RequestPipeline
    from iggy_ref_server.shard.assembly import Shard

pytestmark = pytest.mark.trio

OK = bytes(8)
PING = frame_of(Ping())
LOGIN = ws_frame(frame_of(LoginUser("iggy", "iggy")))
POLL = ws_frame(
    frame_of(PollMessages(ConsumerIdentity.single(1), "s", "t", PollingStrategy.first(), 10, 0))
)
MESSAGE_BYTES = 300_000
GONE = int(StatusCode.DISCONNECTED).to_bytes(4, "little") + bytes(4)


class Peer:
    """The client's end of a connection; reads nothing by itself."""

    def __init__(self, end: trio.socket.SocketType | TlsPeer, pipeline: RequestPipeline) -> None:
        self.socket = end
        self.pipeline = pipeline
        self.protocol = ClientProtocol(parse_uri("ws://x/"), state=State.OPEN, max_size=None)
        self._frames: list[Frame] = []

    async def send(self, data: bytes) -> None:
        """Send any bytes."""
        while data:
            data = data[await self.socket.send(data) :]

    async def read(self) -> Frame:
        """Return the next frame."""
        with trio.fail_after(5):
            while not self._frames:
                data = await self.socket.recv(1 << 16)
                assert data, "the server has hung up"
                self.protocol.receive_data(data)
                assert self.protocol.parser_exc is None
                self._frames += [
                    event for event in self.protocol.events_received() if isinstance(event, Frame)
                ]
        return self._frames.pop(0)

    async def log_in(self) -> None:
        """Log in as root."""
        await self.send(LOGIN)
        assert bytes((await self.read()).data[:4]) == bytes(4)

    async def is_left(self) -> bool:
        """Tell whether the server says nothing more."""
        with trio.fail_after(5):
            return not self._frames and not await self.socket.recv(1)


class Stage:
    """A shard with a topic that has one large message, and its clients."""

    def __init__(self, shard: Shard, *, is_secured: bool) -> None:
        self.socket_server = shard.socket_server
        self.is_secured = is_secured
        self.peers: list[Peer] = []

    def connect(self, rest: bytes = b"", **values: str) -> Peer:
        """Have a client in the socket room, with settings of its own."""
        ours, theirs, tls = connect_tls() if self.is_secured else connect_plain()
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 12)
        config = make_config(values)
        reader = FrameReader(
            ServerProtocol(state=State.OPEN, max_size=None),
            frame_bytes_max=16 << 20,
            message_bytes_max=64 << 20,
        )
        limits = settings.websocket_limits(config)
        receive_bytes = settings.websocket_receive_bytes(config)
        codec = WebSocketCodec(reader, limits, receive_bytes=receive_bytes)
        session = ClientSession(len(self.peers), "127.0.0.1:1", Transport.WEBSOCKET)
        self.peers.append(Peer(ours, self.socket_server.admit(theirs, session, rest, codec, tls)))
        return self.peers[-1]


def connect_plain() -> tuple[trio.socket.SocketType, socket.socket, None]:
    """Make a connection without TLS."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    return trio.socket.from_stdlib_socket(ours), theirs, None


@pytest.fixture(params=[False, True], ids=["plain", "TLS"])
def open_stage(request):
    """Run a shard whose clients come in one of both ways."""
    return partial(open_world, is_secured=request.param)


@asynccontextmanager
async def open_world(*, is_secured: bool) -> AsyncIterator[Stage]:
    """Run a shard for the time of the block."""
    async with open_simulated_server() as world:
        client = await world.log_in()
        await client.ask(CreateStream("s"))
        await client.ask(CreateTopic("s", "t", 1))
        batch = [NewMessage(bytes(MESSAGE_BYTES))]
        await client.ask(SendMessages("s", "t", Partitioning.partition(0), batch))
        stage = Stage(world.shards[0], is_secured=is_secured)
        try:
            yield stage
        finally:
            for peer in stage.peers:
                peer.socket.close()


def kind(frame: Frame) -> str:
    """Name a frame: the answer to a ping of Iggy or to a poll, or what else it is."""
    data = bytes(frame.data)
    if frame.opcode is not Opcode.BINARY:
        return f"{frame.opcode.name} {data.decode('latin1')}".strip()
    assert int.from_bytes(data[4:8], "little") == len(data) - 8
    return "ok" if data == OK else "polled" if len(data) > MESSAGE_BYTES else str(data[0])


async def test_pings_when_between_large_polls_then_are_answered_at_the_borders_of_frames(
    open_stage, autojump_clock
):
    async with open_stage() as stage:
        peer = stage.connect()
        await peer.log_in()
        for number in range(5):
            await peer.send(POLL + ws_frame(b"%d" % number, Opcode.PING) + ws_frame(PING))
            await trio.testing.wait_all_tasks_blocked()

        kinds = [kind(await peer.read())]
        while len(kinds) < 12 or kinds[-1] != "PONG 4":
            kinds.append(kind(await peer.read()))

        # One answer waits among the replies at a time; of the others, that to the last ping counts.
        pongs = [name for name in kinds if "PONG" in name]
        assert pongs == ["PONG 0", "PONG 1", "PONG 4"]
        assert [name for name in kinds if name not in pongs] == ["polled", "ok"] * 5


async def test_close_when_polls_are_owed_then_follows_the_last_of_them(open_stage, autojump_clock):
    async with open_stage() as stage:
        peer = stage.connect()
        await peer.log_in()
        close = ws_frame(b"\x03\xe8", Opcode.CLOSE)

        await peer.send(POLL * 3 + ws_frame(PING) + close + ws_frame(PING))
        kinds = [kind(await peer.read()) for _ in range(5)]

        assert kinds == ["polled", "polled", "polled", "ok", "CLOSE \x03\xe8"]
        assert await peer.is_left()


async def test_requests_when_a_bad_frame_follows_then_are_answered_before_the_close(
    open_stage, autojump_clock
):
    async with open_stage() as stage:
        peer = stage.connect(ws_frame(PING) * 2 + ws_frame(PING, mask=None))

        frames = [await peer.read() for _ in range(3)]

        assert [kind(frame) for frame in frames[:2]] == ["ok", "ok"]
        assert int.from_bytes(bytes(frames[2].data[:2]), "big") == CloseCode.PROTOCOL_ERROR
        assert await peer.is_left()


async def test_answer_when_it_ends_the_connection_then_a_close_frame_follows(
    open_stage, autojump_clock
):
    async with open_stage() as stage:
        peer = stage.connect()
        oversized = (11 << 20).to_bytes(4, "little") + int(CommandCode.PING).to_bytes(4, "little")

        await peer.send(ws_frame(oversized))
        answer, close = await peer.read(), await peer.read()

        assert bytes(answer.data[:4]) != bytes(4)
        assert (close.opcode, bytes(close.data)) == (Opcode.CLOSE, b"\x03\xe9")
        assert await peer.is_left()


async def test_end_when_a_request_is_being_worked_on_then_its_answer_comes_first(
    open_stage, autojump_clock
):
    async with open_stage() as stage:
        peer = stage.connect()
        await peer.log_in()
        await peer.send(ws_frame(frame_of(CreateStream("another"))))
        while not peer.pipeline.is_busy:
            await trio.lowlevel.checkpoint()

        peer.pipeline.end()
        answer, close = await peer.read(), await peer.read()

        assert bytes(answer.data[:4]) == bytes(4)
        assert kind(close) == "CLOSE \x03\xe9"
        assert await peer.is_left()


async def test_client_when_it_hangs_up_half_then_is_answered_and_not_told_to_close(
    open_stage, autojump_clock
):
    async with open_stage() as stage:
        peer = stage.connect()
        await peer.log_in()
        await peer.send(POLL * 2 + ws_frame(PING) + ws_frame(PING)[:5])
        peer.socket.shutdown(socket.SHUT_WR)

        assert [kind(await peer.read()) for _ in range(3)] == ["polled", "polled", "ok"]
        assert await peer.is_left()


async def test_drain_when_much_is_owed_then_answers_come_before_the_last_words(
    open_stage, autojump_clock
):
    async with open_stage() as stage:
        peer = stage.connect()
        await peer.log_in()
        await peer.send(POLL * 5 + ws_frame(PING)[:5])
        await trio.testing.wait_all_tasks_blocked()
        assert peer.pipeline.has_unsent_replies

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stage.socket_server.drain, int(StatusCode.DISCONNECTED))
            frames = [await peer.read() for _ in range(7)]
            assert await peer.is_left()
            peer.socket.close()

        assert [kind(frame) for frame in frames[:5]] == ["polled"] * 5
        assert bytes(frames[5].data) == GONE
        assert kind(frames[6]) == "CLOSE \x03\xe9"
        assert len(stage.socket_server) == 0


async def test_pings_when_their_answers_are_not_read_then_nothing_piles_up(
    open_stage, autojump_clock
):
    async with open_stage() as stage:
        peer = stage.connect()
        for number in range(3000):
            await peer.send(ws_frame(b"%100d" % number, Opcode.PING))
            if number % 10 == 0:
                await trio.testing.wait_all_tasks_blocked()

        # With TLS one is encrypted already, and in a record of its own.
        bytes_max = 102 + (102 + 22 if stage.is_secured else 0)
        assert 0 < peer.pipeline.output_buffer.size_bytes <= bytes_max
        frame = await peer.read()
        assert frame.opcode is Opcode.PONG
        while int(bytes(frame.data)) < 2999:
            frame = await peer.read()
        await peer.send(ws_frame(PING))
        assert kind(await peer.read()) == "ok"


async def test_client_when_it_stops_reading_then_is_not_read_and_dropped_in_time(
    open_stage, autojump_clock
):
    async with open_stage() as stage:
        peer = stage.connect(LIMITS_MAX_REPLY_BACKLOG_BYTES="500 KB")
        await peer.log_in()
        await peer.send(POLL * 20)
        await trio.testing.wait_all_tasks_blocked()
        assert 500_000 <= peer.pipeline.output_buffer.size_bytes < 700_000

        await trio.sleep(29)
        await trio.testing.wait_all_tasks_blocked()
        assert stage.socket_server.codec_count == 1
        await trio.sleep(3)
        await trio.testing.wait_all_tasks_blocked()

        assert stage.socket_server.codec_count == 0
        assert not peer.pipeline.output_buffer


async def test_client_when_it_says_nothing_for_long_then_is_told_in_a_close_frame(
    open_stage, autojump_clock
):
    async with open_stage() as stage:
        peer = stage.connect(LIMITS_WEBSOCKET_IDLE_TIMEOUT="10 s")
        await peer.log_in()
        await trio.sleep(9)
        await peer.send(ws_frame(PING))
        assert kind(await peer.read()) == "ok"
        await trio.sleep(9)
        await trio.testing.wait_all_tasks_blocked()
        assert peer.pipeline.is_open

        await trio.sleep(3)

        assert kind(await peer.read()) == "CLOSE \x03\xe9"
        assert await peer.is_left()


async def test_client_when_it_is_gone_then_is_told_of_once_and_not_counted(
    open_stage, autojump_clock
):
    async with open_stage() as stage:
        told: list[ClientSession] = []
        stage.socket_server._on_disconnect = told.append
        plain_count = stage.socket_server.plain_count
        peers = [stage.connect() for _ in range(3)]
        assert stage.socket_server.codec_count == 3

        await peers[0].send(ws_frame(PING)[:5])
        peers[0].socket.close()
        await peers[1].send(ws_frame(b"", Opcode.CLOSE))
        assert kind(await peers[1].read()) == "CLOSE"
        peers[1].socket.close()
        peers[2].pipeline.end()
        assert kind(await peers[2].read()) == "CLOSE \x03\xe9"
        peers[2].socket.close()
        await trio.testing.wait_all_tasks_blocked()

        assert sorted(map(id, told)) == sorted(id(peer.pipeline.session) for peer in peers)
        assert (stage.socket_server.codec_count, stage.socket_server.plain_count) == (
            0,
            plain_count,
        )


@pytest.mark.parametrize("step", [1, 5, 4000])
async def test_sends_when_pipelined_and_cut_anywhere_then_each_is_acknowledged(
    open_stage, autojump_clock, step
):
    async with open_stage() as stage:
        peer = stage.connect()
        await peer.log_in()
        batch = [NewMessage(b"x")]
        sends = frame_of(SendMessages("s", "t", Partitioning.partition(0), batch)) * 40
        data = b"".join(ws_frame(sends[start : start + 100]) for start in range(0, len(sends), 100))

        for start in range(0, len(data), step):
            await peer.send(data[start : start + step])

        assert [kind(await peer.read()) for _ in range(40)] == ["ok"] * 40


async def test_batch_when_large_then_comes_together_over_many_frames(open_stage, autojump_clock):
    async with open_stage() as stage:
        peer = stage.connect()
        await peer.log_in()
        batch = [NewMessage(bytes([number]) * 100_000) for number in range(20)]
        send = frame_of(SendMessages("s", "t", Partitioning.partition(0), batch))
        first = ws_frame(send[:700_000], fin=False)
        data = first + ws_frame(send[700_000:], Opcode.CONT) + ws_frame(PING) + POLL

        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.send, data)
            frames = [await peer.read() for _ in range(3)]

        assert [kind(frame) for frame in frames] == ["ok", "ok", "polled"]
        for message in batch[:9]:
            assert message.payload in bytes(frames[2].data)


async def test_client_of_0_9_when_it_asks_then_gets_one_message_for_each_reply(
    open_stage, autojump_clock
):
    probe = vsr_probe(bytes(range(1, 17)))
    async with open_stage() as stage:
        peer = stage.connect()
        await peer.send(ws_frame(probe) * 2 + ws_frame(probe[:100]) + ws_frame(probe[100:]))

        for _ in range(3):
            frame = await peer.read()
            assert (frame.opcode, frame.fin) == (Opcode.BINARY, True)
            assert is_vsr_answer(frame.data)


# TLS below the frames


@pytest.fixture
def secured():
    """Run a shard whose clients come with TLS."""
    return partial(open_world, is_secured=True)


def end_of(peer: Peer) -> TlsPeer:
    """Return the client's TLS."""
    assert isinstance(peer.socket, TlsPeer)
    return peer.socket


async def test_frames_when_their_ciphertext_comes_byte_by_byte_then_are_answered(
    secured, autojump_clock
):
    async with secured() as stage:
        peer = stage.connect()
        end = end_of(peer)
        for byte in end.encrypt(ws_frame(PING) + ws_frame(b"?", Opcode.PING)):
            await end.send_raw(bytes([byte]))
            await trio.testing.wait_all_tasks_blocked()

        assert sorted([kind(await peer.read()), kind(await peer.read())]) == ["PONG ?", "ok"]


async def test_frames_when_several_records_hold_them_and_none_may_be_read_then_none_is_forgotten(
    secured, autojump_clock
):
    async with secured() as stage:
        peer = stage.connect(LIMITS_MAX_REPLY_BACKLOG_BYTES="100 KB")
        await peer.log_in()
        end = end_of(peer)
        await end.send_raw(b"".join(end.encrypt(POLL) for _ in range(20)))
        await trio.testing.wait_all_tasks_blocked()
        assert not peer.pipeline.can_read

        assert [kind(await peer.read()) for _ in range(20)] == ["polled"] * 20


@pytest.mark.parametrize("cut", [1, 5, 6, 30])
async def test_client_when_it_closes_within_a_record_then_is_answered_and_forgotten(
    secured, autojump_clock, cut
):
    async with secured() as stage:
        peer = stage.connect()
        end = end_of(peer)
        ciphertext = end.encrypt(ws_frame(PING))
        await end.send_raw(ciphertext + end.encrypt(ws_frame(PING))[:cut])
        end.shutdown(socket.SHUT_WR)

        assert kind(await peer.read()) == "ok"
        assert await peer.is_left()
        await trio.testing.wait_all_tasks_blocked()
        assert stage.socket_server.codec_count == 0


@pytest.mark.parametrize("begun", [b"", ws_frame(PING)[:5]], ids=["between", "within a frame"])
async def test_bytes_when_they_are_no_tls_then_one_line_says_so_and_others_are_served(
    secured, autojump_clock, caplog, begun
):
    caplog.set_level(logging.INFO)
    async with secured() as stage:
        peer, other = stage.connect(), stage.connect()
        end = end_of(peer)
        await end.send(ws_frame(PING) + begun)
        assert kind(await peer.read()) == "ok"
        caplog.clear()

        await end.send_raw(b"\x17\x03\x03\x00\x20" + bytes(40))
        with pytest.raises(ssl.SSLError, match="ALERT"):
            await peer.read()

        await other.send(ws_frame(PING))
        assert kind(await other.read()) == "ok"
        assert stage.socket_server.codec_count == 1
        (line,) = caplog.records
        assert (line.levelno, line.exc_info) == (logging.INFO, None)

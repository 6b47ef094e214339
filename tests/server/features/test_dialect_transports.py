"""Clients of 0.9 and 0.10 over TLS and WebSocket, moved between shards, stale, and on bad data."""

from __future__ import annotations

import os
from itertools import product

import pytest

from iggy_protocol import (
    NO_CONTEXT,
    ConsumerIdentity,
    CreateStream,
    CreateTopic,
    Dialect,
    EvictionReason,
    GetMe,
    GetStreams,
    Partitioning,
    Ping,
    PollingStrategy,
    PollMessages,
    SendMessages,
    StatusCode,
    Transport,
)
from iggy_ref_server.session import MIGRATION_REQUESTS_MIN
from tests.protocol.websocket.frames import ws_frame
from tests.server.features.test_migration import holder_of, partition_of
from tests.server.features.test_unauthenticated import trusting
from tests.server.net.ws_peer import WsPeer, listening_address
from tests.server.vsr_client import VSR_DIALECTS, Evicted, VsrClient, connections, dialect_name
from tests.server.wire_client import ConnectionLost

MIB = 1 << 20
ONE = ConsumerIdentity.single(1)


def make_topic(server, partitions=1):
    root = server.login()
    root.ask(CreateStream("s"))
    root.ask(CreateTopic("s", "t", partitions))
    return root


def send_of(payloads, partition_id=0, stream="s"):
    random = os.urandom(16 * len(payloads))
    return SendMessages(stream, "t", Partitioning.partition(partition_id), payloads, random=random)


def poll_of(count, partition_id=0, stream="s", **options):
    strategy = options.pop("strategy", PollingStrategy.first())
    return PollMessages(ONE, stream, "t", strategy, count, partition_id, **options)


class WsWire:
    """A WebSocket as a wire; every message of the server must be one frame of the protocol."""

    def __init__(self, peer: WsPeer, *, cut: int = 0) -> None:
        self.peer = peer
        self.cut = cut
        self.frames_count = 0

    def sendall(self, data):
        data = bytes(data)
        size = self.cut or len(data)
        for at in range(0, len(data), size):
            self.peer.send_raw(ws_frame(data[at : at + size]))

    def recv(self, size):
        message = b""
        while True:
            frame = self.peer.read_frame()
            self.frames_count += 1
            message += bytes(frame.data)
            if frame.fin:
                assert int.from_bytes(message[48:52], "little") == len(message)
                return message

    def close(self):
        self.peer.socket.close()


@pytest.mark.parametrize("dialect", VSR_DIALECTS, ids=dialect_name)
def test_client_when_it_connects_with_tls_then_is_served(start_server, dialect):
    server = start_server(settings={"IGGY_TCP_TLS_ENABLED": "true"})
    with VsrClient.connect(server.address, dialect, tls=trusting()) as client:
        client.login()
        client.ask(CreateStream("s"))
        client.ask(CreateTopic("s", "t", 1))
        context = client.route("s", "t", 0)
        payloads = [os.urandom(1000) for _ in range(500)]

        assert client.ask(send_of(payloads), context)[0].base_offset == 0
        assert client.ask(poll_of(500), context).messages.payloads() == payloads
    server.stop()


@pytest.mark.parametrize("is_secured", [False, True], ids=["plain", "TLS"])
def test_client_when_it_connects_over_websocket_then_each_reply_is_one_message(
    start_server, is_secured
):
    """Requests may be cut into any messages."""
    server = start_server(settings={"IGGY_WEBSOCKET_TLS_ENABLED": "true"} if is_secured else {})
    payloads = [os.urandom(1000) for _ in range(300)]
    for dialect, cut in product(VSR_DIALECTS, (0, 100, 300)):
        peer = WsPeer(listening_address(server), tls=trusting() if is_secured else None)
        wire, name = WsWire(peer, cut=cut), f"{dialect.name} {cut}"
        with VsrClient(wire, dialect) as client:
            assert client.ask(Ping()) is None
            client.login()
            client.ask(CreateStream(name))
            client.ask(CreateTopic(name, "t", 1))
            context = client.route(name, "t", 0)

            assert client.ask(send_of(payloads, stream=name), context)[0].base_offset == 0
            polled = client.ask(poll_of(300, stream=name), context)
            assert polled.messages.payloads() == payloads
            assert client.refusal(CreateStream(name)) == StatusCode.STREAM_NAME_ALREADY_EXISTS
            assert client.ask(GetMe()).transport is Transport.WEBSOCKET
            assert wire.frames_count == 8 + dialect.binds_sessions
    server.stop()


def test_reply_when_longer_than_a_frame_of_websocket_then_is_one_message_of_several(start_server):
    server = start_server()
    root = make_topic(server)
    payloads = [os.urandom(MIB) for _ in range(20)]
    for start in range(0, 20, 5):
        root.ask(send_of(payloads[start : start + 5]))
    wire = WsWire(WsPeer(listening_address(server)))
    with VsrClient(wire, Dialect.V0_11) as client:
        client.login()
        before = wire.frames_count

        assert client.ask(poll_of(20)).messages.payloads() == payloads
        assert wire.frames_count - before == 2
        assert client.ask(Ping()) is None
    server.stop()


# Connections that move


@pytest.mark.parametrize("what", ["sends", "polls"])
def test_client_when_it_uses_another_shard_then_moves_there_with_its_session(start_server, what):
    server = start_server(shards=2)
    root, sent = make_topic(server, 8), dict.fromkeys(range(8), 0)
    for dialect in VSR_DIALECTS:
        with VsrClient.connect(server.address, dialect) as client:
            client.login()
            session, holders = client.session.session, []
            for shard_id in (0, 1):
                number = partition_of(shard_id)
                context = client.route("s", "t", number)
                for _ in range(2 * MIGRATION_REQUESTS_MIN):
                    if what == "sends":
                        client.ask(send_of([b"m"], number), context)
                        sent[number] += 1
                    else:
                        client.ask(poll_of(1, number), context)
                holders.append(holder_of(client, server))

            assert None not in holders
            assert len(set(holders)) == 2
            assert client.ask(CreateStream(f"{dialect.name}")).name == dialect.name
            assert client.session.session == session
            assert client.ask(GetMe()).address == client.local_address
    for number, count in sent.items():
        assert root.ask(poll_of(100, number)).messages_count == count
    server.stop()


# Clients that are silent


def test_clients_when_silent_for_long_then_are_evicted_and_busy_ones_are_not(start_server):
    server = start_server(
        settings={"IGGY_HEARTBEAT_ENABLED": "true", "IGGY_HEARTBEAT_INTERVAL": "2 s"}
    )
    with connections(server.address) as connect:
        silent = [connect(dialect) for dialect in VSR_DIALECTS]
        busy = [connect(dialect) for dialect in VSR_DIALECTS]
        for client in silent:
            client.socket.settimeout(0.05)
        reasons: dict[Dialect, int] = {}
        while len(reasons) < len(silent):
            for active, client in zip(busy, silent, strict=True):
                # Any request is a heartbeat, not only a ping.
                active.ask(GetStreams())
                if client.dialect in reasons:
                    continue
                try:
                    client.receive()
                except TimeoutError:
                    continue
                except Evicted as evicted:
                    reasons[client.dialect] = evicted.reason

        assert set(reasons.values()) == {EvictionReason.STALE_CLIENT}
        for active, client in zip(busy, silent, strict=True):
            assert active.ask(Ping()) is None
            client.socket.settimeout(10)
            with pytest.raises(ConnectionLost):
                client.receive()
    server.stop()


# What is stored


@pytest.mark.parametrize("dialect", VSR_DIALECTS, ids=dialect_name)
def test_messages_when_encrypted_on_the_disk_then_are_read_as_they_were_sent(start_server, dialect):
    server = start_server(
        settings={
            "IGGY_SYSTEM_ENCRYPTION_ENABLED": "true",
            "IGGY_SYSTEM_ENCRYPTION_KEY": "/rvT1xP4V8u1EAhk4xDdqzqM2UOPXyy9XYkl4uRShgE=",
        }
    )
    make_topic(server)
    with VsrClient.connect(server.address, dialect) as client:
        client.login()
        context = client.route("s", "t", 0)
        payloads = [b"%d" % number * number for number in range(50)]

        assert client.ask(send_of(payloads), context)[0].base_offset == 0
        polled = client.ask(poll_of(50), context)
        assert polled.messages.payloads() == payloads
        polled.messages.verify()
    log = next((server.data / "streams").rglob("*.log")).read_bytes()
    assert payloads[40] not in log
    server.stop()


# The head of a stored message has 64 bytes; the length of its payload stands at 52.
DAMAGES = {"payload": 0, "length": -12}


@pytest.mark.parametrize("dialect", VSR_DIALECTS, ids=dialect_name)
@pytest.mark.parametrize("what", DAMAGES)
def test_messages_when_one_is_damaged_then_those_before_it_come_and_then_the_error(
    start_server, dialect, what
):
    """The damage is found although the messages were read before and are known to be good."""
    server = start_server()
    make_topic(server)
    with VsrClient.connect(server.address, dialect) as client:
        client.login()
        context = client.route("s", "t", 0)
        for number in range(10):
            client.ask(send_of([b"payload %d" % number]), context)
        next_poll = poll_of(10, strategy=PollingStrategy.next(), auto_commit=True)
        assert client.ask(poll_of(10), context).messages_count == 10
        log = next((server.data / "streams").rglob("*.log"))
        at = log.read_bytes().index(b"payload 6") + DAMAGES[what]
        with log.open("r+b") as file:
            file.seek(at)
            file.write(b"\xff")

        intact = [b"payload %d" % number for number in range(6)]
        assert client.ask(next_poll, context).messages.payloads() == intact
        assert client.refusal(next_poll, context) == StatusCode.CANNOT_READ_MESSAGE
        beyond = poll_of(10, strategy=PollingStrategy.offset(7))
        assert client.ask(beyond, context).messages_count == 3
    server.stop()


def test_messages_when_written_with_deduplication_then_the_confirmation_tells_what_is_new(
    start_server,
):
    server = start_server(shards=2, settings={"IGGY_SYSTEM_MESSAGE_DEDUPLICATION_ENABLED": "true"})
    make_topic(server, 8)
    with VsrClient.connect(server.address, Dialect.V0_11) as client:
        client.login()
        for shard_id in (0, 1):
            number = partition_of(shard_id)

            def send(*ids, number=number):
                random = b"".join(one.to_bytes(16, "little") for one in ids)
                payloads = [b"%d" % one for one in ids]
                partitioning = Partitioning.partition(number)
                return client.ask(
                    SendMessages("s", "t", partitioning, payloads, random=random), NO_CONTEXT
                )

            assert send(1, 2)[0].base_offset == 0
            assert send(2, 3)[0].base_offset == 2
            assert send(1, 2, 3) is None
            assert send(4)[0].base_offset == 3
            assert client.ask(poll_of(10, number)).messages.payloads() == [b"1", b"2", b"3", b"4"]
    server.stop()


@pytest.mark.parametrize("ack", ["memory", "written", "fsync"])
def test_send_when_acknowledged_in_any_way_then_the_confirmation_tells_the_offset(
    start_server, ack
):
    server = start_server(shards=2, settings={"IGGY_SYSTEM_PARTITION_ACK": ack})
    make_topic(server, 8)
    with VsrClient.connect(server.address, Dialect.V0_12_2) as client:
        client.login()
        for shard_id in (0, 1):
            number = partition_of(shard_id)
            context = client.route("s", "t", number)
            for base_offset in range(0, 10, 2):
                (place,) = client.ask(send_of([b"a", b"b"], number), context)
                assert (place.partition_id, place.base_offset) == (number, base_offset)
            assert client.ask(poll_of(100, number), context).messages_count == 10
    server.stop()

"""The WebSocket listener of a real server: what official clients do, and what none should."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time

import pytest
import trustme
from websockets.frames import CloseCode, Opcode

from iggy_protocol import (
    ClientConnection,
    ConsumerIdentity,
    GetClusterMetadata,
    GetMe,
    GetStats,
    NewMessage,
    Partitioning,
    Ping,
    PollingStrategy,
    PollMessages,
    ResponseReceived,
    SendMessages,
    StatusCode,
    Transport,
)
from tests.certificates import Certificate
from tests.protocol.websocket.frames import ws_frame
from tests.server.features.topic_calls import eventually, frame_of, make_topic, unique
from tests.server.net.ws_peer import REQUEST, WsPeer, listening_address, read_to_end
from tests.server.running import RunningServer, ServerFailed

pytestmark = pytest.mark.timeout(90)

OK = bytes(8)
PING = frame_of(Ping())
LARGE = 300_000
# Other programs use the machine as well; a listener that stands still does so for longer.
ANSWER_SECONDS_MAX = 2.0


@pytest.fixture(params=[1, 2], ids=["one shard", "two shards"], scope="module")
def running(request, tmp_path_factory):
    """One server for the tests that leave it as it was."""
    settings = {"IGGY_LIMITS_WEBSOCKET_HANDSHAKE_TIMEOUT": "1 s"}
    folder = tmp_path_factory.mktemp("ws")
    with RunningServer(folder, shards=request.param, settings=settings) as server:
        yield server


@pytest.fixture
def peer(running):
    """A connection that is logged in."""
    with WsPeer(listening_address(running)) as connected:
        connected.login()
        yield connected


def ask(peer, command):
    """Ask over a WebSocket and decode the answer."""
    connection = ClientConnection()
    peer.send(b"".join(bytes(buffer) for buffer in connection.send(command)))
    connection.receive_data(peer.read())
    event = connection.next_event()
    assert isinstance(event, ResponseReceived), event
    return event.decode()


def test_client_when_it_comes_by_websocket_then_is_listed_so(running, peer):
    me = ask(peer, GetMe())

    assert me.transport is Transport.WEBSOCKET
    assert me.address == "{}:{}".format(*peer.socket.getsockname())
    assert ask(peer, GetStats()).clients_count >= 1


def test_cluster_when_asked_for_then_names_the_ports_that_were_bound(running, peer):
    (node,) = ask(peer, GetClusterMetadata()).nodes

    assert node.websocket_port == listening_address(running)[1]
    assert node.http_port == listening_address(running, "http")[1]
    assert node.tcp_port == running.address[1]


def test_messages_when_sent_here_then_are_read_at_both_doors(running, peer):
    client = running.login()
    topic = make_topic(client, partitions=3)
    for partition in range(3):
        batch = [NewMessage(b"%d" % number) for number in range(50)]
        ask(
            peer,
            SendMessages(topic.stream, topic.topic, Partitioning.partition(partition), batch),
        )

    for partition in range(3):
        assert topic.read(partition=partition) == [str(number) for number in range(50)]
        polled = ask(
            peer,
            PollMessages(
                ConsumerIdentity.single(9),
                topic.stream,
                topic.topic,
                PollingStrategy.first(),
                50,
                partition,
            ),
        )
        assert [bytes(one.payload) for one in polled.messages] == [
            b"%d" % number for number in range(50)
        ]


def test_replies_when_large_then_each_is_one_frame(running, peer):
    topic = make_topic(running.login())
    batch = [NewMessage(bytes([number]) * 1000) for number in range(256)] * 2
    ask(peer, SendMessages(topic.stream, topic.topic, Partitioning.partition(0), batch))

    poll = PollMessages(
        ConsumerIdentity.single(1), topic.stream, topic.topic, PollingStrategy.first(), 512, 0
    )
    polled = ask(peer, poll)

    assert [bytes(one.payload) for one in polled.messages] == [one.payload for one in batch]


def poll_of(topic, count: int) -> PollMessages:
    """Ask for the first messages."""
    first = PollingStrategy.first()
    return PollMessages(ConsumerIdentity.single(1), topic.stream, topic.topic, first, count, 0)


def test_poll_when_longer_than_clients_take_in_a_frame_then_arrives_whole(running, peer):
    topic = make_topic(running.login())
    payloads = [bytes([number]) * (1 << 20) for number in range(36)]
    for start in range(0, 36, 12):
        topic.send(*[NewMessage(payload) for payload in payloads[start : start + 12]])

    connection = ClientConnection()
    request = b"".join(bytes(buffer) for buffer in connection.send(poll_of(topic, 36)))
    peer.send_raw(ws_frame(request) + ws_frame(b"", Opcode.PING))
    frames = [peer.read_frame()]
    while not frames[-1].fin or frames[-1].opcode is Opcode.PONG:
        frames.append(peer.read_frame())
    frames = [frame for frame in frames if frame.opcode is not Opcode.PONG]

    assert [frame.opcode for frame in frames] == [Opcode.BINARY, Opcode.CONT, Opcode.CONT]
    assert [len(frame.data) for frame in frames[:2]] == [16 << 20] * 2
    connection.receive_data(b"".join(bytes(frame.data) for frame in frames))
    event = connection.next_event()
    assert isinstance(event, ResponseReceived), event
    assert [bytes(one.payload) for one in event.decode().messages] == payloads


def test_requests_when_pipelined_then_each_reply_is_a_message_of_its_own(peer):
    peer.send_raw(ws_frame(PING) * 500)

    assert [peer.read() for _ in range(500)] == [OK] * 500


def test_request_when_split_over_messages_and_frames_then_is_put_together(peer):
    peer.send(PING[:3])
    peer.send_raw(ws_frame(PING[3:5], fin=False) + ws_frame(b"", Opcode.CONT, fin=False))
    peer.send_raw(ws_frame(b"", Opcode.PING) + ws_frame(PING[5:] + PING, Opcode.CONT))

    frames = [peer.read_frame() for _ in range(3)]

    assert sorted((frame.opcode, bytes(frame.data)) for frame in frames) == [
        (Opcode.BINARY, OK),
        (Opcode.BINARY, OK),
        (Opcode.PONG, b""),
    ]


def test_request_when_it_comes_byte_by_byte_then_is_answered(peer):
    for byte in ws_frame(PING):
        peer.send_raw(bytes([byte]))

    assert peer.read() == OK


def test_text_when_sent_then_is_ignored_as_by_the_original(peer):
    peer.send_raw(ws_frame(PING, Opcode.TEXT))
    peer.send_raw(ws_frame(PING[:2], Opcode.TEXT, fin=False) + ws_frame(PING[2:], Opcode.CONT))
    peer.send(frame_of(GetStats()))

    assert peer.read()[:4] == bytes(4)
    peer.send(PING)
    assert peer.read() == OK


def test_ping_when_sent_then_is_answered_once_between_frames(peer):
    peer.send_raw(ws_frame(b"are you there", Opcode.PING))

    frame = peer.read_frame()

    assert (frame.opcode, bytes(frame.data)) == (Opcode.PONG, b"are you there")
    peer.send(PING)
    assert peer.read() == OK


def test_close_when_it_follows_requests_then_they_are_answered_before_it(peer):
    peer.send_raw(ws_frame(PING) * 20 + ws_frame(b"\x03\xe8bye", Opcode.CLOSE))

    assert [peer.read() for _ in range(20)] == [OK] * 20
    close = peer.read_frame()
    assert (close.opcode, bytes(close.data)) == (Opcode.CLOSE, b"\x03\xe8bye")
    assert peer.socket.recv(1) == b""


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (ws_frame(PING, mask=None), CloseCode.PROTOCOL_ERROR),
        (ws_frame(PING, Opcode.CONT), CloseCode.PROTOCOL_ERROR),
        (ws_frame(PING, 3), CloseCode.PROTOCOL_ERROR),
        (b"\xc2\x80abcd", CloseCode.PROTOCOL_ERROR),
        (ws_frame(bytes(126), Opcode.PING), CloseCode.PROTOCOL_ERROR),
        (ws_frame(PING, fin=False) + ws_frame(PING), CloseCode.PROTOCOL_ERROR),
        (b"\x82\xff" + (17 << 20).to_bytes(8, "big") + b"abcd", CloseCode.MESSAGE_TOO_BIG),
        (ws_frame(b"\xff", Opcode.CLOSE), CloseCode.PROTOCOL_ERROR),
    ],
    ids=["unmasked", "stray", "opcode", "reserved", "long ping", "nested", "oversized", "close"],
)
def test_frame_when_it_breaks_the_rules_then_only_that_client_is_closed(running, peer, data, code):
    peer.send_raw(data + bytes(100))

    assert peer.read_end() == code
    assert running.login().ask(GetStats()) is not None


@pytest.mark.parametrize("cut", [1, 2, 5, 6, 7, 13])
def test_connection_when_cut_within_a_frame_then_the_client_is_forgotten(running, cut):
    observer = running.login()
    with WsPeer(listening_address(running)) as peer:
        peer.login()
        before = observer.ask(GetStats()).clients_count
        peer.send_raw(ws_frame(PING)[:cut])

    assert eventually(lambda: observer.ask(GetStats()).clients_count < before)


def connect_raw(server) -> socket.socket:
    return socket.create_connection(listening_address(server), timeout=10)


@pytest.mark.parametrize(
    ("request_bytes", "answer"),
    [
        (b"\x04\x00\x00\x00\x01\x00\x00\x00" * 10 + b"\r\n\r\n", b""),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 426"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + bytes(200_000), b"HTTP/1.1 426"),
        (b"POST / HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 405"),
        (REQUEST.replace(b"Version: 13", b"Version: 12"), b"HTTP/1.1 400"),
        (REQUEST.replace(b"dGhlIHNhbXBsZSBub25jZQ==", b"short"), b"HTTP/1.1 400"),
        (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n", b"HTTP/1.1 414"),
        (REQUEST[:-2] + b"X: " + b"x" * 9000 + b"\r\n", b"HTTP/1.1 431"),
        (REQUEST[:-2] + b"".join(b"X%d: y\r\n" % n for n in range(200)), b"HTTP/1.1 431"),
        (REQUEST[:-2] + (b"X: " + b"y" * 4000 + b"\r\n") * 9, b"HTTP/1.1 431"),
    ],
    ids=["binary", "plain", "more", "POST", "version", "key", "path", "header", "headers", "all"],
)
def test_handshake_when_wrong_then_is_refused_in_words_of_http(running, request_bytes, answer):
    with connect_raw(running) as raw:
        raw.sendall(request_bytes)

        assert read_to_end(raw).startswith(answer)


def test_request_when_it_comes_with_the_handshake_then_is_answered(running):
    with connect_raw(running) as raw:
        raw.sendall(REQUEST + ws_frame(PING) + ws_frame(b"", Opcode.CLOSE))
        answer = read_to_end(raw)

    head, _, rest = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101")
    assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head
    assert b"Extensions" not in head
    assert rest == b"\x82\x08" + OK + b"\x88\x00"


def test_handshake_when_never_finished_then_is_given_up(running):
    with connect_raw(running) as raw:
        raw.sendall(REQUEST[:40])

        assert read_to_end(raw) == b""


def test_handshakes_when_many_stay_unfinished_then_newcomers_are_served(start_server):
    settings = {
        "IGGY_LIMITS_WEBSOCKET_MAX_HANDSHAKES": "8",
        "IGGY_LIMITS_WEBSOCKET_HANDSHAKE_TIMEOUT": "1 h",
    }
    server = start_server(settings=settings)
    loris = [connect_raw(server) for _ in range(30)]
    for raw in loris:
        raw.sendall(REQUEST[:20])

    with WsPeer(listening_address(server)) as peer:
        peer.send(PING)
        assert peer.read() == OK
    assert server.login().ask(Ping()) is None
    for raw in loris:
        raw.close()


def test_tcp_when_the_websocket_door_is_besieged_then_goes_on_answering(running):
    """Nobody in here reads what the server says, and some never stop talking."""
    client = running.login()
    hostile = [connect_raw(running) for _ in range(24)]
    for number, raw in enumerate(hostile):
        raw.setblocking(False)
        raw.send(
            [REQUEST + ws_frame(b"", Opcode.PING) * 3000, REQUEST[:9], bytes(9999)][number % 3]
        )
    slowest_s = 0.0
    for number in range(300):
        with contextlib.suppress(OSError):
            hostile[number % 24].send(ws_frame(b"x" * 125, Opcode.PING) * 400)
        began = time.monotonic()
        client.ask(Ping())
        slowest_s = max(slowest_s, time.monotonic() - began)

    assert slowest_s < ANSWER_SECONDS_MAX
    for raw in hostile:
        raw.close()


def test_connections_when_there_are_enough_then_another_is_refused(start_server):
    server = start_server(settings={"IGGY_LIMITS_WEBSOCKET_MAX_CONNECTIONS": "2"})
    with WsPeer(listening_address(server)) as first, WsPeer(listening_address(server)) as second:
        for peer in (first, second):
            peer.login()
        with connect_raw(server) as third:
            third.sendall(REQUEST)
            assert read_to_end(third) == b""
        first.send(PING)
        assert first.read() == OK
    assert server.login().ask(Ping()) is None


def test_settings_when_made_then_they_count(start_server):
    settings = {
        "IGGY_WEBSOCKET_ACCEPT_UNMASKED_FRAMES": "true",
        "IGGY_WEBSOCKET_MAX_FRAME_SIZE": "1 KiB",
        "IGGY_WEBSOCKET_MAX_MESSAGE_SIZE": "2 KiB",
        "IGGY_WEBSOCKET_READ_BUFFER_SIZE": "100 B",
        "IGGY_LIMITS_WEBSOCKET_IDLE_TIMEOUT": "300 ms",
    }
    server = start_server(settings=settings)
    with WsPeer(listening_address(server)) as peer:
        peer.send_raw(ws_frame(PING * 100, mask=None) + ws_frame(PING * 100))
        assert [peer.read() for _ in range(200)] == [OK] * 200
        assert peer.read_end() == CloseCode.GOING_AWAY
    with WsPeer(listening_address(server)) as peer:
        peer.send_raw(ws_frame(bytes(1025)))
        assert peer.read_end() == CloseCode.MESSAGE_TOO_BIG
    with WsPeer(listening_address(server)) as peer:
        piece = PING * 125
        peer.send_raw(ws_frame(piece, fin=False))
        peer.send_raw(ws_frame(piece, Opcode.CONT, fin=False) + ws_frame(piece, Opcode.CONT))
        assert peer.read_end() == CloseCode.MESSAGE_TOO_BIG
    assert server.login().ask(Ping()) is None


def test_server_when_it_stops_then_clients_are_told_in_frames(start_server):
    server = start_server(shards=2)
    peers = [WsPeer(listening_address(server)) for _ in range(4)]
    for peer in peers:
        peer.login()

    server.stop()

    for peer in peers:
        assert peer.read() == StatusCode.DISCONNECTED.to_bytes(4, "little") + bytes(4)
        assert peer.read_end() == CloseCode.GOING_AWAY
        peer.socket.close()


def test_server_when_it_stops_with_polls_unread_then_they_come_before_the_last_words(start_server):
    server = start_server()
    topic = make_topic(server.login())
    topic.send(NewMessage(bytes(LARGE)))
    with WsPeer(listening_address(server)) as peer:
        peer.login()
        peer.send_raw(ws_frame(frame_of(poll_of(topic, 1))) * 30)
        assert len(peer.read()) > LARGE
        stopping = threading.Thread(target=server.stop)
        stopping.start()

        assert [len(peer.read()) > LARGE for _ in range(29)] == [True] * 29
        assert peer.read() == StatusCode.DISCONNECTED.to_bytes(4, "little") + bytes(4)
        assert peer.read_end() == CloseCode.GOING_AWAY
    stopping.join()


def test_shards_when_there_are_two_then_both_accept(start_server):
    server = start_server(shards=2)
    topic = make_topic(server.login(), partitions=4)
    name = unique("x")
    for number in range(12):
        with WsPeer(listening_address(server)) as peer:
            peer.login()
            message = NewMessage(f"{name} {number}".encode())
            partition = Partitioning.partition(number % 4)
            ask(peer, SendMessages(topic.stream, topic.topic, partition, [message]))

    stored = [text for partition in range(4) for text in topic.read(partition=partition)]
    assert sorted(stored) == sorted(f"{name} {number}" for number in range(12))


@pytest.mark.parametrize("transport", ["websocket", "http"])
def test_port_when_in_use_then_the_start_is_refused_and_the_setting_named(start_server, transport):
    host, port = listening_address(start_server(), transport)
    setting = f"IGGY_{transport.upper()}_ADDRESS"

    with pytest.raises(ServerFailed, match=rf"(?s)instead of starting.*{port}.*{setting}"):
        start_server(settings={setting: f"{host}:{port}"})


@pytest.mark.parametrize("transports", [("tcp",), ("websocket", "http")], ids=" ".join)
def test_listeners_when_disabled_then_their_ports_are_closed(start_server, transports):
    """The others serve, and the start-up lines name them alone."""
    server = start_server(
        settings={f"IGGY_{transport.upper()}_ENABLED": "false" for transport in transports}
    )

    for transport in ("tcp", "websocket", "http"):
        assert (f"  {transport:<9} 127.0.0.1:" in server.output()) == (transport not in transports)
    if "tcp" in transports:
        assert "Connect with iggy+ws://iggy:" in server.output()
        with WsPeer(listening_address(server)) as peer:
            peer.login()
    else:
        assert server.login().ask(Ping()) is None


def trust_of(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@pytest.fixture
def certified(tmp_path):
    """Settings of a server with a certificate, and the authority behind it."""
    authority = trustme.CA()
    settings = Certificate.make(authority, tmp_path).settings("WEBSOCKET_TLS")
    return {**settings, "IGGY_LIMITS_WEBSOCKET_HANDSHAKE_TIMEOUT": "1 s"}, authority


@pytest.mark.parametrize("shards", [1, 2])
def test_tls_when_switched_on_then_this_door_alone_speaks_it(start_server, certified, shards):
    settings, authority = certified
    server = start_server(shards=shards, settings=settings)
    topic = make_topic(server.login())

    with WsPeer(listening_address(server), tls=trust_of(authority)) as peer:
        peer.login()
        batch = [NewMessage(bytes(LARGE))] * 4
        ask(peer, SendMessages(topic.stream, topic.topic, Partitioning.partition(0), batch))
        poll = PollMessages(
            ConsumerIdentity.single(1), topic.stream, topic.topic, PollingStrategy.first(), 10, 0
        )
        assert len(ask(peer, poll).messages) == 4
        peer.send_raw(ws_frame(b"\x03\xe8", Opcode.CLOSE))
        assert peer.read_end() == CloseCode.NORMAL_CLOSURE
    assert "websocket" in server.output()
    assert "with TLS" in server.output()


def test_tls_when_clients_misbehave_then_they_are_dropped_and_others_served(
    start_server, certified
):
    settings, authority = certified
    server = start_server(settings=settings)
    with connect_raw(server) as plain, connect_raw(server) as silent:
        plain.sendall(REQUEST)
        assert not read_to_end(plain).startswith(b"HTTP")
        with pytest.raises(ssl.SSLError):
            WsPeer(listening_address(server), tls=trust_of(trustme.CA()))
        with WsPeer(listening_address(server), tls=trust_of(authority)) as peer:
            peer.send(PING)
            assert peer.read() == OK
        assert read_to_end(silent) == b""


def test_certificate_when_made_for_development_then_the_connect_line_trusts_it(start_server):
    settings = {"IGGY_TCP_ENABLED": "false", "IGGY_WEBSOCKET_TLS_ENABLED": "true"}
    server = start_server(settings=settings)

    (line,) = [line for line in server.output().splitlines() if line.startswith("Connect")]

    assert line.startswith("Connect with iggy+wss://")
    context = ssl.create_default_context(cafile=line.rpartition("tls_ca_file=")[2])
    with WsPeer(listening_address(server), tls=context) as peer:
        peer.login()

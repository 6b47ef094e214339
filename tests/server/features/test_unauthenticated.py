"""Clients that do not log in: what the server holds for them, and what they cannot take away."""

from __future__ import annotations

import socket
import ssl
from contextlib import ExitStack
from pathlib import Path

import pytest

from iggy_protocol import Ping, StatusCode
from tests.server.features.topic_calls import eventually, frame_of
from tests.server.net.ws_peer import WsPeer, listening_address
from tests.server.replay.raw_peer import Absence, RawPeer

SEND_MESSAGES, CREATE_STREAM = 101, 202
REFUSED = int(StatusCode.UNAUTHENTICATED).to_bytes(4, "little") + bytes(4)
MIB = 1 << 20
ATTACKERS = 8


def head(code: int, payload_bytes: int) -> bytes:
    """Announce a request."""
    return (payload_bytes + 4).to_bytes(4, "little") + code.to_bytes(4, "little")


def resident_bytes(server) -> int:
    """Say how much memory all processes of a server have."""
    total = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(path.read_text().rpartition(")")[2].split()[2]) == server.pid:
                total += int((path.parent / "statm").read_text().split()[1]) * 4096
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total


@pytest.mark.parametrize("listener", ["tcp", "websocket"])
def test_send_when_long_and_before_a_login_then_the_server_holds_nothing_of_it(
    start_server, listener
):
    server = start_server()
    before = resident_bytes(server)
    with ExitStack() as stack:
        for _ in range(ATTACKERS):
            if listener == "tcp":
                raw = RawPeer(server.address)
                stack.callback(raw.close)
                raw.send(head(SEND_MESSAGES, 100 * MIB))
                for _ in range(32):
                    raw.send(bytes(MIB))
                assert raw.read_frame(10) == REFUSED
            else:
                peer = stack.enter_context(WsPeer(listening_address(server)))
                peer.send(head(SEND_MESSAGES, 100 * MIB))
                for _ in range(32):
                    peer.send(bytes(MIB))
                assert peer.read() == REFUSED
        assert resident_bytes(server) - before < ATTACKERS * 8 * MIB
        assert server.login().ask(Ping()) is None
    server.stop()


def test_control_frame_when_long_and_before_a_login_then_is_refused_and_the_end(start_server):
    server = start_server()
    raw = RawPeer(server.address)
    raw.send(head(CREATE_STREAM, 17_000))

    assert raw.read_frame(10) == REFUSED
    assert raw.read_frame(10) is Absence.CLOSED
    raw.close()


@pytest.mark.parametrize("listener", ["tcp", "websocket"])
def test_request_when_it_stands_still_then_the_connection_ends(start_server, listener):
    server = start_server(settings={"IGGY_LIMITS_STALL_TIMEOUT": "1 s"})
    if listener == "tcp":
        client = server.login()
        client.socket.sendall(head(SEND_MESSAGES, 100 * MIB) + bytes(1000))
        assert client.is_closed_by_peer()
    else:
        with WsPeer(listening_address(server)) as peer:
            peer.login()
            peer.send(head(SEND_MESSAGES, 100 * MIB) + bytes(1000))
            peer.read_end()
    assert eventually(lambda: server.login().ask(Ping()) is None)


def test_login_when_a_long_send_is_pipelined_behind_it_then_both_are_served(start_server):
    """The bound is that of the moment at which a request is looked at."""
    server = start_server()
    client = server.connect()
    login = bytes([4]) + b"iggy" + bytes([4]) + b"iggy" + bytes(8)
    client.socket.sendall(
        head(38, len(login)) + login + head(SEND_MESSAGES, 200_000) + bytes(200_000)
    )
    raw = b""
    while len(raw) < 8 + 4 + 8:
        raw += client.socket.recv(100)
    assert raw[:4] == bytes(4)
    assert raw[12:16] not in (bytes(4), REFUSED[:4])
    client.socket.sendall(frame_of(Ping()))
    assert client.socket.recv(100) == bytes(8)


# Those who say nothing


def many(address: tuple[str, int], count: int, first: bytes) -> list[socket.socket]:
    """Open connections that say a little, or nothing."""
    opened = [socket.create_connection(address, timeout=10) for _ in range(count)]
    for one in opened:
        if first:
            one.sendall(first)
    return opened


@pytest.mark.parametrize("first", [b"", b"\x04"])
@pytest.mark.parametrize("listener", ["tcp", "websocket"])
def test_logins_when_silent_connections_take_all_places_then_work_all_the_same(
    start_server, first, listener
):
    settings = {"IGGY_LIMITS_MAX_UNAUTHENTICATED_CONNECTIONS": "50"}
    server = start_server(settings=settings)
    address = listening_address(server, listener)
    silent: list[socket.socket] = []
    try:
        for _ in range(3):
            silent += many(address, 60, first)
            assert server.login().ask(Ping()) is None
            with WsPeer(listening_address(server)) as peer:
                peer.login()
        assert server.output().count("without a login") <= 4
    finally:
        for one in silent:
            one.close()


def test_logins_when_one_address_is_full_then_work_all_the_same(start_server):
    settings = {"IGGY_LIMITS_MAX_UNAUTHENTICATED_CONNECTIONS_PER_ADDRESS": "5"}
    server = start_server(settings=settings)
    silent = many(server.address, 20, b"")
    try:
        assert server.login().ask(Ping()) is None
        assert "limits.max_unauthenticated_connections_per_address" in server.output()
    finally:
        for one in silent:
            one.close()


def test_connection_when_silent_without_a_login_then_ends_and_others_stay(start_server):
    server = start_server(settings={"IGGY_LIMITS_LOGIN_TIMEOUT": "1 s"})
    known, silent, http = (
        server.login(),
        server.connect(),
        socket.create_connection(listening_address(server, "http"), timeout=20),
    )

    assert silent.is_closed_by_peer()
    assert http.recv(100) == b""
    http.close()
    assert known.ask(Ping()) is None


def test_handshakes_when_many_stay_unfinished_then_tls_logins_work(start_server):
    server = start_server(settings={"IGGY_TCP_TLS_ENABLED": "true"})
    silent = many(server.address, 100, b"\x16")
    try:
        client = server.connect(tls=trusting())
        client.login()
        assert client.ask(Ping()) is None
    finally:
        for one in silent:
            one.close()


def test_http_when_silent_connections_take_all_places_then_newcomers_are_served(start_server):
    server = start_server(settings={"IGGY_LIMITS_HTTP_MAX_CONNECTIONS": "20"})
    silent = many(listening_address(server, "http"), 60, b"")
    try:
        with socket.create_connection(listening_address(server, "http"), timeout=20) as client:
            client.sendall(b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.recv(1000).startswith(b"HTTP/1.1 200")
    finally:
        for one in silent:
            one.close()


def trusting() -> ssl.SSLContext:
    """Speak TLS with anybody."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context

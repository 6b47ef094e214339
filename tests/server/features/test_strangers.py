"""Clients that do not log in: what the server holds for them, and what they cannot take away."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from iggy_protocol import Ping, StatusCode
from tests.server.doors.ws_peer import WsPeer, door_of
from tests.server.features.scene import eventually, frame_of
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


@pytest.mark.parametrize("door", ["tcp", "websocket"])
def test_send_when_long_and_before_a_login_then_the_server_holds_nothing_of_it(start_server, door):
    server = start_server()
    before = resident_bytes(server)
    with ExitStack() as stack:
        for _ in range(ATTACKERS):
            if door == "tcp":
                raw = RawPeer(server.address)
                stack.callback(raw.close)
                raw.send(head(SEND_MESSAGES, 100 * MIB))
                for _ in range(32):
                    raw.send(bytes(MIB))
                assert raw.read_frame(10) == REFUSED
            else:
                peer = stack.enter_context(WsPeer(door_of(server)))
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


@pytest.mark.parametrize("door", ["tcp", "websocket"])
def test_request_when_it_stands_still_then_the_connection_ends(start_server, door):
    server = start_server(settings={"IGGY_LIMITS_STALL_TIMEOUT": "1 s"})
    if door == "tcp":
        client = server.login()
        client.socket.sendall(head(SEND_MESSAGES, 100 * MIB) + bytes(1000))
        assert client.is_closed_by_peer()
    else:
        with WsPeer(door_of(server)) as peer:
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

"""Clients that speak the protocol of 0.9 and later, which this server does not."""

from __future__ import annotations

import json
import socket
from pathlib import Path

from iggy_protocol import VSR_HEAD_BYTES, Ping, is_vsr_refusal
from iggy_ref_server.net.scheduler import ADDRESSES_MAX, LOG_INTERVAL_S, UnsupportedProtocolLog
from iggy_ref_server.session import ClientSession
from tests.server.features.test_unauthenticated import trusting

RECORDING = Path(__file__).parents[2] / "golden" / "vsr" / "login.0.9.0.jsonl"
REFUSED = "it speaks the protocol of Apache Iggy 0.9"


def recorded_requests():
    """Return what the official client 0.9.0 wrote, in its order."""
    lines = [json.loads(line) for line in RECORDING.read_text().splitlines()]
    return [bytes.fromhex(line["frame"]) for line in lines if line.get("dir") == ">"]


def read_refusal(connected):
    received = b""
    while len(received) < VSR_HEAD_BYTES:
        data = connected.recv(VSR_HEAD_BYTES - len(received))
        assert data, "the server has closed the connection"
        received += data
    return received


def test_client_of_0_9_when_it_connects_then_is_refused_and_the_log_says_so_once(start_server):
    """It used to be told status 3 for ever: the client hung, and nobody knew why."""
    server = start_server()
    for _ in range(3):
        with socket.create_connection(server.address, timeout=10) as connected:
            for request in recorded_requests()[:4]:
                connected.sendall(request)
                refusal = read_refusal(connected)
                assert is_vsr_refusal(refusal)
                assert refusal[128:144] == request[128:144]
    server.login().ask(Ping())
    server.stop()
    lines = [line for line in server.output().splitlines() if REFUSED in line]
    assert len(lines) == 1
    assert " WARN " in lines[0]
    assert "refused 127.0.0.1:" in lines[0]
    assert "this server speaks that of 0.8" in lines[0]


def test_client_of_0_9_when_it_connects_over_tls_then_is_refused_there_as_well(start_server):
    server = start_server(settings={"IGGY_TCP_TLS_ENABLED": "true"})
    with (
        socket.create_connection(server.address, timeout=10) as plain,
        trusting().wrap_socket(plain) as connected,
    ):
        for request in recorded_requests()[:2]:
            connected.sendall(request)
            refusal = read_refusal(connected)
            assert is_vsr_refusal(refusal)
            assert refusal[128:144] == request[128:144]
    server.stop()
    assert REFUSED in server.output()


def test_log_when_one_address_comes_again_and_again_then_has_a_line_for_each_ten_minutes(caplog):
    now_s = 0.0
    foreign = UnsupportedProtocolLog(lambda: now_s)
    for port in range(100):
        foreign.note(ClientSession(port, f"10.0.0.1:{port}"))
    assert len(caplog.records) == 1
    now_s = LOG_INTERVAL_S + 1
    foreign.note(ClientSession(1, "10.0.0.1:1"))
    assert len(caplog.records) == 2


def test_log_when_many_addresses_come_then_remembers_a_bounded_number(caplog):
    foreign = UnsupportedProtocolLog(lambda: 0.0)
    for number in range(ADDRESSES_MAX + 10):
        foreign.note(ClientSession(number, f"[2001:db8::{number:x}]:80"))
    assert len(caplog.records) == ADDRESSES_MAX + 10
    assert len(foreign._logged_at_s) == ADDRESSES_MAX

"""Clients that announce a version of the protocol which this server does not speak."""

from __future__ import annotations

from typing import Any

import pytest

from iggy_protocol import (
    Dialect,
    EvictionReason,
    PasswordCredentials,
    Ping,
    Register,
    VersionRefused,
    encode_request,
)
from iggy_protocol.dialect import VERSION_WINDOWS, Version
from iggy_protocol.errors import UnknownCommand
from iggy_protocol.vsr.heads import VSR_HEAD_BYTES, RequestHead, read_eviction_head
from iggy_ref_server.net.refused_versions import (
    ADDRESSES_MAX,
    LOG_INTERVAL_S,
    RefusedVersionLog,
)
from iggy_ref_server.session import ClientSession
from tests.server.features.test_unauthenticated import trusting
from tests.server.vsr_client import VsrClient

CLIENT = bytes(range(1, 17))
CREDENTIALS = PasswordCredentials("iggy", "iggy")


def register_of(version, sdk_name="some-sdk", sdk_version="9.9.9"):
    """Return the login of a client of any version."""
    login = Register(version, sdk_name, sdk_version, CREDENTIALS)
    parts: list[Any] = list(encode_request(login, Dialect.V0_11))
    body = b"".join(map(bytes, parts))
    head = RequestHead(size=VSR_HEAD_BYTES + len(body), client=CLIENT, operation=1)
    return head.encode() + body


def read_eviction(connected):
    received = b""
    while len(received) < VSR_HEAD_BYTES:
        data = connected.recv(VSR_HEAD_BYTES - len(received))
        assert data, "the server has closed the connection"
        received += data
    return read_eviction_head(received)


@pytest.mark.parametrize("is_secured", [False, True], ids=["TCP", "TLS"])
@pytest.mark.parametrize("version", [Version(0, 13, 0), Version(0, 12, 1), Version(0, 10, 0)])
def test_login_when_its_version_is_not_served_then_is_refused_with_those_that_are(
    start_server, version, is_secured
):
    server = start_server(settings={"IGGY_TCP_TLS_ENABLED": "true"} if is_secured else {})
    tls = trusting() if is_secured else None
    for _ in range(3):
        with VsrClient.connect(server.address, Dialect.V0_11, tls=tls) as client:
            for _ in range(2):
                client.wire.sendall(register_of(version))
                eviction = read_eviction(client.wire)
                assert eviction.client == CLIENT
                assert eviction.reason == EvictionReason.INCOMPATIBLE_PROTOCOL
                assert eviction.lowest == VERSION_WINDOWS[0].lowest.pack()
                assert eviction.highest == VERSION_WINDOWS[-1].highest.pack()
            # The connection is as good as new.
            assert client.login().user_id == 0
    server.stop()
    lines = [line for line in server.output().splitlines() if " refused 127.0.0.1:" in line]
    assert len(lines) == 1
    assert " WARN " in lines[0]
    assert f"'some-sdk 9.9.9') announces the protocol {version}" in lines[0]
    assert "this server speaks 0.11, 0.12.0, 0.12.2 and the protocol of Apache Iggy 0.8" in lines[0]


def test_login_when_a_bound_client_announces_another_version_then_its_session_ends(start_server):
    server = start_server()
    with VsrClient.connect(server.address, Dialect.V0_11) as client:
        client.login()
        client.wire.sendall(register_of(Version(0, 13, 0)))
        assert read_eviction(client.wire).reason == EvictionReason.INCOMPATIBLE_PROTOCOL
        client.session.end()

        assert client.ask(Ping()) is None
        assert client.login().user_id == 0
    server.stop()


# The log


def refused(sdk="sdk"):
    return VersionRefused(40, UnknownCommand("no"), Version(0, 13, 0), sdk, "1.0")


def test_log_when_one_address_comes_again_and_again_then_has_a_line_for_each_ten_minutes(caplog):
    now_s = 0.0
    log = RefusedVersionLog(lambda: now_s)
    for port in range(100):
        log.note_version(ClientSession(port, f"10.0.0.1:{port}"), refused())
    assert len(caplog.records) == 1
    now_s = LOG_INTERVAL_S + 1
    log.note_framing(ClientSession(1, "10.0.0.1:1"))
    assert len(caplog.records) == 2


def test_log_when_many_addresses_come_then_remembers_a_bounded_number(caplog):
    log = RefusedVersionLog(lambda: 0.0)
    for number in range(ADDRESSES_MAX + 10):
        log.note_version(ClientSession(number, f"[2001:db8::{number:x}]:80"), refused())
    assert len(caplog.records) == ADDRESSES_MAX + 10
    assert len(log._logged_at_s) == ADDRESSES_MAX


def test_log_when_an_sdk_has_a_strange_name_then_shows_it_on_one_short_line(caplog):
    log = RefusedVersionLog(lambda: 0.0)
    log.note_version(ClientSession(1, "10.0.0.1:1"), refused(sdk="a\nb" + "x" * 200))
    text = caplog.records[0].getMessage()

    assert "\n" not in text
    assert "a\\nb" in text
    assert len(text) < 400

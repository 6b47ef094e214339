"""How QUIC connections end: closed by either end, idle, or reset by a server that forgot them."""

from __future__ import annotations

import pytest
import trustme
from aioquic.quic import events

from iggy_protocol.quic import LONG_HEADER, RESET_BYTES_MIN, QuicClientCore
from tests.certificates import Certificate
from tests.protocol.quic_pair import (
    SERVER,
    QuicPair,
    client_configuration,
    reset_token,
    server_configuration,
)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return Certificate.make(trustme.CA(), tmp_path_factory.mktemp("quic"), ("localhost",))


@pytest.fixture
def pair(certificate: Certificate) -> QuicPair:
    return QuicPair.connected(server_configuration(certificate))


def test_end_when_the_server_closes_then_both_know_the_reason_at_once(pair):
    pair.server.close(7, reason_phrase="stopping")
    assert pair.server.termination.reason_phrase == "stopping"
    assert not pair.client.is_ended_by_peer
    pair.exchange()

    assert pair.client.termination.error_code == 7
    assert pair.client.termination.reason_phrase == "stopping"
    assert pair.client.is_ended_by_peer
    assert pair.count(pair.client, events.ConnectionTerminated) == 0

    pair.run_timers(pair.now + 10.0)
    assert pair.count(pair.client, events.ConnectionTerminated) == 1


def test_end_when_the_client_closes_then_it_was_not_ended_by_its_peer(pair):
    pair.client.close(reason_phrase="done")
    pair.exchange()

    assert pair.server.termination.reason_phrase == "done"
    assert not pair.client.is_ended_by_peer


def test_end_when_nothing_is_heard_for_the_idle_timeout_then_both_have_ended(certificate):
    pair = QuicPair.connected(server_configuration(certificate, idle_timeout=5.0))
    pair.run_timers(pair.now + 4.0)
    assert pair.client.termination is pair.server.termination is None

    pair.run_timers(pair.now + 2.0)
    for core in (pair.client, pair.server):
        assert core.termination is not None
        assert core.termination.reason_phrase == "Idle timeout"
        assert pair.count(core, events.ConnectionTerminated) == 1


# Stateless resets


def make_reset(token: bytes, size: int = RESET_BYTES_MIN, first: int = 0x40) -> bytes:
    return bytes([first]) + bytes(size - len(token) - 1) + token


def test_connection_ids_when_issued_then_each_has_its_derived_token(pair):
    issued = [pair.client._peer_cid, *pair.client._peer_cid_available]

    assert len(issued) > 1
    assert all(one.stateless_reset_token == reset_token(one.cid) for one in issued)


def test_reset_when_it_has_the_token_then_the_client_knows_the_end_and_keeps_it(pair):
    reset = make_reset(reset_token(pair.client._peer_cid.cid))
    pair.deliver(pair.client, [reset])
    termination = pair.client.termination
    pair.deliver(pair.client, [reset])

    assert "does not know the connection" in termination.reason_phrase
    assert pair.client.is_ended_by_peer
    assert pair.client.termination is termination


def test_reset_when_it_is_no_valid_one_then_is_ignored(pair):
    token = reset_token(pair.client._peer_cid.cid)
    wrong = [
        make_reset(bytes(16)),
        make_reset(token, size=RESET_BYTES_MIN - 1),
        make_reset(token, first=LONG_HEADER | 0x40),
        b"",
    ]
    pair.deliver(pair.client, wrong)
    pair.client.send_stream_data(0, b"request")
    pair.settle()

    assert pair.client.termination is None
    assert pair.received(pair.server) == b"request"


def test_reset_when_no_token_is_known_yet_then_is_ignored():
    client = QuicClientCore(client_configuration())
    client.connect(SERVER, 0.0)
    client.receive_datagram(bytes([0x40]) + bytes(40), SERVER, 0.0)

    assert client.termination is None

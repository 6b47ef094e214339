"""An orderly stop: what clients are owed is sent, whatever they speak, and the budget is kept."""

from __future__ import annotations

import ssl
import time

import pytest

from iggy_protocol import (
    ConsumerIdentity,
    Partitioning,
    PollingStrategy,
    PollMessages,
    SendMessages,
    StatusCode,
)
from tests.server.features.topic_calls import make_topic
from tests.server.wire_client import ConnectionLost, Refused

pytestmark = pytest.mark.timeout(90)

PIPELINED = 200
TLS = {"IGGY_TCP_TLS_ENABLED": "true", "IGGY_TCP_TLS_SELF_SIGNED": "true"}
# Service managers and test harnesses kill after five.
STOP_SECONDS_MAX = 4.0


def trust(server):
    """Trust the certificate that the server made for itself."""
    certificate = server.data / "certificates" / "development_cert.pem"
    return ssl.create_default_context(cafile=str(certificate))


def answers(client):
    """Count what a client is told until the server hangs up; return that and the last word."""
    count, last = 0, None
    try:
        while True:
            try:
                client.receive()
                count += 1
            except Refused as refused:
                last = refused.status
    except (ConnectionLost, ConnectionError):
        return count, last


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("shards", [1, 2])
def test_stop_when_sends_are_under_way_then_each_is_answered_or_not_stored(
    start_server, tls, shards
):
    server = start_server(shards=shards, settings=TLS if tls else {})
    context = trust(server) if tls else None
    clients = [server.connect(tls=context) for _ in range(4)]
    for client in clients:
        client.login()
    topic = make_topic(clients[0], partitions=4)
    for number, client in enumerate(clients):
        where = Partitioning.partition(number)
        client.send(*[SendMessages(topic.stream, topic.topic, where, [b"x" * 999])] * PIPELINED)

    server.stop()

    told = [answers(client) for client in clients]
    assert [last for _, last in told] == [StatusCode.DISCONNECTED] * 4
    server.start()
    client = server.connect(tls=context)
    client.login()
    topic = topic.seen_by(client)
    for number, (count, _) in enumerate(told):
        assert len(topic.offsets(partition=number)) == count


@pytest.mark.parametrize("tls", [False, True])
def test_stop_when_a_client_does_not_read_then_it_ends_with_0_in_time(start_server, tls):
    server = start_server(settings=TLS if tls else {})
    context = trust(server) if tls else None
    client = server.connect(tls=context)
    client.login()
    topic = make_topic(client)
    for _ in range(16):
        topic.send(*["x" * 1_000_000] * 2)
    first = PollingStrategy.first()
    client.send(
        *[PollMessages(ConsumerIdentity.single(1), topic.stream, topic.topic, first, 99, 0)] * 4
    )

    began = time.monotonic()
    server.stop()

    assert time.monotonic() - began < STOP_SECONDS_MAX


def test_files_when_a_certificate_is_given_then_the_server_shows_it(start_server):
    maker = start_server(settings=TLS)
    certificates = maker.data / "certificates"
    settings = {
        "IGGY_TCP_TLS_ENABLED": "true",
        "IGGY_QUIC_ENABLED": "false",
        "IGGY_TCP_TLS_SELF_SIGNED": "false",
        "IGGY_TCP_TLS_CERT_FILE": str(certificates / "development_cert.pem"),
        "IGGY_TCP_TLS_KEY_FILE": str(certificates / "development_key.pem"),
    }
    server = start_server(settings=settings)

    client = server.connect(tls=trust(maker))
    client.login()
    topic = make_topic(client)
    topic.send("in secret")

    assert topic.read() == ["in secret"]
    assert not (server.data / "certificates" / "development_cert.pem").exists()

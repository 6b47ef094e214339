"""Clients that leave Nagle's algorithm on and write requests in two pieces, as official ones."""

from __future__ import annotations

import socket
import ssl
import time

import pytest
import trustme

from iggy_protocol import Partitioning, Ping, SendMessages
from tests.certificates import Certificate
from tests.server.features.topic_calls import frame_of, make_topic

OK = bytes(8)
# The delayed acknowledgement of a kernel that is not asked to hurry takes at least this long.
DELAY_S = 0.04
# A new connection acknowledges early by itself for some segments.
WARM_UP = 40
SENDS = 12


def fastest_send_s(client, topic):
    """Send in two pieces, and return how long the fastest answer took."""
    client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
    for _ in range(WARM_UP):
        client.ask(Ping())
    send = frame_of(
        SendMessages(topic.stream, topic.topic, Partitioning.partition(0), [bytes(20_000)])
    )
    took_s = []
    for _ in range(SENDS):
        begun = time.perf_counter()
        client.socket.sendall(send[:8])
        client.socket.sendall(send[8:])
        answer = b""
        while len(answer) < len(OK):
            answer += client.socket.recv(len(OK) - len(answer))
        took_s.append(time.perf_counter() - begun)
        assert answer == OK
    return min(took_s)


@pytest.mark.parametrize("is_tls", [False, True])
def test_send_when_written_in_two_pieces_then_does_not_wait_for_a_delayed_acknowledgement(
    start_server, tmp_path, is_tls
):
    settings, tls = {}, None
    if is_tls:
        authority = trustme.CA()
        settings = Certificate.make(authority, tmp_path).settings("TCP_TLS")
        tls = ssl.create_default_context()
        authority.configure_trust(tls)
    server = start_server(settings=settings)
    client = server.connect(tls=tls)
    client.login()

    assert fastest_send_s(client, make_topic(client)) < DELAY_S

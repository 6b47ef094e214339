"""Datagrams of the client: runs that the kernel cuts apart, and what it says when it cannot."""

from __future__ import annotations

import socket

import pytest

from iggy_protocol.quic import core
from iggy_sdk.transport.quic import DatagramSender


@pytest.fixture
def pair():
    theirs = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    theirs.bind(("127.0.0.1", 0))
    theirs.settimeout(5)
    ours = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    ours.setblocking(False)
    ours.connect(theirs.getsockname())
    yield ours, theirs
    ours.close()
    theirs.close()


@pytest.mark.parametrize("option", [core.UDP_SEGMENT, 9_999])
def test_datagrams_when_sent_together_then_arrive_as_they_were(monkeypatch, pair, option):
    monkeypatch.setattr(core, "UDP_SEGMENT", option)
    ours, theirs = pair
    sizes = [1_200, 1_200, 300, 8_000, 8_000, 8_000]
    datagrams = [bytes([number]) * size for number, size in enumerate(sizes)]

    DatagramSender(ours).send(datagrams)

    assert [theirs.recv(65_536) for _ in datagrams] == datagrams


def test_datagrams_when_the_peer_is_gone_then_an_error_says_so(pair):
    ours, theirs = pair
    theirs.close()
    sender = DatagramSender(ours)

    # The first one is answered with the news, which the second one brings.
    sender.send([bytes(1_200)])
    with pytest.raises(ConnectionRefusedError):
        sender.send([bytes(1_200)])

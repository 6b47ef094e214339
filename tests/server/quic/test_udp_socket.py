"""The UDP socket of the QUIC listener: datagrams in runs that the kernel splits, or one by one."""

from __future__ import annotations

import socket

import pytest
import trio

from iggy_protocol.quic import core
from iggy_ref_server.net.quic.udp_socket import Datagram, UdpSocket


def bound():
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    return udp


@pytest.mark.trio
@pytest.mark.parametrize("option", [core.UDP_SEGMENT, 9_999])
async def test_datagrams_when_sent_together_then_arrive_as_they_were(monkeypatch, option):
    monkeypatch.setattr(core, "UDP_SEGMENT", option)
    ours, theirs = bound(), bound()
    sender, receiver = UdpSocket(ours), UdpSocket(theirs)
    sizes = [1_200, 1_200, 1_200, 300, 8_000, 8_000, 50]
    datagrams = [bytes([number]) * size for number, size in enumerate(sizes)]

    sender.send([(data, theirs.getsockname()) for data in datagrams])
    received: list[Datagram] = []
    with trio.fail_after(5):
        while len(received) < len(datagrams):
            received += await receiver.receive()

    assert [data for data, _ in received] == datagrams
    assert {address for _, address in received} == {ours.getsockname()}
    sender.close()
    receiver.close()


@pytest.mark.trio
async def test_datagrams_when_one_client_cannot_be_reached_then_others_are():
    theirs = bound()
    sender, receiver = UdpSocket(bound()), UdpSocket(theirs)
    nowhere = ("255.255.255.255", 9)

    sender.send([(bytes(1_000), nowhere)] * 3 + [(b"here", theirs.getsockname())])
    with trio.fail_after(5):
        ((data, _),) = await receiver.receive()

    assert data == b"here"
    sender.close()
    receiver.close()


@pytest.mark.trio
async def test_receiving_when_datagrams_never_end_then_others_have_their_turns():
    theirs = bound()
    sender, receiver = UdpSocket(bound()), UdpSocket(theirs)
    turns_count = 0

    async def work() -> None:
        nonlocal turns_count
        while True:
            turns_count += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        for _ in range(100):
            sender.send([(b"more", theirs.getsockname())])
            await receiver.receive()
        nursery.cancel_scope.cancel()

    assert turns_count >= 50
    sender.close()
    receiver.close()


@pytest.mark.trio
@pytest.mark.parametrize("turns", [1, 200])
async def test_receiving_when_the_socket_is_closed_meanwhile_then_ends(turns):
    receiver = UdpSocket(bound())

    async def close() -> None:
        for _ in range(turns):
            await trio.lowlevel.checkpoint()
        receiver.close()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(close)
        with trio.fail_after(5), pytest.raises(trio.ClosedResourceError):
            await receiver.receive()

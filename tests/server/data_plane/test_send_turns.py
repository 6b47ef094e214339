"""What one socket is sent in a round, however fast its client reads."""

from __future__ import annotations

import socket

import pytest

from iggy_ref_server.data_plane import sockets
from iggy_ref_server.data_plane.sockets import SENT_BYTES_MAX
from iggy_ref_server.session import Session
from tests.server.world.world import open_world

pytestmark = pytest.mark.trio

MIB = 1 << 20


async def test_reply_when_its_client_reads_as_fast_as_it_is_written_to_then_ends_its_turn(
    monkeypatch,
):
    """A socket that takes everything would keep all others waiting until the reply is out."""
    monkeypatch.setattr(
        sockets, "send_buffers", lambda connected, buffers: min(MIB, sum(map(len, buffers)))
    )
    ours, theirs = socket.socketpair()
    async with open_world() as world:
        room = world.shards[0].room
        link = room.admit(ours, Session(1, "127.0.0.1:1"))
        for _ in range(10):
            link.outbox.put(bytes(MIB))
        seat = room._by_link[link]

        turns = []
        while link.outbox:
            before = link.outbox.size_bytes
            assert room._send(seat)
            turns.append(before - link.outbox.size_bytes)

        assert turns == [SENT_BYTES_MAX, SENT_BYTES_MAX, 2 * MIB]
        theirs.close()

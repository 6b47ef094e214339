"""What one socket is sent in a round, however fast its client reads."""

from __future__ import annotations

import socket

import pytest

from iggy_ref_server.net import socket_io
from iggy_ref_server.net.socket_io import SENT_BYTES_MAX
from iggy_ref_server.session import ClientSession
from tests.server.simulated.server import open_simulated_server

pytestmark = pytest.mark.trio

MIB = 1 << 20


async def test_reply_when_its_client_reads_as_fast_as_it_is_written_to_then_ends_its_turn(
    monkeypatch,
):
    """A socket that takes everything would keep all others waiting until the reply is out."""
    monkeypatch.setattr(
        socket_io, "send_buffers", lambda connected, buffers: min(MIB, sum(map(len, buffers)))
    )
    ours, theirs = socket.socketpair()
    async with open_simulated_server() as server:
        sockets = server.shards[0].socket_server
        pipeline = sockets.admit(ours, ClientSession(1, "127.0.0.1:1"))
        for _ in range(10):
            pipeline.output_buffer.put(bytes(MIB))
        connection = sockets._by_pipeline[pipeline]

        turns = []
        while pipeline.output_buffer:
            before = pipeline.output_buffer.size_bytes
            assert sockets._send(connection)
            turns.append(before - pipeline.output_buffer.size_bytes)

        assert turns == [SENT_BYTES_MAX, SENT_BYTES_MAX, 2 * MIB]
        theirs.close()

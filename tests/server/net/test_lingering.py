"""How long a client that the server leaves is waited for."""

from __future__ import annotations

import socket
from contextlib import closing

from iggy_ref_server.net.pipeline import LINGERING_TIMEOUT_S, SILENT_MIN_S, silence_awaited


def test_silence_awaited_when_the_client_is_on_this_machine_then_short():
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        client = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
        with closing(client), closing(accepted):
            accepted.sendall(b"farewell")
            client.recv(8)

            # A machine that is busy may take its time even for this.
            assert SILENT_MIN_S <= silence_awaited(accepted) < LINGERING_TIMEOUT_S


def test_silence_awaited_when_the_distance_is_not_known_then_long():
    ours, theirs = socket.socketpair()
    with closing(ours), closing(theirs):
        assert silence_awaited(ours) == LINGERING_TIMEOUT_S

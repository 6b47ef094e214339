"""TLS as clients use it beyond the handshake: a real server and the client of OpenSSL."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from iggy_protocol import Ping
from tests.server.features.topic_calls import frame_of

OK = bytes(8)
PING = frame_of(Ping())


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
def test_keys_when_the_client_changes_them_then_requests_go_on(start_server):
    """The server has to read a record without a request, and to answer it before its next reply."""
    server = start_server(settings={"IGGY_TCP_TLS_ENABLED": "true"})
    host, port = server.address
    command = ["openssl", "s_client", "-connect", f"{host}:{port}", "-tls1_3", "-msg"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        shown = b""

        def wait_for(text: bytes) -> None:
            nonlocal shown
            while text not in shown:
                piece = os.read(client.stdout.fileno(), 1 << 16)  # type: ignore[union-attr]
                assert piece, shown
                shown += piece
            shown = shown.partition(text)[2]

        wait_for(b"read R BLOCK")
        for _ in range(3):
            client.stdin.write(b"K\n")
            client.stdin.flush()
            wait_for(b">>> TLS 1.3, Handshake [length 0005], KeyUpdate")
            client.stdin.write(PING)
            client.stdin.flush()
            wait_for(b"<<< TLS 1.3, Handshake [length 0005], KeyUpdate")
            wait_for(OK)
        client.kill()

"""Official clients over QUIC: the command line of 0.8, where there is one, and the Python wheel.

The wheel 0.8.0 offers ``iggy+quic://`` and cannot use it with any server: it makes its endpoint
outside of its own event loop, and fails before a datagram is sent. Once a wheel can, the test that
says so fails, and the scenario of the other transports should take its place.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.interop.wheels import SCENARIO_SECONDS_MAX, SCENARIOS, wheel_python
from tests.server.net.ws_peer import listening_address

pytestmark = [pytest.mark.interop, pytest.mark.timeout(90)]

COMMAND_LINE = os.environ.get("IGGY_OFFICIAL_CLI", "")
LONG = "long " * 20_000


def test_wheel_when_it_is_to_speak_quic_then_fails_by_itself(server):
    wheel = wheel_python()
    host, port = listening_address(server, "quic")
    done = subprocess.run(
        [wheel, SCENARIOS / "transport.py", f"iggy+quic://iggy:iggy@{host}:{port}"],
        capture_output=True,
        text=True,
        timeout=SCENARIO_SECONDS_MAX,
        check=False,
    )

    assert "CannotCreateEndpoint" in done.stderr


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.skipif(not COMMAND_LINE, reason="IGGY_OFFICIAL_CLI names no iggy of Apache Iggy 0.8")
def test_command_line_when_it_speaks_quic_then_everything_works(start_server, shards):
    server = start_server(shards=shards)
    host, port = listening_address(server, "quic")
    login = ["--quic-server-address", f"{host}:{port}", "-u", "iggy", "-p", "iggy"]

    def run(*words: str) -> str:
        command = [str(Path(COMMAND_LINE)), "--transport", "quic", *login, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0, f"{done.stderr}\n{server.output()}"
        return done.stdout

    assert "Ping sequence id: 3" in run("ping", "-c", "3")
    assert "QUIC" in run("me")
    run("stream", "create", "s")
    run("topic", "create", "s", "t", "4", "none")
    for partition in range(4):
        run("message", "send", "--partition-id", str(partition), "s", "t", f"<{partition}>", LONG)
        told = run(
            "message", "poll", "--offset", "0", "--message-count", "9", "s", "t", f"{partition}"
        )
        assert "Polled 2 messages" in told
        assert f"<{partition}>" in told

"""The official command line for servers of 0.9, built here, against this server.

It is written in Rust and published as source, and building it takes many minutes, so this is slow.
It is built once, into a folder that git ignores or the one that ``IGGY_COMMAND_LINE_ROOT`` names.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.interop.wheels import ROOT
from tests.server.net.ws_peer import listening_address

VERSION = "0.14.0"
BUILD_SECONDS_MAX = 2 * 3600
COMMAND_SECONDS_MAX = 60

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("cargo") is None, reason="there is no cargo to build it with"),
]


@pytest.fixture(scope="module")
def command_line():
    """Return the program, built if it is not there yet."""
    chosen = os.environ.get("IGGY_COMMAND_LINE_ROOT", str(ROOT / ".venv-command-line"))
    root = Path(chosen) / VERSION
    program = root / "bin" / "iggy"
    if not program.exists():
        # It does not compile without its default feature, which keeps sessions in a keyring
        # of the desktop and only warns where there is none. What is not optimized is built sooner.
        build = ["cargo", "install", "--debug", "--locked", "-j1", "--root", str(root)]
        subprocess.run(
            ["nice", "-n", "19", *build, f"iggy-cli@{VERSION}"],
            timeout=BUILD_SECONDS_MAX,
            check=True,
        )
    return program


@pytest.fixture(params=[1, 2], ids="{}-shard".format)
def shards(request):
    """Return how many shards the server has."""
    return request.param


@pytest.fixture(params=["tcp", "websocket"])
def transport(request):
    """Return the transport over which the program connects."""
    return request.param


@pytest.fixture
def run(transport, command_line, start_server, shards, tmp_path):
    """Run a command as root over a transport, and return what it prints."""
    server = start_server(shards=shards)
    host, port = listening_address(server, transport)
    where = ["--transport", {"websocket": "ws"}.get(transport, transport)]
    where += [f"--{transport}-server-address", f"{host}:{port}"]

    def execute(*words: str, status: int = 0) -> str:
        done = subprocess.run(
            [command_line, *where, "-u", "iggy", "-p", "iggy", *words],
            env={**os.environ, "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
            check=False,
        )
        said = done.stdout + done.stderr
        assert (done.returncode != 0) == (status != 0), f"{words}: {said}\n{server.output()}"
        return said

    return execute


@pytest.mark.timeout(BUILD_SECONDS_MAX + 30 * COMMAND_SECONDS_MAX)
def test_command_line_when_it_is_used_then_each_command_does_what_it_says(run, transport):
    assert "Ping sequence id: 1" in run("ping", "-c", "1")
    assert "127.0.0.1" in run("me")
    assert "Iggy Server PID" in run("stats")
    assert "segment_size" in run("options", "topic")

    assert "Stream with name: s" in run("stream", "create", "s")
    assert "s" in run("stream", "list")
    run("stream", "create", "s", status=1)
    topic = run("topic", "create", "s", "t", "3", "none", "--set", "segment_size=64MiB")
    assert "Topic with name: t, partitions count: 3" in topic
    assert "t" in run("topic", "get", "s", "t")
    run("topic", "create", "s", "odd", "1", "none", "--set", "unknown=1", status=1)

    said = run("message", "send", "-p", "1", "-H", "kind:string:tea", "s", "t", "first", "second")
    assert "Sent messages" in said
    run("message", "send", "--message-key", "order-7", "s", "t", "third")
    read = run(
        "message", "poll", "--first", "--message-count", "9", "--show-headers", "s", "t", "1"
    )
    assert all(word in read for word in ("first", "second", "tea"))
    following = ["message", "poll", "--next", "--auto-commit", "--consumer", "7"]
    first = run(*following, "--message-count", "1", "s", "t", "1")
    second = run(*following, "--message-count", "1", "s", "t", "1")
    assert ("first" in first, "second" in second) == (True, True)
    stored = run("consumer-offset", "get", "7", "s", "t", "1")
    assert re.search(r"Stored offset +\| 1 ", stored), stored

    run("consumer-group", "create", "s", "t", "g")
    assert "g" in run("consumer-group", "list", "s", "t")
    run("partition", "create", "s", "t", "2")
    run("user", "create", "somebody", "secret-one")
    assert "somebody" in run("user", "list")
    if transport == "tcp":  # over another one this program panics before it connects
        assert "Token" in run("pat", "create", "short", "1h")
    run("message", "flush", "s", "t", "0", status=1)

    run("user", "delete", "somebody")
    run("topic", "delete", "s", "t")
    run("stream", "delete", "s")
    assert "was not found" in run("stream", "get", "s")

"""The official Python client 0.9.0: served over every transport, or refused in words."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from contextlib import contextmanager

import pytest

from iggy_protocol import (
    VSR_HEAD_BYTES,
    ConsumerIdentity,
    CreateStream,
    CreateTopic,
    PollingStrategy,
    PollMessages,
    Version,
)
from tests.interop.wheels import SCENARIO_SECONDS_MAX, SCENARIOS, wheel_python
from tests.server.running import RunningServer

pytestmark = pytest.mark.interop

SCHEMES = {"tcp": "iggy+tcp", "websocket": "iggy+ws", "quic": "iggy+quic"}
REGISTER = 1
NEXT_VERSION = Version(0, 13, 0)


def report(server, url):
    """Run the scenario, and return what it reports."""
    done = subprocess.run(
        [wheel_python("0.9.0"), SCENARIOS / "vsr.py", url],
        capture_output=True,
        text=True,
        timeout=SCENARIO_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, f"{done.stderr}\n{server.output()}"
    return json.loads(done.stdout)


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("transport", SCHEMES)
def test_client_of_0_9_when_it_works_with_a_topic_then_all_is_as_it_should_be(
    tmp_path, transport, shards
):
    with RunningServer(tmp_path, shards=shards) as server:
        root = server.login()
        root.ask(CreateStream("s"))
        root.ask(CreateTopic("s", "t", 4))
        address = server.current_config()[transport]["address"]  # type: ignore[index]
        reported = report(server, f"{SCHEMES[transport]}://iggy:iggy@{address}")
        first = PollMessages(ConsumerIdentity.single(9), "s", "t", PollingStrategy.first(), 100, 2)

        assert reported == {
            "connect": "",
            "read": [True] * 4,
            "large": True,
            "after the logout": "Unauthenticated",
            "counted": 4 * 20 + 3 + 4,
            "wrong password": "Invalid credentials",
        }
        # The classic client reads what the other one has sent.
        polled = root.ask(first).messages
        polled.verify()
        assert polled.payloads()[:20] == [b"2 %d" % number for number in range(20)]


class VersionChanger:
    """Passes the bytes of clients on, and has their logins announce a version of the future."""

    def __init__(self, target):
        self.target = target
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.logins_count = 0

    @property
    def address(self):
        host, port = self.listener.getsockname()
        return f"{host}:{port}"

    def run(self):
        """Serve until the listener is closed."""
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(self.target)
            for source, sink, change in ((client, server, self.change), (server, client, bytes)):
                threading.Thread(
                    target=self.pass_on, args=(source, sink, change), daemon=True
                ).start()

    def pass_on(self, source, sink, change):
        """Pass whole frames on, one way."""
        unsent = b""
        with source, sink:
            while True:
                try:
                    data = source.recv(65_536)
                except OSError:
                    return
                if not data:
                    return
                unsent += data
                while len(unsent) >= VSR_HEAD_BYTES:
                    size = int.from_bytes(unsent[48:52], "little")
                    if len(unsent) < size:
                        break
                    sink.sendall(change(unsent[:size]))
                    unsent = unsent[size:]

    def change(self, frame):
        """Change the version of a login."""
        if frame[176] != REGISTER:
            return frame
        self.logins_count += 1
        at = VSR_HEAD_BYTES
        return frame[:at] + NEXT_VERSION.pack().to_bytes(4, "little") + frame[at + 4 :]


@contextmanager
def changing_versions(server):
    """Stand between clients and a server."""
    changer = VersionChanger(server.address)
    with changer.listener:
        threading.Thread(target=changer.run, daemon=True).start()
        yield changer
        # An accept that waits does not notice a close.
        changer.listener.shutdown(socket.SHUT_RDWR)


def test_client_when_its_version_is_not_served_then_ends_with_an_error_that_names_both(tmp_path):
    with RunningServer(tmp_path) as server, changing_versions(server) as changer:
        reported = report(server, f"iggy+tcp://iggy:iggy@{changer.address}")

        assert changer.logins_count > 0
        assert reported == {
            "connect": "Incompatible binary protocol version: client 0.11.0, server accepts "
            "[0.11.0, 0.12.2]"
        }
    lines = [line for line in server.output().splitlines() if " refused 127.0.0.1:" in line]
    assert len(lines) == 1
    assert "announces the protocol 0.13.0" in lines[0]

"""The official Python client over WebSocket, plain and encrypted, on one and on two shards."""

from __future__ import annotations

import json
import subprocess

import pytest
import trustme

from tests.certificates import Certificate
from tests.interop.wheels import SCENARIO_SECONDS_MAX, SCENARIOS, wheel_python
from tests.server.net.ws_peer import listening_address
from tests.server.running import RunningServer

pytestmark = pytest.mark.interop

# This client raises the same with Apache Iggy 0.8.
REPORT = {
    "read": [True] * 4,
    "large": True,
    "counted": 205,
    "missing stream": None,
    "stream again": "StreamNameAlreadyExists",
    "wrong password": "InvalidCredentials",
}


def report(server, url):
    """Have the client do its scenario, and return what it saw."""
    done = subprocess.run(
        [wheel_python(), SCENARIOS / "transport.py", url],
        capture_output=True,
        text=True,
        timeout=SCENARIO_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, f"{done.stderr}\n{server.output()}"
    return json.loads(done.stdout)


@pytest.mark.parametrize("shards", [1, 2])
def test_client_when_it_comes_by_websocket_then_everything_is_as_on_the_original(tmp_path, shards):
    with RunningServer(tmp_path, shards=shards) as server:
        host, port = listening_address(server)

        assert report(server, f"iggy+ws://iggy:iggy@{host}:{port}") == REPORT


def test_client_when_the_websocket_is_encrypted_then_it_verifies_and_works(tmp_path):
    certificate = Certificate.make(trustme.CA(), tmp_path)
    with RunningServer(tmp_path, settings=certificate.settings("WEBSOCKET_TLS")) as server:
        _, port = listening_address(server)
        options = f"tls=true&tls_domain=localhost&tls_ca_file={certificate.ca_file}"

        assert report(server, f"iggy+ws://iggy:iggy@localhost:{port}?{options}") == REPORT

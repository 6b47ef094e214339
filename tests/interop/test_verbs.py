"""Everything that each official client can ask for, over each transport, on one and on two shards.

The scenario is one for all clients, and its steps are told apart: a failure says which step saw
what, and what it should have seen. A client that has no name for a step leaves it out.
"""

from __future__ import annotations

import pytest
import trustme

from tests.certificates import Certificate
from tests.interop.expected_verbs import differences
from tests.interop.wheels import LATER_VERSIONS, VERSIONS
from tests.server.net.ws_peer import listening_address
from tests.server.running import RunningServer

pytestmark = pytest.mark.interop

SCHEMES = {"tcp": "iggy+tcp", "websocket": "iggy+ws", "quic": "iggy+quic"}
STREAMS = ("tcp", "websocket")
# The clients up to 0.8 fail over QUIC before they send anything.
MATRIX = [
    *((version, name, shards) for version in VERSIONS for name in STREAMS for shards in (1, 2)),
    *((version, "quic", 2) for version in LATER_VERSIONS),
]
# The client 0.7 refuses to be configured for an encrypted WebSocket.
ENCRYPTED = [
    *((version, "tcp") for version in VERSIONS),
    *((version, "websocket") for version in VERSIONS if version != "0.7.0"),
]


def complaints(server):
    """Return what the server has logged that is not as usual."""
    return [line for line in server.output().splitlines() if " WARN " in line or "ERROR" in line]


@pytest.mark.parametrize(("version", "transport", "shards"), MATRIX)
def test_client_when_it_asks_for_everything_then_each_step_is_as_on_the_original(
    official, shared_server, version, transport, shards
):
    server = shared_server(shards)
    host, port = listening_address(server, transport)
    url = f"{SCHEMES[transport]}://{{login}}{host}:{port}"

    ran = official(version).run("everything", url=url, stream=f"{version}-{transport}")

    found = differences(version, ran.steps)
    assert not found, "\n".join(["", *found, *complaints(server)])


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory):
    """Run a server whose TCP and WebSocket are encrypted; return it and how to trust it."""
    folder = tmp_path_factory.mktemp("encrypted")
    certificate = Certificate.make(trustme.CA(), folder)
    settings = {**certificate.settings("TCP_TLS"), **certificate.settings("WEBSOCKET_TLS")}
    with RunningServer(folder, settings=settings) as server:
        yield server, f"tls=true&tls_domain=localhost&tls_ca_file={certificate.ca_file}"


@pytest.mark.parametrize(("version", "transport"), ENCRYPTED)
def test_client_when_all_is_encrypted_then_it_verifies_and_each_step_is_the_same(
    official, encrypted, version, transport
):
    server, trust = encrypted
    _, port = listening_address(server, transport)
    url = f"{SCHEMES[transport]}://{{login}}localhost:{port}?{trust}"

    ran = official(version).run("everything", url=url, stream=f"{version}-{transport}")

    found = differences(version, ran.steps)
    assert not found, "\n".join(["", *found, *complaints(server)])

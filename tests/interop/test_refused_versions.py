"""Official clients that announce a version of the future: refused at once, and in words.

No official client announces a version that this server does not speak, so it is changed on its way.
"""

from __future__ import annotations

import time

import pytest

from iggy_protocol import VSR_HEAD_BYTES, Version
from tests.interop.relay import IDENTIFIER, REGISTER, REQUEST_OPERATION, Relay
from tests.server.running import RunningServer

pytestmark = pytest.mark.interop

NEXT = Version(0, 13, 0)
# What the clients themselves announce, which is what their errors name.
OWN = {"0.9.0": "0.11.0", "0.9.1.dev5": "0.12.0"}
SECONDS_MAX = 5


def announcing_next(frame):
    """Have a login announce the version of the future.

    A login of 0.11 carries a hash of its body. Without one it is not checked.
    """
    if frame[REQUEST_OPERATION] != REGISTER:
        return frame
    changed = bytearray(frame)
    changed[IDENTIFIER] = bytes(16)
    changed[VSR_HEAD_BYTES : VSR_HEAD_BYTES + 4] = NEXT.pack().to_bytes(4, "little")
    return bytes(changed)


def test_client_when_its_version_is_not_served_then_ends_with_an_error_that_names_both(
    official, tmp_path
):
    with RunningServer(tmp_path) as server, Relay(server.address, request=announcing_next) as relay:
        host, port = relay.address
        url = f"iggy+tcp://iggy:iggy@{host}:{port}"
        for version, own in OWN.items():
            began = time.monotonic()
            said = official(version).run("connect", name="refused", url=url)

            assert said.returned["error"] == (
                f"Incompatible binary protocol version: client {own}, "
                "server accepts [0.11.0, 0.12.2]"
            )
            assert time.monotonic() - began < SECONDS_MAX
    # One line for an address, however many clients come from it.
    lines = [line for line in server.output().splitlines() if " refused 127.0.0.1:" in line]
    assert len(lines) == 1
    assert " WARN " in lines[0]
    assert "announces the protocol 0.13.0" in lines[0]

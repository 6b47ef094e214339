"""The official Python client 0.9.0, whose protocol this server does not speak: refused in words."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.interop.wheels import SCENARIO_SECONDS_MAX, SCENARIOS, wheel_python
from tests.server.running import RunningServer

pytestmark = pytest.mark.interop

WORDS = "Incompatible binary protocol version: client 0.11.0, server accepts [0.10.0, 0.10.0]"

SCHEMES = {"tcp": "iggy+tcp", "websocket": "iggy+ws", "quic": "iggy+quic"}


def test_client_of_0_9_when_it_connects_then_ends_with_an_error_that_names_both_versions(tmp_path):
    """It used to wait for an answer that never came, over every transport."""
    wheel = wheel_python("0.9.0")
    with RunningServer(tmp_path) as server:
        told: dict[str, Any] = server.current_config()
        urls = [f"{SCHEMES[name]}://iggy:iggy@{told[name]['address']}" for name in SCHEMES]
        done = subprocess.run(
            [wheel, SCENARIOS / "refused.py", *urls],
            capture_output=True,
            text=True,
            timeout=SCENARIO_SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, f"{done.stderr}\n{server.output()}"
        assert json.loads(done.stdout) == dict.fromkeys(SCHEMES.values(), WORDS)
    assert server.output().count("speaks the protocol of Apache Iggy 0.9") == 1

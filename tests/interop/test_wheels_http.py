"""The official Python client over HTTP, on one and on two shards.

It ignores the login of the connection string there, so it logs in by hand. Of the other transports
that its connection string offers, QUIC fails in the client itself before anything is sent.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.interop.wheels import SCENARIO_SECONDS_MAX, SCENARIOS, wheel_python
from tests.server.running import RunningServer

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("shards", [1, 2])
def test_client_when_it_uses_http_then_everything_is_as_over_other_transports(tmp_path, shards):
    wheel = wheel_python()
    with RunningServer(tmp_path, shards=shards) as server:
        config: Any = server.current_config()
        url = f"iggy+http://iggy:iggy@{config['http']['address']}"
        done = subprocess.run(
            [wheel, SCENARIOS / "transport.py", url, "iggy", "iggy"],
            capture_output=True,
            text=True,
            timeout=SCENARIO_SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, f"{done.stderr}\n{server.output()}"
        report = json.loads(done.stdout)

    assert report.pop("stream again")
    assert report.pop("wrong password")
    assert report == {
        "read": [True] * 4,
        "large": True,
        "counted": 205,
        "missing stream": None,
    }

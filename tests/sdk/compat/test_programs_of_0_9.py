"""Programs for the official client 0.9, unchanged but for the import, on this SDK.

They run with the wheel against a server of 0.9. Here a small module named ``apache_iggy`` stands in
for the wheel and re-exports ``iggy_sdk.compat``. They report what they report with the wheel, but a
server of 0.8 confirms nothing and has no options, and one of 0.10 cannot purge.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import trustme

from iggy_sdk.blocking import IggyClient
from tests.certificates import Certificate
from tests.server.net.ws_peer import listening_address
from tests.server.running import RunningServer

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = Path(__file__).parent / "programs"
PROGRAM_SECONDS_MAX = 60

pytestmark = pytest.mark.timeout(90)


@pytest.fixture
def report_of(tmp_path):
    """Run a program with this SDK in place of the wheel, and return what it reports."""
    (tmp_path / "apache_iggy.py").write_text("from iggy_sdk.compat import *\n")
    search = os.pathsep.join([str(tmp_path), str(ROOT), str(ROOT / "protocol")])

    def run(program, *arguments):
        done = subprocess.run(
            [sys.executable, "-W", "error", PROGRAMS / f"{program}.py", *arguments],
            env={**os.environ, "PYTHONPATH": search},
            capture_output=True,
            text=True,
            timeout=PROGRAM_SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture
def dialect(iggy_server):
    """Find out what the server speaks to a client that takes the newest."""
    with IggyClient(iggy_server.url.partition("?")[0]) as client:
        client.ping()
        return client.dialect


def address_of(server):
    host, port = server.address
    return f"{host}:{port}"


def test_program_when_it_sends_then_reports_what_it_does_with_the_wheel(
    report_of, iggy_server, dialect
):
    assert report_of("sending", address_of(iggy_server)) == {
        "config": [True, "iggy", 1],
        "direct": {
            "partition 1": ["a", "b", "c", "d"],
            "counted": 7,
            "confirmations": [[1, 0], [1, 2]] if dialect.is_vsr else [],
            "lost": [2, [], True, True],
            "runtime": True,
        },
        "background": {"in order": True, "confirmations": [], "timeout": True, "shards": 1},
        "headers": {
            "id": 9,
            "typed": True,
            "scalars": ["7", "plain", "typed"],
            "kinds": [["raw", "raw"], ["string", "text"], ["u32", 5]],
            "none": None,
            "partition": 0,
        },
        "response": True,
    }


def test_program_when_it_consumes_then_reports_what_it_does_with_the_wheel(report_of, iggy_server):
    assert report_of("consuming", address_of(iggy_server)) == {
        "handled": {
            "name": "handlers",
            "seen": True,
            "consumed": [29, 29],
            "places": ["shop", "orders"],
        },
        "iterated": {"taken": 60, "stored": [29, 29]},
        "groups": {"members": [1, 2, [0, 1]], "polled": 5, "groups": True, "gone": None},
        "choices": {
            "interval": [1.0, True],
            "length": [2, 0],
            "first": True,
            "kinds": True,
            "nth": 7,
        },
    }


def test_program_when_it_sets_topics_then_reports_what_it_does_with_the_wheel(
    report_of, iggy_server, dialect
):
    report = report_of("topics", address_of(iggy_server))
    options = report.pop("options")

    assert report == {
        "stream": ["shop", 0, 0, True],
        "settings": [
            ["kept", "none", 3600.0, 2147483648, 1],
            ["all", "gzip", "never", "unlimited", 2],
            ["kept", "none", "never", 2147483648, 1],
            ["renamed", "none", "never", "unlimited", 1],
        ],
        "partitions": [[0, 0, 0, 1], [1, 0, 0, 1], [2, 0, 0, 1]],
        "purged": [True, True],
        "left": True,
        "topics": True,
        "gone": [None, []],
        "stats": [0, True, True, {}, "int"],
    }
    if dialect.is_vsr:
        assert {"durability", "segment_size", "preallocate_segments"} <= set(options["set"])
        assert {"durability", "message_expiry", "segment_size"} <= set(options["described"])
        assert (options["durability"], options["kinds"]) == ("persisted", "uint64")
    else:
        # Options are of 0.9, so nothing was sent to this server, and the error says why.
        assert options["topic"] is None
        assert "the protocol of Apache Iggy 0.8, which does not have the option" in options["made"]
        assert "does not exist in the protocol of Apache Iggy 0.8" in options["described"]


def test_program_when_it_makes_users_then_reports_what_it_does_with_the_wheel(
    report_of, iggy_server
):
    assert report_of("users", address_of(iggy_server)) == {
        "made": ["clerk", True, True],
        "rights": [True, False],
        "topic": True,
        "empty": None,
        "equal": True,
        "may read": "shop",
        "may not create": True,
        "users": ["clerk", "iggy"],
        "old password": True,
        "none": None,
        "inactive": [True, "UserStatus.Inactive"],
        "cannot log in": True,
        "gone": None,
    }


def test_programs_when_they_use_each_transport_then_read_what_they_sent(report_of, tmp_path):
    certificate = Certificate.make(trustme.CA(), tmp_path)
    settings = certificate.settings("QUIC_CERTIFICATE", is_switch=False)
    with RunningServer(tmp_path / "data", settings=settings) as server:
        for transport in ("tcp", "websocket", "quic", "http"):
            host, port = listening_address(server, transport)

            report = report_of("transports", transport, f"{host}:{port}")

            assert report["read"] == [3, 9999], transport
            assert transport == "http" or report["config"].count("iggy") == 1, "a password shows"

"""Programs written for the official client, unchanged but for the import, on this SDK.

The scenarios are those that run with the official wheels against our server. A small module named
``apache_iggy`` stands in for the wheel, and re-exports ``iggy_sdk.compat``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop.test_wheels import STORED

ROOT = Path(__file__).resolve().parents[3]
SCENARIOS = ROOT / "tests" / "interop" / "scenarios"
SCENARIO_SECONDS_MAX = 60

pytestmark = pytest.mark.timeout(90)


@pytest.fixture
def report_of(iggy_server, tmp_path):
    """Run a scenario with this SDK in place of the wheel, and return what it reports."""
    (tmp_path / "apache_iggy.py").write_text("from iggy_sdk.compat import *\n")
    search = os.pathsep.join([str(tmp_path), str(ROOT), str(ROOT / "protocol")])

    def run(scenario):
        host, port = iggy_server.address
        done = subprocess.run(
            [sys.executable, "-W", "error", SCENARIOS / f"{scenario}.py", f"{host}:{port}"],
            env={**os.environ, "PYTHONPATH": search},
            capture_output=True,
            text=True,
            timeout=SCENARIO_SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_program_when_it_does_the_basics_then_reports_what_the_wheel_reports(report_of):
    report = report_of("basics")
    errors = report.pop("errors")

    assert "InvalidCredentials" in report.pop("wrong password")
    # Ids of deleted streams are not given again, and the server has served other tests.
    report["stream"][0] = 0
    assert report == {
        "stream": [0, "s", 1, 0],
        "topic": [0, "t", 3, 0],
        "same by id": True,
        "missing stream": None,
        "missing topic": None,
        "first": STORED,
        "offset": STORED[4:],
        "last": STORED[4:],
        "next": STORED[:2],
        "next again": STORED[2:4],
        "timestamp": STORED[5:],
        "future": [],
        "partition 2": [[number, f"2 {number}"] for number in range(5)],
        "ids": 6,
        "partitions": [0],
        "lengths": [3, 3, 3, 3, 3, 5],
        "recent": True,
        "counted": 16,
        "large": True,
    }
    names = {
        "stream again": "StreamNameAlreadyExists",
        "topic again": "TopicNameAlreadyExists",
        "topic in missing stream": "StreamIdNotFound",
        "too many partitions": "TooManyPartitions",
        "send to missing stream": "StreamIdNotFound",
        "send to missing topic": "TopicIdNotFound",
        "send to missing partition": "PartitionNotFound",
        "poll of missing partition": "PartitionNotFound",
    }
    assert [what for what, name in names.items() if name not in errors[what]] == []


def test_program_when_it_consumes_in_a_group_then_reports_what_the_wheel_reports(report_of):
    report = report_of("groups")

    assert "InvalidOffset" in report.pop("beyond the end")
    assert report == {
        "name": "readers",
        "stream": "s",
        "topic": "t",
        "taken": 60,
        "in order": True,
        "consumed": [19, 19, 19],
        "iterated": 60,
    }


def test_programs_when_there_are_many_then_nothing_is_lost_and_nothing_comes_twice(report_of):
    assert report_of("many_clients") == {"counted": 2000, "dense": True, "taken": 2000, "twice": 0}

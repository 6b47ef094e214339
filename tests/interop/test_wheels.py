"""The official Python clients, unmodified, against this server on one and on two shards.

Each wheel lives in a virtual environment of its own, which ``make test`` makes, because only one of
them can be installed at a time. A scenario runs there as a script and reports in JSON.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.server.running import RunningServer

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = Path(__file__).parent / "scenarios"
SCENARIO_SECONDS_MAX = 60

pytestmark = pytest.mark.interop


@pytest.fixture(params=["0.8.0", "0.7.0"])
def wheel(request):
    """The interpreter of an environment with the official client."""
    interpreter = ROOT / ".venv-wheels" / f"apache-iggy-{request.param}" / "bin" / "python"
    if not interpreter.exists():
        pytest.skip("the wheel is not installed; tests/interop/make_wheel_venvs.sh does that")
    return interpreter


@pytest.fixture(params=[1, 2], ids=["one shard", "two shards"])
def report_of(request, wheel, tmp_path):
    """Run a scenario with the client against a fresh server, and return what it reports."""

    def run(scenario):
        with RunningServer(tmp_path, shards=request.param) as server:
            host, port = server.address
            done = subprocess.run(
                [wheel, SCENARIOS / f"{scenario}.py", f"{host}:{port}"],
                capture_output=True,
                text=True,
                timeout=SCENARIO_SECONDS_MAX,
                check=False,
            )
            assert done.returncode == 0, f"{done.stderr}\n{server.output()}"
        return json.loads(done.stdout)

    return run


NUMBERED = [[number, f"0 {number}"] for number in range(5)]
STORED = [*NUMBERED, [5, "bytes"]]


def test_client_when_it_does_the_basics_then_everything_is_as_on_the_original(report_of):
    report = report_of("basics")
    errors = report.pop("errors")

    assert report == {
        "wrong password": "InvalidCredentials",
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
    assert {what: text.partition("(")[0] for what, text in errors.items()} == {
        "stream again": "StreamNameAlreadyExists",
        "topic again": "TopicNameAlreadyExists",
        "topic in missing stream": "StreamIdNotFound",
        "too many partitions": "TooManyPartitions",
        "send to missing stream": "StreamIdNotFound",
        "send to missing topic": "TopicIdNotFound",
        "send to missing partition": "PartitionNotFound",
        "poll of missing partition": "PartitionNotFound",
    }


def test_client_when_it_consumes_in_a_group_then_everything_comes_once_and_in_order(report_of):
    assert report_of("groups") == {
        "name": "readers",
        "stream": "s",
        "topic": "t",
        "taken": 60,
        "in order": True,
        "consumed": [19, 19, 19],
        "iterated": 60,
        "beyond the end": "InvalidOffset(0)",
    }


def test_clients_when_there_are_many_then_nothing_is_lost_and_nothing_comes_twice(report_of):
    assert report_of("crowd") == {"counted": 2000, "dense": True, "taken": 2000, "twice": 0}
